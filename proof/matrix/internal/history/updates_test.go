package history

import (
	"testing"
	"time"

	"github.com/lockstile/locker/fencing"
)

// Goal: the storage with the guard takes what the guard accepts, and the other one takes
// everything. Method: A and B read the same, B writes first, and then A writes with its old token.
func TestOnlyTheStorageWithAGuardRefusesAStaleSet(t *testing.T) {
	for _, c := range []struct {
		name            string
		tokenless       bool
		tokenOfB        fencing.Token
		guarded, wanted []int // that are there, and that were confirmed
	}{
		{"tokens in order", false, 2, []int{2}, []int{2}},
		{"one token for all", false, 1, []int{1}, []int{2, 1}},
		{"no token", true, 2, nil, nil},
	} {
		h := &History{Tokenless: c.tokenless}
		h.Granted(Span{Worker: "A", Name: "n", Token: 1, From: 1, Until: 2})
		h.Granted(Span{Worker: "B", Name: "n", Token: c.tokenOfB, From: 3, Until: 4})
		read := h.Read()
		ofA, ofB := read.With(1), read.With(2)
		h.Put(Write{Worker: "B", Name: "n", Token: c.tokenOfB, Value: 2, Adds: true, At: 5}, &ofB)
		h.Put(Write{Worker: "A", Name: "n", Token: 1, Value: 1, Adds: true, At: 6}, &ofA)
		h.Put(Write{Worker: "B", Name: "n", Token: c.tokenOfB, Value: 7, At: 7}, nil) // no set is written
		h.NoteFinal(h.Read(), 0)
		u := h.Updates
		if !same(u.Final.Unguarded, []int{1}) || !same(u.Confirmed.Unguarded, []int{2, 1}) {
			t.Errorf("%s: without a guard there is %v of %v", c.name, u.Final.Unguarded, u.Confirmed.Unguarded)
		}
		if !same(u.Final.Guarded, c.guarded) || !same(u.Confirmed.Guarded, c.wanted) {
			t.Errorf("%s: with a guard there is %v of %v, not %v of %v", c.name, u.Final.Guarded, u.Confirmed.Guarded, c.guarded, c.wanted)
		}
	}
}

func same(a, b []int) bool { return len(lostOf(a, b))+len(lostOf(b, a)) == 0 && len(a) == len(b) }

// Goal: nobody reads the set between the check of a write and the write. Method: the check
// cannot end, and all the while the storage cannot be read.
func TestACheckAndItsWriteAreOneStep(t *testing.T) {
	h, done := new(History), make(chan struct{})
	h.mu.Lock()
	go func() { h.Put(Write{Worker: "A", Name: "n", Token: 1, Value: 1}, &Sets{}); close(done) }()
	for end := time.Now().Add(15 * time.Second); h.sets.mu.TryLock(); time.Sleep(time.Millisecond) {
		h.sets.mu.Unlock()
		if time.Now().After(end) {
			t.Fatal("the storage can be read while a write is checked")
		}
	}
	h.mu.Unlock()
	<-done
}

// Goal: two who have read the same write different sets.
func TestASetThatWasReadIsNotChangedByItsReaders(t *testing.T) {
	read := Sets{append(make([]int, 0, 9), 1), append(make([]int, 0, 9), 1)}
	a, b := read.With(2), read.With(3)
	if !same(a.Unguarded, []int{1, 2}) || !same(a.Guarded, []int{1, 2}) || !same(b.Unguarded, []int{1, 3}) || !same(b.Guarded, []int{1, 3}) {
		t.Errorf("one writes %v, the other %v", a, b)
	}
}
