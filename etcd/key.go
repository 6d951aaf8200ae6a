package etcd

import (
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// escape keeps the keys of one name out of the prefix of another: "a" is the
// prefix of "a/b", and whoever waits for the first would wait for the second.
var escape = strings.NewReplacer("%", "%25", "/", "%2F")

// folder is the prefix of all keys of a name: those of its holder and waiters.
func (l *Locker) folder(name string) string { return l.opts.Prefix + escape.Replace(name) + "/" }

// baseOf is the last part of a lease's keys, as package concurrency has it.
func baseOf(id clientv3.LeaseID) string { return strconv.FormatInt(int64(id), 16) }

// markOf is the key whose revision is a session's mark. No name is escaped to
// "%mark".
func (l *Locker) markOf(base string) string { return l.opts.Prefix + "%mark/" + base }

// unchanged is the condition that a key was last written at a revision of the
// store, or, for 0, that there is none. It does without the copies that
// [clientv3.Compare] makes.
func unchanged(key string, revision int64) clientv3.Cmp {
	is := clientv3.ModRevision(key)
	is.GetCompare().Result = etcdserverpb.Compare_EQUAL
	is.GetCompare().TargetUnion = &etcdserverpb.Compare_ModRevision{ModRevision: revision}
	return is
}

// holderOf reads the holder's text from a key's value. Values of other clients,
// and older ones of ours, have none.
func holderOf(value []byte) string {
	_, text, _ := strings.Cut(string(value), " ")
	return text
}
