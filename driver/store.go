// Package driver does what is the same for every store: goroutines of one process
// wait in line for a name and share their process's lease; leases are renewed, end
// and are given back; what a failed attempt has left in the store is removed; and
// each error says what the caller knows about the store.
//
// A backend implements [Store], which asks its store and knows how to wait there,
// and gives its users the [Methods] of the [Locker] that [New] makes of it. An adapter, which has another library
// lock with any [locker.Locker], finds out with [NewRequest] what it is to ask for.
//
// # A lease and its turns
//
// A store grants a lease to the process, with a range of tokens. Each goroutine has
// a turn with the lease, and the next token of the range. When it unlocks, the turn
// of the next goroutine in line begins, without a request, if that goroutine wants the same
// options (TTL, renewal, holder's text) and enough of the lease's validity is left. When
// the grant arrived 25 ms ago, no further turn begins: the turn under way ends, and the
// lease goes back to the store, where other processes wait.
//
// A turn counts as granted when its lease was. If the lease has ended and its process
// does not know that yet, a turn on it has a token below those of the lease's successor.
package driver

import (
	"context"
	"time"

	"github.com/lockstile/locker"
)

// Store is what a backend implements. An H is one attempt: a try at a name and the
// hold that comes of it; it is a pointer in most backends. Of a
// Locker's attempts at one name, one at a time asks the store or holds the lock; what
// earlier ones have left may be withdrawn meanwhile. Only those that share a lock, or have
// slots, hold it at the same time, while another one asks. The Locker calls the methods for
// one H one after another, except Renew, which may be under way at any time. It holds no mutex during a call, except of Guarantees.
//
// The contexts of Renew, Release and Withdraw have an end, at which these return whatever timeouts the
// store's client has. Those of Inspect, List and Break are their callers', as is that of Acquire.
//
// A Store that is a [locker.Inspector], [Breaker] or [locker.Lister] as well
// makes the Locker one, which makes their errors an [locker.ErrUnavailable]; without them, these calls return [errors.ErrUnsupported].
// Where a Store is a [Detacher] and declares Detaches, its locks can go on in another process.
type Store[H any] interface {
	// Guarantees says what this store promises and can do. A kind of lock that it does not
	// have is refused before Begin. It asks nobody: the Locker may call it with its mutex held.
	Guarantees() locker.Guarantees

	// Begin returns a new attempt, or an error that says what this store cannot
	// do. It sends nothing, so after an error nothing has happened.
	Begin(req *Request) (H, error)

	// Acquire asks for the lock. If wait is nil it asks once, and returns the zero
	// Grant if somebody has the lock or waits for it. Otherwise it goes on until the
	// lock is granted: whenever the store has said "taken" it calls wait, and goes on
	// in the context that this returns, which ends with ctx and with the Locker.
	//
	// Beside its answer it says what this call has left in the store. It is Nothing after an
	// answer of "taken" without a place in a queue, if each request of this call was answered, and
	// after an error if no request was sent, or the store has declined each. A wrong Unsure
	// costs a request, a wrong Nothing leaves a lock behind.
	//
	// Acquire returns soon after its context ends, with any error. If the store's client cannot be
	// interrupted, Acquire may return at the context's deadline or at the client's own timeout instead: the
	// backend's documentation says so then. The cause of that context is never the
	// user's own: it is what Err returns, or [locker.ErrClosed]. If ctx has no end,
	// Acquire bounds each request by itself: silence is an error, too. An error
	// means that Acquire has seen no grant; the store may have granted the lock
	// all the same, which Withdraw is for. An attempt that the store says was withdrawn is an
	// error. If its grant was broken before Acquire heard of it, Acquire asks on under a new value, since
	// the Locker may call it again for the same H. The Locker makes an error a
	// [locker.ErrUnavailable] unless it is another of package locker's.
	//
	// Before Withdraw, the Locker may call Acquire again for the same H, after a pause
	// of 50 ms or more: a waiter that was told "taken" goes on waiting through the
	// silence of a store, but not after an error that is [Refused]. So a request for
	// one H may come twice. It gets the same grant, and either starts the lease
	// anew or leaves Since as it was.
	Acquire(ctx context.Context, h H, wait Wait) (Grant, Left, error)

	// Renew asks for another TTL for each of hs, many in one round trip, and returns an error for
	// each, in order. The new TTL counts from before the call, on the Locker's clock. If h hangs on
	// a [Session], which is renewed by itself, Renew only looks whether the lock is still there. A [locker.LostError] with a Reason says that the store no longer
	// has the lock under h: it is lost at once. After any other error it may have been
	// renewed or not; the Locker asks again while validity lasts. Renew returns when
	// ctx ends. If it is slow, several calls may be under way at once.
	Renew(ctx context.Context, hs []H) []error

	// Release gives the lock back if it is still h's: compared and removed in one
	// atomic step. Like Withdraw, it has a request of h's that arrives later find itself
	// refused: after a Release that worked, Withdraw is not called. A [locker.LostError] says that it no longer was, and that nothing
	// was removed. After any other error it may have been given back or not, and
	// Withdraw follows.
	//
	// With keep, which is 0 unless Guarantees.KeepsMinHold is true, the lock stays taken under nobody's
	// value until keep has passed, counted from when the store handles the request.
	// Waiters are notified when to look again, and a renewal under way does not lengthen it.
	// After an error Release is called again with what remains, and Withdraw follows only
	// when nothing does; a lock that is kept for h already is a success, and is not kept
	// for longer.
	Release(ctx context.Context, h H, keep time.Duration) error

	// Withdraw removes whatever h has left in the store: a lock, a place in a queue.
	// A request of h's that is still under way must find itself refused when it
	// arrives. A nil confirms both. The Locker calls it if a call of Acquire was Unsure or ended in
	// a panic, or if h may still have the lock, as far as Renew and Release have said. After an
	// error Withdraw is called again, for ten seconds at most.
	Withdraw(ctx context.Context, h H) error
}

// Ender is a Store that has something of its own to end with an attempt.
type Ender[H any] interface {
	// End is the last call for h, when nothing of it is left or its removal was given up. It sends
	// nothing.
	End(h H)
}

// Breaker is a Store that can take a lock from its holders.
type Breaker interface {
	// Break frees the lock of the holder with this number, which Inspect shows, or if it is 0 of
	// all holders, and reports whether there was one. After an error it may have been freed.
	Break(ctx context.Context, name string, number locker.Number) (bool, error)
}

// Wait tells the Locker that the store has said "taken". It returns the context to
// wait in, and may be called any number of times until Acquire returns: the context is always the same.
type Wait func() context.Context

// Left is what a call of Acquire has left in the store, beside what it was granted. The Locker adds
// it up over the calls for one attempt.
type Left uint8

const (
	// Unsure says that something is there, or may be: a request was sent and not answered, or
	// the attempt has a place in a queue.
	Unsure Left = iota
	// Nothing says that this call has left nothing, and that nothing of it can still arrive.
	Nothing
)

// UnsureIf returns Unsure if something may be left, else Nothing.
func UnsureIf(left bool) Left {
	if left {
		return Unsure
	}
	return Nothing
}

// Grant is what a Store was granted. The zero Grant says that the lock is taken.
type Grant struct {
	// First is the first of Count tokens that are this grant's alone: greater than
	// those of every earlier grant of the name, and smaller than those of every later
	// one. When they are used up the lease goes back to the store: 64 are plenty for
	// the 25 ms in which goroutines share it. With 1 it is never passed on.
	First uint64
	Count uint32

	// Slot is which one was granted, from 0, if the request wants one. Like a shared lock, a
	// slot has a Count of 1.
	Slot int

	// Since was read on the Locker's clock ([Locker.Now]) before the request that
	// was granted was sent for the first time. Validity counts from here, for the
	// store may have started the lease at any moment after it.
	Since Instant

	// Lasting says that there is no lease: the store keeps the lock for as long as
	// this process lives. Renewals only look whether it is still there.
	Lasting bool
}

// Refused makes err a [locker.ErrRefused], with which the store declines to serve: credentials, a
// missing permission, no space. It ends a wait, where silence does not.
func Refused(err error) error { return &refusal{err, false} }

// Unfit marks an error that is about one request alone, such as a TTL that the servers do not
// allow. It ends the wait of that call. Those behind it ask for themselves.
func Unfit(err error) error { return &refusal{err, true} }

type refusal struct {
	error
	unfit bool
}

func (r *refusal) Unwrap() []error { return []error{locker.ErrRefused, r.error} }
