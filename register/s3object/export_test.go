package s3object

import (
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/lockstile/locker/register"
)

// Store is what is behind New.
type Store interface {
	register.Store
	register.Lister
}

// NewStore returns the Store of a Locker.
func NewStore(client *s3.Client, bucket, prefix string) Store {
	return &objects{client, bucket, prefix}
}

// Key returns the key of a name.
func Key(prefix, name string) string { return (&objects{prefix: prefix}).key(name) }

// Name returns the name of a key.
func Name(prefix, key string) (string, bool) { return (&objects{prefix: prefix}).name(key) }

// Room is the limit of prefixes.
const Room = room

// Like is what New says of the Store.
var Like = like
