package etcd

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// The name can be read from a key of its, so no two names share one, and no name's keys are
// those of another or the mark of a clean-up.
func FuzzNameHasKeysOfItsOwn(f *testing.F) {
	for _, name := range []string{"a", "a/b", "%", "%2F", "%mark", "%mark/x", "/", "//", "a%252Fb", "~of3-1-x"} {
		f.Add(name, "app/", name+"/")
		f.Add(name, "", "lock")
	}
	f.Fuzz(func(t *testing.T, name, prefix, other string) {
		if locker.CheckName(name) != nil || locker.CheckName(other) != nil {
			t.Skip("no lock has such a name")
		}
		s := &store{prefix: prefix}
		for _, last := range []string{"1f-a", sharedDir + "1f-a", slotDir + "3-0-1f-a"} {
			key := s.folder(name) + last
			if back, ok := s.nameOf(key); !ok || back != name {
				t.Errorf("%q, below %q, has the key %q, which is read as one of %q, %t", name, prefix, key, back, ok)
			}
			if strings.HasPrefix(key, prefix+marks) {
				t.Errorf("%q has the key %q, which is a mark", name, key)
			}
			if other != name && strings.HasPrefix(key, s.folder(other)) {
				t.Errorf("the key %q of %q is one of %q", key, name, other)
			}
		}
	})
}

// A key says what it is there for. Of anybody's key it says nothing that nobody can have.
func FuzzLastPartOfAnyKey(f *testing.F) {
	f.Add("~of3-1-1f-a", 3, 1)
	f.Add("~shared-1f-a", 1, 0)
	f.Add("~of3-3-1f-a", 1, 0)
	f.Add("~of99999999999999999999-1-x", 1024, 1023)
	f.Add("~of-1-1-x", 5, 4)
	f.Add("~of3-w-1f-a", 2, 0)
	f.Fuzz(func(t *testing.T, last string, n, slot int) {
		r := roleOf([]byte("x/" + last))
		if r.slot < -1 || r.slots < 0 || r.kind != locker.KindSlots && (r.slot != -1 || r.slots != 0) || r.kind == locker.KindSlots && r.slots > 0 && r.slot >= r.slots {
			t.Errorf("%q: %+v", last, r)
		}
		if n < 1 || n > locker.MaxSlots || slot < 0 || slot >= n {
			return
		}
		a := &attempt{folder: "x/", id: "1f-a", req: &driver.Request{Kind: locker.KindSlots, Slots: n}}
		if r := roleOf([]byte(a.slotKey(slot))); r != (role{locker.KindSlots, n, slot}) {
			t.Errorf("slot %d of %d has the key %q, which is read as %+v", slot, n, a.slotKey(slot), r)
		}
		if r := roleOf([]byte(a.waiting().from + a.id)); r != (role{locker.KindSlots, n, -1}) {
			t.Errorf("who waits for one of %d slots is read as %+v", n, r)
		}
	})
}

// Whatever keys there are below a name, those who have the lock are some of them, all others
// wait, and of holders that are not beside each other there is one.
func FuzzQueueOfAnyKeys(f *testing.F) {
	f.Add("1f-a 1f-b ~shared-1f-c ~of3-1-1f-d lock", int64(7), int64(-1))
	f.Add("~shared-1-a ~shared-2-b x", int64(1), int64(3))
	f.Add("~of3-w-1-a ~of3-0-2-b", int64(1<<54), int64(1))
	f.Fuzz(func(t *testing.T, text string, revision, step int64) {
		s := &store{}
		queues := make(map[string]*queue)
		n, seen := 0, make(map[int64]bool)
		for _, last := range strings.Fields(text) {
			if strings.Contains(last, "/") || seen[revision] {
				continue
			}
			seen[revision] = true
			n++
			s.note(queues, &mvccpb.KeyValue{Key: []byte("x/" + last), Value: []byte("me"), CreateRevision: revision})
			revision += step
		}
		q := queues["x"]
		if q == nil {
			return
		}
		holders := q.holders()
		info, err := s.info(t.Context(), "x", q, make(map[int64]time.Duration))
		alone := slices.ContainsFunc(holders, func(kv *mvccpb.KeyValue) bool { return roleOf(kv.Key).kind == locker.KindExclusive })
		late := slices.ContainsFunc(holders, func(kv *mvccpb.KeyValue) bool {
			return q.exclusive != nil && kv.CreateRevision > q.exclusive.CreateRevision
		})
		switch {
		case late || q.keys != n || len(holders) > n || alone && len(holders) != 1 || q.exclusive != nil && len(holders) == 0:
			t.Errorf("%q: %d keys of %d, held by %v", text, q.keys, n, holders)
		case err != nil:
		case info.Waiters != n-len(holders) || info.Held != (len(holders) > 0) || alone && info.Token == 0:
			t.Errorf("%q: %+v", text, info)
		}
	})
}

// A revision of the store makes no token, or tokens that are greater than those of all before.
func FuzzTokensOfAnyRevision(f *testing.F) {
	f.Add(int64(1))
	f.Add(int64(0))
	f.Add(int64(1<<54 - 1))
	f.Add(int64(1 << 54))
	f.Fuzz(func(t *testing.T, revision int64) {
		token, err := firstToken(revision)
		before, none := firstToken(revision - 1)
		if (err == nil) != (revision > 0 && revision < 1<<54) || err == nil && (token == 0 || none == nil && token < before+tokens) {
			t.Errorf("revision %d: %d, %v; before: %d, %v", revision, token, err, before, none)
		}
	})
}
