package etcd

import (
	"fmt"
	"math"
	"path"
	"strconv"
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

// What the last part of a key begins with, if the key is for no exclusive lock. In the order
// of keys these are behind what a Mutex and etcdctl put, and our exclusive keys, and readers
// behind slots: those whom a reader waits for, or must not meet, are one range.
const (
	slotDir   = "~of"      // <name>/~of<n>-<slot>-<id>, of one who waits <name>/~of<n>-w-<id>
	sharedDir = "~shared-" // <name>/~shared-<id>
)

// role is what a key is there for.
type role struct {
	kind  locker.Kind
	slots int
	slot  int // -1 for who has none
}

func roleOf(key []byte) role {
	last := path.Base(string(key))
	if strings.HasPrefix(last, sharedDir) {
		return role{kind: locker.KindShared, slot: -1}
	}
	of, ok := strings.CutPrefix(last, slotDir)
	if !ok {
		return role{kind: locker.KindExclusive, slot: -1}
	}
	n, rest, _ := strings.Cut(of, "-")
	slot, _, _ := strings.Cut(rest, "-")
	r := role{kind: locker.KindSlots, slot: -1}
	if n, err := strconv.Atoi(n); err == nil {
		r.slots = n
	}
	if k, err := strconv.Atoi(slot); err == nil && k < r.slots {
		r.slot = k
	}
	return r
}

// rename gives an attempt a key that was never used: that of its place in the queue.
func (s *store) rename(a *attempt) {
	before := a.folder
	switch a.req.Kind {
	case locker.KindShared:
		before += sharedDir
	case locker.KindSlots:
		before = a.waiting().from
	}
	a.key = before + strconv.FormatInt(int64(a.session.id), 16) + "-" + strconv.FormatUint(s.count.Add(1), 36)
	a.id = a.key[len(before):]
}

// span is a range of keys, without its end, or, if that is "", what begins with from.
type span struct{ from, end string }

// rivals are those whom an attempt waits for if they came first: everybody, or, if it
// reads, those who do not.
func (a *attempt) rivals() span {
	if a.req.Kind == locker.KindShared {
		return span{a.folder, a.folder + sharedDir}
	}
	return span{from: a.folder}
}

// none is the condition that there are no such keys.
func (r span) none() clientv3.Cmp { return r.created("=", 0) }

// created is the condition that all such keys were created at a revision that is equal to one,
// or greater. If there are none, theirs is 0.
func (r span) created(result string, revision int64) clientv3.Cmp {
	cmp := clientv3.Compare(clientv3.CreateRevision(r.from), result, revision)
	cmp.GetCompare().RangeEnd = r.until() // WithRange would copy it first
	return cmp
}

// find makes a read one of such keys.
func (r span) find(read clientv3.Op) clientv3.Op {
	read.WithKeyBytes([]byte(r.from))
	read.WithRangeBytes(r.until())
	return read
}

// until is the end of the range. Our prefixes end with one of the first characters.
func (r span) until() []byte {
	if r.end != "" {
		return []byte(r.end)
	}
	end := []byte(r.from)
	end[len(end)-1]++
	return end
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
