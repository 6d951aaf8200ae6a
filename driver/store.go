// Package driver is what all backends share: how the goroutines of one process
// wait for a name and share its lease, how an attempt is made and cleared away, how
// a lock is renewed, ends and is given back, and what is said of each error.
//
// A backend implements [Store], which asks its store and knows how to wait there,
// and returns the [Locker] that [New] makes of it.
//
// # A lease and its turns
//
// What a store grants is a lease of the process. A goroutine that unlocks passes it
// on to the next one in line, without a request, if that one wants the same (TTL,
// renewal, holder's text) and the lease has validity enough left for it. So each
// goroutine has a turn with the lease. The store grants a range of tokens; each
// turn has the next of them. Other processes wait no longer than 25 ms, counted
// from the arrival of the grant, and the turn under way then.
//
// A turn counts as granted when its lease was. One on a lease that is over, which
// its process does not know yet, has a token below those of the lease's successor.
package driver

import (
	"context"
	"errors"
	"time"

	"github.com/lockstile/locker"
)

// Store is what a backend implements. An H is one attempt at a name, and the hold
// that comes of it; it is a pointer in most backends. A process has one attempt at a
// name at a time. The Locker calls the methods for one H one after another, but for
// Renew, which may be under way at any time before End. It holds no mutex meanwhile.
//
// A Store that is a [locker.Inspector], [locker.Breaker] or [locker.Lister] as well makes
// the Locker one; else these return [errors.ErrUnsupported].
type Store[H any] interface {
	// Features says what this store promises and can do.
	Features() Features

	// Begin returns a new attempt, or an error that says what this store cannot
	// do. It sends nothing.
	Begin(req *locker.Request) (H, error)

	// Acquire asks for the lock. With a nil wait it asks once, and returns the
	// zero Grant if somebody has it or waits for it. Otherwise it calls wait when the
	// store has said so, and goes on until it is granted, in the context that wait
	// returns: that one ends with ctx and with the Locker.
	//
	// It returns soon after its context ends, with any error. Where ctx has no end,
	// it bounds each request by itself: silence is an error, too. Every error means
	// that nothing was granted as far as we know, and is taken for an
	// [locker.ErrUnavailable] unless it says what it is. After one that is not
	// [Refused], and before Withdraw, Acquire may be called again for the same H, after
	// 50 ms and more each time: whoever was told "taken" waits through the silence of
	// a store. A request for the same H may so come twice. It gets the same grant, and
	// either starts the lease anew or leaves Since as it was.
	Acquire(ctx context.Context, h H, wait Wait) (Grant, error)

	// Renew starts another TTL for each, many in one round trip: an error for
	// each, in order. A [locker.LostError] with a Reason says that the store has it no
	// more; any other error is a reason to try again while validity lasts. Renew returns
	// when ctx ends. It is called from several goroutines at once if it is slow.
	Renew(ctx context.Context, hs []H) []error

	// Release gives the lock back if it is still h's: compared and removed in one
	// atomic step. A [locker.LostError] says that it no longer was. After any
	// other error Withdraw follows. For as long as keep nobody else may be granted
	// it yet; that is 0 where Features.Keeps is false.
	Release(ctx context.Context, h H, keep time.Duration) error

	// Withdraw removes whatever h has left in the store: a lock, a place in a
	// queue. A request of h's that is still under way must find itself refused. It
	// is called again until it returns nil, for a bounded time.
	Withdraw(ctx context.Context, h H) error

	// Left reports whether h has, or may come to have, anything to withdraw: not before
	// Acquire, after a plain "taken", or after a Release that worked. A true too many
	// costs a request, a false too many leaves a lock behind.
	Left(h H) bool

	// End is the last call for h, when nothing of it is left or it was given up. It
	// sends nothing itself. Where what is Left would last as long as a session that others
	// keep, a Store goes on to remove it in the background ([Locker.Go]).
	End(h H)
}

// Wait is called with the knowledge that the lock is taken, any number of times,
// and returns the context to wait in, always the same.
type Wait func() context.Context

// Features is what a Store can do. No request wants anything of the last three yet.
type Features struct {
	Guarantees locker.Guarantees
	Shared     bool // Acquire grants a lock to many who want to share it
	Slots      bool // Acquire grants one of several slots
	Keeps      bool // Release honours keep
}

// Grant is what a Store was granted.
type Grant struct {
	// First is the first of Count tokens that are this grant's alone: greater than
	// all that were granted before, and no later grant has one that is not greater
	// than all of them. When they are used up the lease goes back to the store: 64 is
	// plenty for the 25 ms that goroutines share it. With 1 it is never passed on.
	First uint64
	Count uint32

	// Slot is which of several was granted, from 0, where the request wants one.
	Slot int

	// Since was read on the Locker's clock ([Locker.Now]) before the request that
	// was granted was sent for the first time. Validity counts from here, for the
	// store may have started the lease at any moment after it.
	Since locker.Instant

	// Lasting says that there is no lease: the store keeps the lock for as long as
	// this process lives. Renewals only look whether it is still there.
	Lasting bool

	// Session is what the lock hangs on, or nil if it has a lease of its own. It
	// lasts no longer than the session, and renewals only look whether it is still
	// there.
	Session Session
}

// Refused marks an error with which the store declines to serve: credentials, a
// missing permission, no space. It ends a wait, where silence does not.
func Refused(err error) error { return &refusal{err} }

type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

func refused(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}
