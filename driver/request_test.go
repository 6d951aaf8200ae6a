package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/contract"
)

// Only an exclusive lock is passed on in memory, with a number for each who gets it.
func TestOnlyAnExclusiveLockHasSeveralTokens(t *testing.T) {
	for kind, want := range map[locker.Kind]uint32{locker.KindExclusive: 64, locker.KindShared: 1, locker.KindSlots: 1} {
		if got := (&Request{Kind: kind}).Tokens(64); got != want {
			t.Errorf("of 64 numbers a lock of the kind %q has %d, want %d", kind, got, want)
		}
	}
}

func TestDriftAndDeadline(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		locker.MinTTL:     3 * time.Millisecond,
		locker.DefaultTTL: 302 * time.Millisecond,
		locker.MaxTTL:     864*time.Second + 2*time.Millisecond,
	} {
		if got := Drift(ttl); got != want {
			t.Errorf("Drift(%v) = %v, want %v", ttl, got, want)
		}
		r := Request{TTL: ttl}
		if got := r.Deadline(1000); got != Instant(1000).Add(ttl-want) {
			t.Errorf("Deadline of %v from 1000: %v", ttl, got)
		}
	}
}

// heard is an observer that keeps the events.
type heard []locker.Event

func (h *heard) Tell(_ func() (done func()), event any) { *h = append(*h, event.(locker.Event)) }

// A program that follows calls tells them apart by their numbers.
func TestEachObservedCallHasANumberOfItsOwn(t *testing.T) {
	var events heard
	for range 2 {
		holder := "h"
		req := newRequest("a", contract.Settings{Holder: &holder, Shared: true, Observers: []contract.Observer{&events}})
		req.tell(nil, locker.Event{Slot: 3})
		req.tell(nil, locker.Event{Slot: 3})
	}
	for _, e := range events {
		if e.Name != "a" || e.Kind != locker.KindShared || e.Slot != 3 || e.Time.IsZero() || e.Call == 0 {
			t.Errorf("told of %+v", e)
		}
	}
	if len(events) != 4 || events[0].Call != events[1].Call || events[0].Call == events[2].Call {
		t.Errorf("two calls with two events each: %+v", events)
	}
}

// A guard that nobody calls refuses no stale write.
func TestOnlyDoTakesAGuard(t *testing.T) {
	b, guard := newBackend(), locker.WithGuard(new(fencing.Memory), "r")
	for name, call := range map[string]func() (any, error){
		"Lock":       func() (any, error) { return b.l.Lock(t.Context(), "a", guard) },
		"TryLock":    func() (any, error) { return b.l.TryLock(t.Context(), "a", guard) },
		"NewRequest": func() (any, error) { return NewRequest(b.l, "a", guard) },
	} {
		if _, err := call(); err == nil || !strings.Contains(err.Error(), `lock "a": WithGuard works with Do`) || b.token != 0 {
			t.Errorf("%s: %v; the last token is %d", name, err, b.token)
		}
	}
}

func TestRequestOfAnAdapterHasTheDefaultsOfItsLocker(t *testing.T) {
	l := locker.With(newBackend().l, locker.WithTTL(time.Minute), locker.WithWait(time.Second), locker.WithHolder("h"))
	req, err := NewRequest(l, "a", locker.WithSlots(3), locker.WithoutRenewal())
	want := Request{Name: "a", TTL: time.Minute, Wait: time.Second, Holder: "h", Kind: locker.KindSlots, Slots: 3}
	if err != nil || *req != want {
		t.Errorf("%+v, %v, want %+v", req, err, want)
	}
	if _, err := NewRequest(l, "", locker.WithTTL(time.Second)); err == nil {
		t.Error("a request for no name")
	}
}

func TestUnavailableKeepsWhatIsKnown(t *testing.T) {
	for _, class := range []error{locker.ErrTaken, locker.ErrMismatch, locker.ErrOutcomeUnknown, locker.ErrClosed, locker.ErrUnavailable} {
		if err := fmt.Errorf("it says: %w", class); unavailable(err) != err {
			t.Errorf("%v became %v", err, unavailable(err))
		}
	}
	down := errors.New("down")
	if err := unavailable(down); !errors.Is(err, locker.ErrUnavailable) || !errors.Is(err, down) {
		t.Errorf("%v", err)
	}
}

// A retry loop of a user's must not ask a store again that declines to serve.
func TestRefusalIsOneForUsers(t *testing.T) {
	down := errors.New("NOPERM")
	for name, c := range map[string]struct {
		err     error
		refused bool
	}{
		"a refusal":             {Refused(down), true},
		"what does not fit":     {Unfit(down), true},
		"what passes by itself": {down, false},
	} {
		b := newBackend()
		b.onAcquire = func(context.Context) error { return c.err }
		_, err := b.l.TryLock(t.Context(), "a")
		if errors.Is(err, locker.ErrRefused) != c.refused || !errors.Is(err, locker.ErrUnavailable) || !errors.Is(err, down) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
