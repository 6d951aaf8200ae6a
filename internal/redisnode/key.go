package redisnode

import (
	"fmt"
	"strings"

	"github.com/lockstile/locker/internal/hashslot"
)

// reserved begins all keys and channels that are ours and not a lock. A lock's
// own key is its name, as the Redlock page has it, so no lock may begin so.
const reserved = "lockstile:"

// Keys are the keys of one lock. They share a Cluster hash slot.
type Keys struct {
	Lock  string // the holder's value: what every Redlock client looks at
	last  string // the last grant: token, value and holder
	queue string // waiters, a sorted set by time of arrival
	mark  string // prefix of the marks of values that must not be granted
}

// NewKeys returns the keys of the lock called name.
func NewKeys(name string) (Keys, error) {
	if strings.HasPrefix(name, reserved) {
		return Keys{}, fmt.Errorf("names that begin with %q are reserved for the locks' own bookkeeping", reserved)
	}
	return Keys{
		Lock:  name,
		last:  hashslot.Beside(reserved+"t:", name),
		queue: hashslot.Beside(reserved+"q:", name),
		mark:  hashslot.Beside(reserved+"m:", name) + ":",
	}, nil
}

func (k Keys) list(value string) []string {
	return []string{k.Lock, k.last, k.queue, k.mark + value}
}
