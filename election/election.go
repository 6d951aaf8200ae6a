// Package election elects one leader among several processes, over any [locker.Locker].
//
//	err := election.Run(ctx, locks, "billing", func(ctx context.Context, term *locker.Lock) error {
//		return bill(ctx, term.Token()) // ctx ends when the term does
//	})
//
// Every process calls [Run] with the same name. One of them leads: its function is called. The
// others wait. If the leader's process dies, another one leads when its lease has ended, within 30
// seconds on most backends ([locker.WithTTL]). If its function returns, another one leads at once. To ask
// who leads, make a [Candidate].
//
// # Terms
//
// A term is a lock. Its token is greater than those of all earlier terms, and goes with every
// write to a storage that has a guard (package fencing). That is what stops a leader who was
// paused and does not know yet that somebody else leads: no election can stop it, as the
// Kubernetes client says of its own ("does not guarantee that only one client is acting as a
// leader (a.k.a. fencing)").
//
// A term is lost by this machine's clock when its lease is not renewed, before the store
// gives it to anybody else; how a backend's lock can be lost, and what it promises, is true of
// its terms as well ([locker.Guarantees]).
//
// # Losing and resigning
//
// A function leads for as long as it runs, as with Curator's LeaderSelector. When it
// returns, the candidate has resigned. When the term is lost, the context of the function
// ends; until it has returned, the candidate does not stand again, so one process never runs
// two of them.
//
// Then the candidate stands again, behind those who wait already. Between two terms, or
// while the store is away, it pauses: for 100 ms at first, for five seconds at most, and at
// random for down to half of that, so that many candidates do not ask at once.
package election

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/contract"
)

const (
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)

// Run stands for election under name, calls lead for each term, and stands again when the
// term is over, until ctx ends. It always returns an error:
//
//   - If lead returns an error during its term, the candidate resigns, and Run returns that error. If lead
//     returns nil, the candidate resigns, and stands again. An error that comes after the term was lost is
//     ignored, and so is a [fencing.ErrStale]: somebody else leads then.
//   - If ctx has ended, Run returns the error of lead, or else the cause of ctx, and why the last attempt failed. The lock was given
//     back before; if the store did not confirm that, the error says so.
//   - If the Locker returns an error and standing again cannot help, Run returns it: an option that is
//     refused, [locker.ErrMismatch], or [locker.ErrClosed].
//
// A guard ([locker.WithGuard]) that refuses the term ends no candidacy: [Candidate.Observe] tells why
// the term did not begin.
//
// The context of lead has ctx's values. It ends with ctx, or when the term is lost; its cause
// says which.
//
// The options go to the lock. [locker.WithTTL] is how long it takes until a leader that
// has died is replaced, and [locker.WithHolder] is what others see. WithShared and WithSlots
// are refused, for there would be several leaders, and so is WithMinHold: the store would
// show a leader who has resigned.
func Run(ctx context.Context, l locker.Locker, name string, lead func(ctx context.Context, term *locker.Lock) error, opts ...locker.Option) error {
	c, err := New(l, name, opts...)
	if err != nil {
		return err
	}
	return c.Run(ctx, lead)
}

// Candidate stands for election, and knows who leads. Its methods may be called from any
// goroutine.
type Candidate struct {
	locks  locker.Locker
	name   string
	holder string
	opts   []locker.Option
	term   atomic.Pointer[term] // the latest, or nil

	mu   sync.Mutex
	last *change
}

// term is a term of this Candidate's. ends tells of its end, once.
type term struct {
	*locker.Lock
	ends func()
}

// New returns a Candidate, which asks nobody until Run is called. One that never stands can
// observe the others.
func New(l locker.Locker, name string, opts ...locker.Option) (*Candidate, error) {
	s, err := locker.ParseOptions(contract.Key{}, l, name, opts)
	switch {
	case err != nil:
	case s.Shared || s.Slots > 0:
		err = errSeveral
	case s.MinHold > 0:
		err = errors.New("WithMinHold would show a leader who has resigned")
	}
	if err != nil {
		return nil, fmt.Errorf("election: %q: %w", name, err)
	}
	first := &change{followed: make(chan struct{})}
	return &Candidate{locks: l, name: name, holder: *s.Holder, opts: opts, last: first}, nil
}

// Run is the function [Run], for a service that asks the Candidate while it runs. There is
// one Run at a time. A lead that has nothing to do waits for the end of its context.
func (c *Candidate) Run(ctx context.Context, lead func(ctx context.Context, term *locker.Lock) error) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		began := time.Now()
		again, err := c.stand(ctx, lead)
		if !again {
			return err
		}
		if time.Since(began) > longestPause {
			pause = firstPause
		}
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return c.ended(ctx, err)
		}
	}
}

// ended is the error of a Run whose context has ended, with that of its last attempt, if there is one.
func (c *Candidate) ended(ctx context.Context, last error) error {
	err := fmt.Errorf("election: %q: %w", c.name, context.Cause(ctx))
	if last != nil {
		err = fmt.Errorf("%w; %w", err, last)
	}
	return err
}

// stand stands once, and leads until the term is over. It reports whether to stand again.
func (c *Candidate) stand(ctx context.Context, lead func(ctx context.Context, term *locker.Lock) error) (again bool, err error) {
	t, failed := (*term)(nil), false
	err = locker.Do(ctx, c.locks, c.name, func(ctx context.Context, lock *locker.Lock) error {
		if failed = lock.SharedToken() != 0 || lock.Slot() >= 0; failed { // by a default that New has not seen
			return fmt.Errorf("election: %q: %w", c.name, errSeveral)
		}
		t = c.begin(lock)
		err := lead(ctx, lock)
		failed = err != nil && lock.Err() == nil && !errors.Is(err, fencing.ErrStale)
		return err
	}, c.opts...)
	led := t != nil
	granted := led || notBegun(err)
	if led {
		t.ends() // before the next one begins
	}
	switch {
	case failed:
		return false, err
	case ctx.Err() != nil && (errors.Is(err, locker.ErrOutcomeUnknown) || granted && err != nil && !errors.Is(err, locker.ErrLost)):
		return false, c.ended(ctx, err)
	case led:
		return true, nil
	case granted: // the claim of WithGuard has failed, or the lock was lost
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tell(nobody, err)
		return true, err
	}
	for _, passes := range []error{locker.ErrUnavailable, locker.ErrOutcomeUnknown, locker.ErrTaken} {
		again = again || errors.Is(err, passes)
	}
	return again && !errors.Is(err, locker.ErrClosed), err
}

// errSeveral says why a lock that several can hold is no term.
var errSeveral = errors.New("one candidate leads, and WithShared and WithSlots let several hold the lock")

// notBegun reports whether err, of a Do whose function was not called, says that the lock was
// granted all the same: its resources could not be claimed, or it was lost before that. An
// ErrLost of Lock's own is that of a context, and is wrapped.
func notBegun(err error) bool {
	_, lost := err.(*locker.LostError) //nolint:errorlint // as above
	return lost || errors.As(err, new(*contract.Unclaimed))
}

// begin tells of a term now, and of its end when it comes. That depends on the lock alone,
// and on no event that could come late.
func (c *Candidate) begin(lock *locker.Lock) *term {
	t := &term{lock, sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tell(nobody, lock.Err())
	})}
	c.mu.Lock()
	defer c.mu.Unlock() // whoever sees the term, and its end, tells of it later
	c.term.Store(t)
	c.tell(Leader{lock.Token(), c.holder}, nil)
	context.AfterFunc(lock.Context(), t.ends)
	return t
}

// IsLeader reports whether the Candidate leads. It reads this machine's clock, and is right
// also when the machine has just been woken and no timer has fired yet; like
// [locker.Lock.Err], it says only how it was when you asked.
func (c *Candidate) IsLeader() bool { return c.Term() != nil }

// Term returns the term under way if the Candidate leads, else nil.
func (c *Candidate) Term() *locker.Lock {
	t := c.term.Load()
	switch {
	case t == nil:
		return nil
	case t.Err() != nil:
		t.ends()
		return nil
	}
	return t.Lock
}
