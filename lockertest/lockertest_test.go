package lockertest_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/lockertest"
)

func TestConformance(t *testing.T) {
	store := lockertest.New()
	conformance.Run(t, conformance.Harness{
		New: func(t testing.TB) conformance.Process {
			l := store.Another()
			t.Cleanup(func() { _ = l.Close() })
			return conformance.Process{Locker: l, Network: l.Link()}
		},
	})
}

func TestListShowsWhatIsHeldBelowThePrefix(t *testing.T) {
	locks := lockertest.New()
	var want []locker.Info
	for _, name := range []string{"jobs/b", "jobs/a", "other", "jobs/free"} {
		lock, err := locks.TryLock(t.Context(), name, locker.WithHolder("host 1"))
		if err != nil {
			t.Fatal(err)
		}
		if name == "jobs/free" {
			if err := lock.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if name == "jobs/a" || name == "jobs/b" {
			holder := locker.Holder{Text: "host 1", Number: locker.Number(lock.Token()), Slot: -1}
			want = append(want, locker.Info{Name: name, Held: true, Holder: "host 1", Token: lock.Token(), Holders: []locker.Holder{holder}})
		}
	}
	slices.Reverse(want)
	got, err := locks.Another().List(t.Context(), "jobs/")
	for i := range got {
		got[i].TimeLeft, got[i].Holders[0].TimeLeft = 0, 0
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("listed %+v, %v, want %+v", got, err, want)
	}
}

func TestCallsOfAStoreThatRefusesAreUnavailableAndCounted(t *testing.T) {
	locks := lockertest.New()
	if broken, err := locks.Break(t.Context(), ""); broken || err == nil {
		t.Errorf("Break of no name: %v, %v", broken, err)
	}
	refusal := errors.New("no permission")
	locks.Link().Refuse(refusal)
	for what, call := range map[string]func() error{
		"List":    func() error { _, err := locks.List(t.Context(), "jobs/"); return err },
		"Inspect": func() error { _, err := locks.Inspect(t.Context(), "a"); return err },
		"Break":   func() error { _, err := locks.Break(t.Context(), "a"); return err },
	} {
		before := locks.Link().Requests()
		if err := call(); !errors.Is(err, locker.ErrUnavailable) || !errors.Is(err, refusal) {
			t.Errorf("%s of a store that refuses: %v", what, err)
		}
		if n := locks.Link().Requests() - before; n != 1 {
			t.Errorf("%s sent %d requests", what, n)
		}
	}
}

func TestTakeIsTakenForEveryKindOfLock(t *testing.T) {
	l := lockertest.New()
	l.Take("a")
	for what, opt := range map[string]locker.Option{"all of it": locker.WithTTL(time.Second), "a share": locker.WithShared(), "a slot": locker.WithSlots(3)} {
		if _, err := l.TryLock(t.Context(), "a", opt); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("TryLock for %s of a lock that Take has: %v", what, err)
		}
	}
	l.Free("a")
	lock, err := l.TryLock(t.Context(), "a", locker.WithSlots(3))
	if err != nil {
		t.Fatal(err)
	}
	_ = lock.Unlock(t.Context())
}
