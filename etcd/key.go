package etcd

import (
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// escape keeps the keys of one name out of the prefix of another: "a" is the
// prefix of "a/b", and whoever waits for the first would wait for the second.
var escape = strings.NewReplacer("%", "%25", "/", "%2F")

// folder is the prefix of all keys of a name: those of its holder and waiters.
func (l *Locker) folder(name string) string { return l.opts.Prefix + escape.Replace(name) + "/" }

// keyOf is the key of a lease below a folder, as package concurrency has it.
func keyOf(folder string, id clientv3.LeaseID) string { return fmt.Sprintf("%s%x", folder, id) }

// markOf is the key whose revision is a session's mark. No name is escaped to
// "%mark".
func (l *Locker) markOf(id clientv3.LeaseID) string { return keyOf(l.opts.Prefix+"%mark/", id) }

// holderOf reads the holder's text from a key's value. Values of other clients,
// and older ones of ours, have none.
func holderOf(value []byte) string {
	_, text, _ := strings.Cut(string(value), " ")
	return text
}
