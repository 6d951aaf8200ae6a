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
	Lock  string // the holder's value: what every Redlock client looks at
	last  string // the last grant: token, value and holder
	queue string // waiters, a sorted set by time of arrival
	own   string // the mark of the value that the keys were made with: marked, it is not granted
	mark  int    // how many bytes of own begin the marks of all values
}

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
	all := counters + tag + "}" + rest + reserved + "q:{" + tag + "}" + rest + reserved + "m:{" + tag + "}" + rest + ":" + string(value)
	one := len(counters) + len(tag) + len("}") + len(rest)
	own := all[2*one:]
	mark := len(own) - len(value)
	return Keys{Lock: name, last: all[:one], queue: all[one : 2*one], own: own, mark: mark}, own[mark:], nil
}

// keysOfCounter returns the keys of the lock whose last grant a key has, if it is one.
func keysOfCounter(key string) (Keys, bool) {
	tagged, _ := strings.CutPrefix(key, counters)
	name, rest, _ := strings.Cut(tagged, "}")
	if rest != "" {
		name = rest[1:] // behind a colon, as hashslot.Parts has it
	}
	keys, err := NewKeys(name)
	return keys, err == nil && keys.last == key
}
