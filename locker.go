// Package locker is one interface to locks on many stores, with a fencing token
// on every lock.
//
//	err := locker.Do(ctx, locks, "invoices/42", func(ctx context.Context, lock *locker.Lock) error {
//		return store.Write(ctx, lock.Token(), …) // ctx ends when the lock is lost
//	})
//
// [Do] locks, calls the function, and unlocks. It waits for the lock until ctx ends, or for as
// long as [WithWait] says; [TryDo] does not wait, and returns [ErrTaken]. A lock has a lease of 30
// seconds ([WithTTL]), which is renewed in the background until Unlock. The lock of a process
// that has died is free when its lease ends; on local, at once.
//
// A lock with a lease can be lost while its holder is paused, and the holder does not know.
// So pass the [Lock.Token] to the storage with every write: it is greater than the tokens of
// all earlier holders of the name, and a guard (package fencing) refuses smaller ones. A loss
// that is noticed ends the function's ctx: at the end of the lease by this machine's clock
// at the latest, whatever the store may say later.
//
// # Choosing a backend
//
// Backends are packages below this one; package open makes one from a URL. Each
// declares its [Guarantees]; [Require] refuses one that is not good enough for
// what the lock is for.
//
// # What a lock does not do
//
// It is not re-entrant: a goroutine that locks a name which it already holds waits for
// itself, until its context ends. TryLock returns [ErrTaken]. A shared lock cannot be made
// exclusive, nor an exclusive one shared: unlock it first.
//
// It does not end by itself. A Lock that nobody unlocks is renewed until its process ends,
// unless [WithMaxHold] or [WithoutRenewal] sets a limit. Nor does another process go on with it, unless
// it was detached: see [Lock.Detach].
//
// It does not stop the code that runs under it. When it is lost, [Lock.Context] ends, and
// the code must look at that. A write that carries no token is never safe.
//
// # What the caller knows after an error
//
// Of Lock and TryLock: after [ErrOutcomeUnknown] the name may stay locked for up to
// one TTL. It may come with one of the next two, and outranks them: test for it first.
// After [ErrTaken] and [ErrMismatch] nothing has happened in the store. After
// [ErrUnavailable] nothing is held; if it is an [ErrRefused] as well, trying again changes
// nothing until somebody changes a setting. Any other error came before the store was asked.
//
// An error wraps the cause of a context that has ended. In a group of goroutines that ends
// with its first error, that cause may be another lock's ErrTaken: look at [context.Cause] first.
//
// [ErrLost], of a Lock: somebody else may hold the lock, perhaps already for a while.
// [ErrUnlocked]: Unlock was called before this process knew of a loss. What Unlock returned says
// whether the store still had it.
// What other errors of [Lock.Unlock] and [Lock.Renew] mean is said there.
package locker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/contract"
)

// Locker grants locks. It is safe for any number of goroutines. Backends that
// hold connections or goroutines of their own have a Close method as well; none
// closes a client it was given.
type Locker interface {
	// Lock waits until the lock is held or ctx ends; [WithWait] sets a limit. If ctx
	// ends first, the error wraps its cause and [ErrTaken], or [ErrUnavailable] if
	// nobody had said yet that the lock is taken. It waits for holders, and not for a
	// store that cannot be reached when Lock begins: that is an [ErrUnavailable]. If ctx
	// has already ended, Lock returns only its cause. While the store is silent, some clients notice the end of ctx
	// late: see package singlenode. When Lock has returned, the end of
	// ctx no longer matters to the lock: unlock it, or it is renewed until the process ends.
	Lock(ctx context.Context, name string, opts ...Option) (*Lock, error)

	// TryLock makes one attempt, and waits only for the store's answer. If somebody
	// has the lock, or is waiting for it, the error is an [ErrTaken].
	TryLock(ctx context.Context, name string, opts ...Option) (*Lock, error)

	// Guarantees says what this backend, as configured, promises.
	Guarantees() Guarantees
}

// Info is what a store knew about a name when it was asked. It is for people to
// read, and may be wrong by then.
type Info struct {
	Name     string
	Held     bool
	Kind     Kind          // in which it is held
	Slots    int           // how many there are, if Kind is KindSlots
	Holder   string        // the text of [WithHolder], within a [WithMinHold] the last holder's; "" if the holder is not one of ours, or there may be several
	Token    fencing.Token // first of the holder's lease, or of the last one; 0 if the store does not know
	TimeLeft time.Duration // until the lease ends, of several the last one, by the store's clock; 0 if it has no end
	Waiters  int           // waiters that the store knows of; a process counts once
	Holders  []Holder      // all of them, in the order of their numbers
	Kept     bool          // nobody holds it any more: it is kept for the rest of a [WithMinHold], until TimeLeft is over
}

// Holder is one of those who hold a lock: its only one, one of those who share it, or one who
// has a slot. A process that reads with many goroutines may count once.
type Holder struct {
	Text     string        // of [WithHolder]
	Number   Number        // for [Breaker]; 0, which BreakHolder refuses, if the store does not know it
	Slot     int           // from 0, or -1
	TimeLeft time.Duration // until its lease ends, by the store's clock; 0 if it has no end
}

// Number tells the holders of a name apart: the first token of a holder's lease, or a reader's
// [Lock.SharedToken]. No storage takes it for a token, and so it opens no write.
type Number uint64

// Inspector is implemented by backends that can say who holds a lock.
type Inspector interface {
	// Inspect asks the store about one name. It changes nothing there. An
	// [ErrUnavailable] says that the store did not answer.
	Inspect(ctx context.Context, name string) (Info, error)
}

// Breaker is implemented by backends that can take a lock from its holder.
type Breaker interface {
	// Break frees the lock, no matter who holds it, and how many do, and reports whether
	// anybody did. A holder may go on believing until its next renewal or the end of its
	// validity, and for that time the lock excludes nobody; tokens still increase, and a guard
	// still refuses the old holder's writes. After an error the lock may have been freed.
	Break(ctx context.Context, name string) (bool, error)

	// BreakHolder is Break of one holder, the one whose number [Holder] shows. It frees nothing
	// if nobody holds the lock with that number. The number 0 is an error.
	BreakHolder(ctx context.Context, name string, number Number) (bool, error)
}

// Lister is implemented by backends that can say which names are held.
type Lister interface {
	// List returns the names that begin with prefix and are held, in order. It changes
	// nothing in the store. Names that are locked or unlocked meanwhile may be missing.
	// An [ErrUnavailable] says that the store did not answer.
	List(ctx context.Context, prefix string) ([]Info, error)
}

var (
	// ErrTaken means that another holder has the lock, or was there first.
	// Nothing is held by this attempt. Trying again may work.
	ErrTaken = errors.New("taken by another holder")

	// ErrMismatch means that somebody holds the name, or waits for it, in a way that does
	// not go with this request: as slots, or as another number of slots. Nothing is held
	// by this attempt. The error names both. Trying again works when nobody is there.
	ErrMismatch = errors.New("held in another way")

	// ErrLost means that the lock was lost, and somebody else may have it. See [LostError].
	ErrLost = errors.New("lock lost")

	// ErrUnlocked means that Unlock, or Detach, was called while this process believed in the lock. That is
	// no loss: what Unlock returned says whether the store still had it.
	ErrUnlocked = contract.ErrUnlocked

	// ErrUnavailable means that the store, or its majority, did not answer or
	// refused to serve. From Lock and TryLock: nothing is held by this attempt,
	// for it never reached the store, or what it may have left there was removed,
	// unless the error is ErrOutcomeUnknown as well. From Unlock and Renew: what
	// was asked may have happened.
	ErrUnavailable = errors.New("lock store unavailable")

	// ErrRefused comes with the ErrUnavailable of a call: the store answers, and declines. Credentials or
	// rights are missing, it has no space, its schema is not there. Asking again changes
	// nothing until somebody changes a setting. What passes by itself, such as a failover or a
	// server that loads its data, is no ErrRefused.
	ErrRefused = errors.New("refused by the store")

	// ErrOutcomeUnknown means that a request was sent, its outcome is not known,
	// and the store did not confirm the removal of what it may have left. The
	// name may stay locked, by nobody, for up to one TTL.
	ErrOutcomeUnknown = errors.New("outcome unknown")

	// ErrClosed means that the Locker was closed. Nothing is held by this attempt,
	// unless the error is ErrOutcomeUnknown as well.
	ErrClosed = errors.New("locker is closed")
)

// Reason says why a lock is no longer held.
type Reason uint8

const (
	ReasonExpired      Reason = iota + 1 // its validity ended before it was renewed
	ReasonTakenOver                      // the store has it for another holder, or not at all
	ReasonSessionEnded                   // the store ended the session that it depended on
	ReasonUnreachable                    // its validity ended while the store did not answer
	ReasonForced                         // somebody broke it ([Breaker])
	ReasonMaxHold                        // the time given with WithMaxHold is over
)

var reasons = [...]struct{ code, words string }{
	{"unknown", "unknown reason"},
	{"expired", "its validity ended before it was renewed"},
	{"taken_over", "the store no longer has it under this holder"},
	{"session_ended", "its session ended"},
	{"unreachable", "its validity ended while the store did not answer"},
	{"forced", "it was forcibly unlocked"},
	{"max_hold", "it was held for as long as WithMaxHold allows"},
}

// String returns the reason in words, for people. They may change.
func (r Reason) String() string { return r.texts().words }

// Code returns one word, for labels of metrics and for programs. It never changes.
func (r Reason) Code() string { return r.texts().code }

func (r Reason) texts() struct{ code, words string } {
	if int(r) >= len(reasons) {
		r = 0
	}
	return reasons[r]
}

// LostError is an [ErrLost] with its reason.
type LostError struct {
	Name   string
	Reason Reason
	Cause  error // what the store or the network said last, if anything
}

func (e *LostError) Error() string {
	s := fmt.Sprintf("lock %q lost: %v", e.Name, e.Reason)
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

// ParseOptions is for package driver.
func ParseOptions(_ contract.Key, l Locker, name string, opts []Option) (contract.Settings, error) {
	_, s, err := settle(l, name, opts, false)
	if s.Holder == nil {
		s.Holder = thisProcess()
	}
	if err == nil && s.TTL == 0 {
		s.TTL = DefaultTTL
		err = named(name, agree(&s, name))
	}
	return s, err
}

// NewLock is for package driver.
func NewLock(_ contract.Key, h contract.Held) *Lock { return &Lock{held: h} }

// HeldOf is for package driver.
func HeldOf(_ contract.Key, l *Lock) contract.Held { return l.held }
