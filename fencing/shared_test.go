package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/guardtest"
)

const walks = 3000

func TestMemoryKeepsTheContractOfGuards(t *testing.T) {
	guardtest.Run(t, new(fencing.Memory))
	seed := rand.Uint64()
	if err := guardtest.Contract(t.Context(), new(fencing.Memory), walks, rand.New(rand.NewPCG(seed, 0))); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
}

// specimen is a guard with other rules than the two marks of [fencing.SharedGuard].
type specimen struct {
	mu    sync.Mutex
	marks map[string]map[bool]uint64 // of writers and (true) of readers
	rule  func(marks map[bool]uint64, reads bool, n uint64) (accepted bool)
}

func (s *specimen) Check(_ context.Context, resource string, token fencing.Token) error {
	return s.ask(resource, false, uint64(token))
}

func (s *specimen) CheckShared(_ context.Context, resource string, token fencing.SharedToken) error {
	return s.ask(resource, true, uint64(token))
}

func (s *specimen) ask(resource string, reads bool, n uint64) error {
	if n == 0 {
		return fencing.ErrZeroToken
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.marks == nil {
		s.marks = make(map[string]map[bool]uint64)
	}
	if s.marks[resource] == nil {
		s.marks[resource] = make(map[bool]uint64)
	}
	if !s.rule(s.marks[resource], reads, n) {
		return fencing.ErrStale
	}
	return nil
}

func raise(marks map[bool]uint64, reads bool, n uint64) bool {
	marks[reads] = max(marks[reads], n)
	return true
}

// Goal: the contract tells two marks from all other rules that one might think of, and the
// walks, which know nothing of marks, find each rule that is not sound.
func TestContractFindsEachOtherRuleForReadersAndWriters(t *testing.T) {
	for name, c := range map[string]struct {
		sound bool
		rule  func(marks map[bool]uint64, reads bool, n uint64) bool
	}{
		"two marks": {true, func(marks map[bool]uint64, reads bool, n uint64) bool {
			return n >= marks[false] && (reads || n >= marks[true]) && raise(marks, reads, n)
		}},
		"one mark": {false, func(marks map[bool]uint64, _ bool, n uint64) bool {
			return n >= marks[false] && raise(marks, false, n)
		}},
		"readers raise nothing": {false, func(marks map[bool]uint64, reads bool, n uint64) bool {
			return n >= marks[false] && (reads || raise(marks, false, n))
		}},
		"writers do not look at readers": {false, func(marks map[bool]uint64, reads bool, n uint64) bool {
			return n >= marks[false] && raise(marks, reads, n)
		}},
		"readers are not looked at": {false, func(marks map[bool]uint64, reads bool, n uint64) bool {
			return (reads || n >= max(marks[false], marks[true])) && raise(marks, reads, n)
		}},
		"the readers' mark goes back": {false, func(marks map[bool]uint64, reads bool, n uint64) bool {
			if n < marks[false] || !reads && n < marks[true] {
				return false
			}
			marks[reads] = n
			return true
		}},
		"what is refused leaves its mark": {true, func(marks map[bool]uint64, reads bool, n uint64) bool {
			accepted := n >= marks[false] && (reads || n >= marks[true])
			return raise(marks, reads, n) && accepted
		}},
		"all is accepted": {false, func(map[bool]uint64, bool, uint64) bool { return true }},
		"the same writer only once": {false, func(marks map[bool]uint64, reads bool, n uint64) bool {
			return (reads && n >= marks[false] || n > max(marks[false], marks[true])) && raise(marks, reads, n)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			g, rng, most := &specimen{rule: c.rule}, rand.New(rand.NewPCG(1, 2)), 10*walks
			if c.sound {
				most = walks
			}
			for i := 0; i < most && err == nil; i++ {
				err = guardtest.Walk(t.Context(), g, fmt.Sprint(i), rng)
			}
			if (err == nil) != c.sound {
				t.Errorf("the walks: %v", err)
			}
			t.Log(err)
			if err := guardtest.Contract(t.Context(), g, 0, rng); (err == nil) != (name == "two marks") {
				t.Errorf("the steps, and questions at once: %v", err)
			}
		})
	}
}

func TestReadRunsOnlyWithANumberThatIsNotStale(t *testing.T) {
	var m fencing.Memory
	read := ""
	note := func(s string) func() error {
		return func() error { read += s; return nil }
	}
	if err := m.Read(t.Context(), "r", 3, note("a")); err != nil {
		t.Fatal(err)
	}
	if err := m.Write(t.Context(), "r", 2, note("x")); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a write between two reads: %v", err)
	}
	if err := m.Read(t.Context(), "r", 2, note("b")); err != nil {
		t.Errorf("an earlier reader: %v", err)
	}
	if err := m.Write(t.Context(), "r", 4, note("c")); err != nil {
		t.Fatal(err)
	}
	if err := m.Read(t.Context(), "r", 3, note("x")); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a read after a later write: %v", err)
	}
	if err := m.Read(t.Context(), "r", 0, note("x")); !errors.Is(err, fencing.ErrZeroToken) {
		t.Errorf("a read with zero: %v", err)
	}
	disk := errors.New("disk full")
	if err := m.Read(t.Context(), "r", 9, func() error { return disk }); err != disk {
		t.Errorf("a read that fails: %v", err)
	}
	if err := m.Check(t.Context(), "r", 8); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("an earlier write after a read that failed: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Read(ctx, "r", 20, note("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is over: %v", err)
	}
	if err := m.Check(t.Context(), "r", 10); err != nil {
		t.Errorf("the number of a read that did not happen was remembered: %v", err)
	}
	if read != "abc" {
		t.Errorf("what ran is %q", read)
	}
}

func TestStaleErrorOfAReaderSpeaksOfAReader(t *testing.T) {
	var m fencing.Memory
	_ = m.Check(t.Context(), "orders/7", 9)
	err := m.CheckShared(t.Context(), "orders/7", 3)
	const want = `stale fencing token: "orders/7" has seen token 9, this reader has 3: the lock has had another holder since`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
