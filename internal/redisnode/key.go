package redisnode

import (
	"fmt"
	"strings"

	"github.com/lockstile/locker/internal/hashslot"
)

// reserved begins all our keys and channels but the locks' own. A lock's key is its
// name, as the Redlock page describes, so no name may begin with this.
const reserved = "lockstile:"

// counters begins the keys of the last grants.
const counters = reserved + "t:{"

// Keys are the keys of one lock. They share a Cluster hash slot.
type Keys struct {
	Lock string // the holder's value: what every Redlock client looks at
	all  [7]any // as scripts take them: strings, which would else be copied for each request
	mark int    // how many bytes of the last key begin the marks of all values
}

// What the keys after the lock's own have, by their places in Keys.all.
const (
	lastKey  = 1 + iota // the last grant: token, value and holder
	queueKey            // waiters, a sorted set by time of arrival
	endsKey             // of the leases of readers, or of those who have slots: a sorted set
	factsKey            // about them, a hash
	dueKey              // by when each waiter must have asked again, a sorted set
	ownKey              // the mark of the value that the keys were made with: marked, it is not granted
)

func (k *Keys) text(key int) string { return k.all[key].(string) }

// NewKeys returns the keys of the lock called name.
func NewKeys(name string) (Keys, error) {
	keys, _, err := newKeys(name, nil)
	return keys, err
}

// newKeys returns a lock's keys, and the value, which is the end of the last of
// them. All share one piece of memory: a held lock is small, and takes little
// time to make.
func newKeys(name string, value []byte) (Keys, string, error) {
	if strings.HasPrefix(name, reserved) {
		return Keys{}, "", fmt.Errorf("names that begin with %q are reserved for the locks' own bookkeeping", reserved)
	}
	tag, rest := hashslot.Parts(name)
	one := len(counters) + len(tag) + len("}") + len(rest)
	var text strings.Builder
	text.Grow(6*one + len(":") + len(value))
	for _, of := range "tqehdm" {
		text.WriteString(reserved)
		text.WriteRune(of)
		text.WriteString(":{")
		text.WriteString(tag)
		text.WriteString("}")
		text.WriteString(rest)
	}
	text.WriteString(":")
	text.Write(value)
	k, all := Keys{Lock: name, mark: one + len(":")}, text.String()
	k.all[0] = name
	for i := lastKey; i < ownKey; i++ {
		k.all[i] = all[(i-1)*one : i*one]
	}
	k.all[ownKey] = all[(ownKey-1)*one:]
	return k, all[(ownKey-1)*one+k.mark:], nil
}

// keysOfCounter returns the keys of the lock whose last grant a key has, if it is one.
func keysOfCounter(key string) (Keys, bool) {
	tagged, _ := strings.CutPrefix(key, counters)
	name, rest, _ := strings.Cut(tagged, "}")
	if rest != "" {
		name = rest[1:] // behind a colon, as hashslot.Parts has it
	}
	keys, err := NewKeys(name)
	return keys, err == nil && keys.text(lastKey) == key
}
