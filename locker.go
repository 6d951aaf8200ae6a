// Package locker is one interface to locks on many stores, with a fencing token
// on every lock.
//
// A lock with a lease can be lost while its holder is paused, and the holder
// does not know. So every [Lock] has a [Lock.Token], greater than those of all
// earlier holders of its name, which the storage that the lock protects checks
// on every write (package fencing); and every Lock has a local validity, at the
// end of which [Lock.Lost] closes, whatever the store may say later.
//
//	err := locker.Do(ctx, l, "invoices/42", func(ctx context.Context, lock *locker.Lock) error {
//		return store.Write(ctx, lock.Token(), …) // ctx ends when the lock is lost
//	})
//
// # Choosing a backend
//
// Backends are packages below this one; package open makes one from a URL. Each
// declares its [Guarantees]; [Require] refuses one that is not good enough for
// what the lock is for.
//
// # What the caller knows after an error
//
// [ErrTaken]: nothing happened in the store. [ErrUnavailable]: nothing is held.
// [ErrOutcomeUnknown]: the name may stay locked for up to one TTL. [ErrLost]:
// somebody else may hold the lock, now or already for a while. Any other error
// came before the store was asked.
package locker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstile/locker/fencing"
)

// Locker grants locks. It is safe for any number of goroutines. Backends that
// hold connections or goroutines of their own have a Close method as well; none
// closes a client it was given.
type Locker interface {
	// Lock waits until the lock is held or ctx ends. When ctx ends first, the
	// error is an [ErrTaken] and wraps the cause, and nothing is held; a ctx
	// that is over from the start is told of by its cause alone. The end of
	// ctx after Lock has returned means nothing to the lock.
	Lock(ctx context.Context, name string, opts ...Option) (*Lock, error)

	// TryLock makes one attempt. If somebody has the lock, or is waiting for
	// it, that is [ErrTaken].
	TryLock(ctx context.Context, name string, opts ...Option) (*Lock, error)

	// Guarantees says what this backend, as configured, promises.
	Guarantees() Guarantees
}

// Info is what a store knows about a name at one moment. It is for people; by
// the time they read it, it may be wrong.
type Info struct {
	Name     string
	Held     bool
	Holder   string        // the text of [WithHolder]; "" if the holder is not one of ours
	Token    fencing.Token // of the holder, or of the last one; 0 if the store does not know
	TimeLeft time.Duration // until the lease ends, by the store's clock; 0 if it has no end
	Waiters  int           // waiters that the store knows of; a process counts once
}

// Inspector is implemented by backends that can tell who holds a lock.
type Inspector interface {
	// Inspect changes nothing in the store.
	Inspect(ctx context.Context, name string) (Info, error)
}

// Breaker is implemented by backends that can take a lock from its holder.
type Breaker interface {
	// Break frees the lock, whoever holds it, and reports whether anybody
	// did. The holder may go on believing until its next renewal or the end
	// of its validity, so exclusion is off for that time; tokens still
	// increase, and a guard still refuses its writes. After an error the lock
	// may have been freed.
	Break(ctx context.Context, name string) (bool, error)
}

// Lister is implemented by backends that can tell which names are held.
type Lister interface {
	// List returns what is held of the names that begin with prefix, by name. It
	// changes nothing in the store. Names that are locked or unlocked meanwhile may be
	// missing.
	List(ctx context.Context, prefix string) ([]Info, error)
}

var (
	// ErrTaken means that another holder has the lock, or was there first.
	// Nothing is held by this attempt. Trying again may work.
	ErrTaken = errors.New("taken by another holder")

	// ErrLost means that the lock is no longer held. See [LostError].
	ErrLost = errors.New("lock lost")

	// ErrUnavailable means that the store, or its majority, did not answer or
	// refused to serve. Nothing is held by this attempt: either it never
	// reached the store, or what it may have left there was removed.
	ErrUnavailable = errors.New("lock store unavailable")

	// ErrOutcomeUnknown means that an attempt was sent, its outcome is not
	// known, and its removal could not be confirmed. The name may stay locked,
	// by nobody, for up to one TTL.
	ErrOutcomeUnknown = errors.New("outcome unknown")

	// ErrClosed means that the Locker was closed.
	ErrClosed = errors.New("locker is closed")
)

// Reason says why a lock is no longer held.
type Reason uint8

const (
	Expired      Reason = iota + 1 // its validity ended before it was renewed
	TakenOver                      // the store has it under another holder, or not at all
	SessionEnded                   // the store ended the session that it hung on
	Unreachable                    // its validity ended while the store did not answer
	Forced                         // somebody broke it (Breaker)
	MaxHold                        // the time given with WithMaxHold is over
	Unlocked                       // its holder gave it back: no loss, but no longer held
)

var reasons = [...]struct{ code, words string }{
	{"unknown", "unknown reason"},
	{"expired", "its validity ended before it was renewed"},
	{"taken_over", "the store no longer has it under this holder"},
	{"session_ended", "its session ended"},
	{"unreachable", "its validity ended while the store did not answer"},
	{"forced", "it was forcibly unlocked"},
	{"max_hold", "it was held for as long as WithMaxHold allows"},
	{"unlocked", "it was unlocked"},
}

// String says it in words, for people. They may be put better one day.
func (r Reason) String() string { return r.texts().words }

// Code is one word, for labels of metrics and for programs. It never changes.
func (r Reason) Code() string { return r.texts().code }

func (r Reason) texts() struct{ code, words string } {
	if int(r) >= len(reasons) {
		r = 0
	}
	return reasons[r]
}

// LostError is an [ErrLost] with its reason. A backend returns one from its
// renewal when the store answers that the lock is gone.
type LostError struct {
	Name   string
	Reason Reason
	Cause  error // what the store or the network said last, if anything
}

func (e *LostError) Error() string {
	s := fmt.Sprintf("lock %q lost: %v", e.Name, e.Reason)
	if e.Reason == Unlocked {
		s = fmt.Sprintf("lock %q is not held: %v", e.Name, e.Reason)
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap makes errors.Is true for [ErrLost] and for the cause.
func (e *LostError) Unwrap() []error {
	if e.Cause == nil {
		return []error{ErrLost}
	}
	return []error{ErrLost, e.Cause}
}
