package driver

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/contract"
)

// Request is what a call of Lock or TryLock asks for.
type Request struct {
	Name        string
	TTL         time.Duration
	Wait        time.Duration // of Lock; 0: until its context ends
	MaxHold     time.Duration // 0: no limit
	MinHold     time.Duration
	MinValidity time.Duration
	Holder      string
	Slots       int // if Kind is KindSlots, else 0
	Kind        locker.Kind
	Renew       bool // renewed by itself until it is unlocked or lost

	session interface{ leave() } // that the attempt has joined, or nil
}

// leave has the session that the attempt has joined count it no more.
func (r *Request) leave() {
	if r.session != nil {
		r.session.leave()
	}
	r.session = nil
}

// NewRequest returns what a call of l's Lock with these options asks for, defaults of
// [locker.With] included. It is for adapters, and for locks that are not on this package, which
// then pass nil for l. After an error nothing has happened in the store.
func NewRequest(l locker.Locker, name string, opts ...locker.Option) (*Request, error) {
	s, err := locker.ParseOptions(contract.Key{}, l, name, opts)
	switch {
	case err != nil:
		return nil, err
	case s.Guard != nil:
		return nil, errGuard(name)
	}
	return &newRequest(name, s).Request, nil
}

func errGuard(name string) error {
	return fmt.Errorf("locker: lock %q: WithGuard works with Do; after Lock or TryLock call the guard's Check yourself", name)
}

// Tokens is how many of so many numbers a grant of the request has: a shared lock and a slot,
// which are not passed on in memory, have one.
func (r *Request) Tokens(most uint32) uint32 {
	if r.Kind == locker.KindExclusive {
		return most
	}
	return 1
}

// Deadline returns the end of validity of a lease whose request was sent after since.
func (r *Request) Deadline(since Instant) Instant { return endOf(since, r.TTL) }

// endOf is the end of the validity of a TTL that counts from since.
func endOf(since Instant, ttl time.Duration) Instant { return since.Add(ttl - Drift(ttl)) }

// Drift is how much earlier than its store a holder stops believing in a lease
// of ttl: a hundredth of it for clocks that run at different rates, plus 2 ms
// for the resolution of the store's clock. The figures are those of the Redlock page.
func Drift(ttl time.Duration) time.Duration { return contract.Drift(ttl) }

// Waiting returns the context in which a Lock that was asked for in ctx may wait: it ends
// with ctx, or when the time of [locker.WithWait] is over. Call the function when the wait is.
func (r *Request) Waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	return contract.Waiting(ctx, r.Wait)
}

// request is a Request, and what no Store needs.
type request struct {
	Request
	alone     bool // not passed on from goroutine to goroutine in memory
	observers []contract.Observer
	call      uint64 // its number, if it is observed
}

func newRequest(name string, s contract.Settings) *request {
	r := &request{alone: s.Alone, observers: s.Observers}
	r.Request = Request{
		Name: name, TTL: s.TTL, Wait: s.Wait, MaxHold: s.MaxHold, MinHold: s.MinHold,
		Holder: *s.Holder, Slots: s.Slots, Renew: !s.NoRenewal,
	}
	if s.MinValidity != nil {
		r.MinValidity = *s.MinValidity
	}
	switch {
	case s.Shared:
		r.Kind = locker.KindShared
	case s.Slots > 0:
		r.Kind = locker.KindSlots
	}
	if r.observed() {
		r.call = observedCalls.Add(1)
	}
	return r
}

// observedCalls numbers the calls that are observed.
var observedCalls atomic.Uint64

// observed reports whether anybody wants to hear of the request's events.
func (r *request) observed() bool { return len(r.observers) > 0 }

// tell has the observers of the request hear of e, soon. It calls nobody. For each observer that
// will hear of e it calls begin, and what that returns when the observer has.
func (r *request) tell(begin func() (done func()), e locker.Event) {
	e.Name, e.Kind, e.Call, e.Time = r.Name, r.Kind, r.call, time.Now()
	for _, o := range r.observers {
		o.Tell(begin, e)
	}
}

// unavailable makes err a [locker.ErrUnavailable], unless it says already what its caller knows
// of the store.
func unavailable(err error) error {
	if contract.IsAny(err, locker.ErrUnavailable, locker.ErrTaken, locker.ErrMismatch, locker.ErrOutcomeUnknown, locker.ErrClosed) {
		return err
	}
	return fmt.Errorf("%w: %w", locker.ErrUnavailable, err)
}
