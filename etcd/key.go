package etcd

import (
	"fmt"
	"math"
	"path"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
)

// escape keeps the keys of one name out of the prefix of another: else those of "a/b"
// would begin with "a/", and a waiter for "a" would wait for the holder of "a/b".
var (
	escape   = strings.NewReplacer("%", "%25", "/", "%2F")
	unescape = strings.NewReplacer("%25", "%", "%2F", "/")
)

// folder is the prefix of all keys of a name: those of its holder and waiters.
func (s *store) folder(name string) string { return s.prefix + escape.Replace(name) + "/" }

// sharedDir comes before the rest of a reader's key. In the order of keys it is behind what
// a Mutex and etcdctl put, and our exclusive keys, so those whom a reader waits for are one
// range.
const sharedDir = "~shared-"

// dirOf is what the last part of a key begins with.
func dirOf(k locker.Kind) string {
	if k == locker.Shared {
		return sharedDir
	}
	return ""
}

// kindOf is the kind of lock that a key is there for.
func kindOf(key []byte) locker.Kind {
	if strings.HasPrefix(path.Base(string(key)), sharedDir) {
		return locker.Shared
	}
	return locker.Exclusive
}

// span is a range of keys, without its end.
type span struct{ from, end string }

// all is a span of what begins with a prefix that ends with a slash or a dash.
func all(prefix string) span {
	last := len(prefix) - 1
	return span{prefix, prefix[:last] + string(prefix[last]+1)}
}

// rivals are those whom an attempt waits for if they came first: everybody, or, if it
// reads, those who do not.
func (a *attempt) rivals() span {
	if a.req.Kind == locker.Shared {
		return span{a.folder, a.folder + sharedDir}
	}
	return all(a.folder)
}

// none is the condition that there are no such keys.
func (r span) none() clientv3.Cmp {
	none := putAt(r.from, 0)
	none.GetCompare().RangeEnd = []byte(r.end) // WithRange would copy it
	return none
}

// find reads such keys.
func (r span) find(opts ...clientv3.OpOption) clientv3.Op {
	return clientv3.OpGet(r.from, append(opts[:len(opts):len(opts)], clientv3.WithRange(r.end))...)
}

// nameOf is the name in whose queue a key is, if it is in one. What is deeper down is
// somebody's data.
func (s *store) nameOf(key string) (name string, ok bool) {
	folder, last, ok := strings.Cut(strings.TrimPrefix(key, s.prefix), "/")
	name = unescape.Replace(folder)
	return name, ok && name != "" && !strings.Contains(last, "/") && escape.Replace(name) == folder
}

// marks is the folder of the marks of clean-ups, below the prefix. No name is escaped to it.
const marks = "%mark/"

// putAt is the condition that a key was put at a revision of the store and not deleted
// since, or, for 0, that there is none.
func putAt(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", revision)
}

// asPut is the condition that a key is as it was put at a revision of the store: neither
// deleted since nor put anew, as one is that is kept after its turn.
func asPut(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", revision)
}

const (
	// tokens is how many a grant has: what one process does in the 25 ms for which
	// its goroutines share it.
	tokens = 1024
	// lastRevision is the last revision of the store that has tokens: after a million
	// writes a second for 570 years.
	lastRevision int64 = math.MaxUint64 / tokens
)

// firstToken is the first token of a lock whose key was put at a revision of the store.
func firstToken(revision int64) (uint64, error) {
	if revision <= 0 || revision > lastRevision {
		return 0, fmt.Errorf("the store is at revision %d: there are no tokens after %d", revision, lastRevision)
	}
	return uint64(revision) * tokens, nil
}

// first is the first key that read i of a transaction found, or nil.
func first(resp *clientv3.TxnResponse, i int) *mvccpb.KeyValue {
	if found := resp.Responses[i].GetResponseRange(); found != nil && len(found.Kvs) > 0 {
		return found.Kvs[0]
	}
	return nil
}
