// Package contract has what package locker and package driver hand to each other. Nobody
// outside this module can name these types, so nobody else can call the functions of
// package locker that take a [Key].
package contract

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockstile/locker/fencing"
)

// Key is the first parameter of the functions of package locker that are for package driver.
type Key struct{}

// Settings are what the options of a call ask for. The zero value of a field is that of an
// option that was not given, so Settings can be laid over others: see package locker.
type Settings struct {
	TTL         time.Duration
	Wait        time.Duration
	MaxHold     time.Duration
	MinHold     time.Duration
	MinValidity *time.Duration
	Holder      *string
	Shared      bool
	Slots       int
	NoRenewal   bool
	Alone       bool // not passed on from goroutine to goroutine in memory
	Guard       *Guard
	Observers   []Observer
}

// Guard is what a call claims before its function begins.
type Guard struct {
	fencing.Guard
	Resources []string // none with slots, which have one each
}

// Unclaimed is the error of a Do that has the lock and could not claim a resource.
type Unclaimed struct {
	Resource, Lock string
	Cause          error
}

func (e *Unclaimed) Error() string {
	return fmt.Sprintf("locker: claim %q under lock %q: %v", e.Resource, e.Lock, e.Cause)
}

func (e *Unclaimed) Unwrap() error { return e.Cause }

// Observer is somebody who is told of events.
type Observer interface {
	// Tell has the observer told of a locker.Event soon, and calls nobody. If the observer
	// will be told, it calls begin, and what that returns when the observer has been.
	Tell(begin func() (done func()), event any)
}

// Held is what is behind a locker.Lock. Its methods keep what those of Lock promise, and
// Unlock is called once.
type Held interface {
	Name() string
	Token() fencing.Token
	SharedToken() fencing.SharedToken
	Slot() int
	Context() context.Context
	Lost() <-chan struct{}
	Err() error
	Deadline() time.Time
	Renew(ctx context.Context) error
	Unlock(ctx context.Context) error
	Detach(ctx context.Context) (Detached, error)

	// Limit has the maximum and the minimum hold of s, where there are any, count from now.
	// It returns an error if less validity is left than s wants. The lock is one of a Set.
	Limit(s *Settings) error

	// ForgetMinHold has Unlock free the lock at once: nobody has worked under it.
	ForgetMinHold()
}

// Drift is how much earlier than its store a holder stops believing in a lease of ttl.
// driver.Drift says why.
func Drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// Waiting returns the context in which a Lock that was asked for in ctx may wait: it ends with
// ctx, or when d is over, if there is one. Call the function when the wait is.
func Waiting(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("it was waited for %v (WithWait)", d))
}

// IsAny reports whether err is one of others.
func IsAny(err error, others ...error) bool {
	return slices.ContainsFunc(others, func(other error) bool { return errors.Is(err, other) })
}

// ErrUnlocked is locker.ErrUnlocked.
var ErrUnlocked = errors.New("unlocked")

// Unlocked is an [ErrUnlocked] that names the lock.
type Unlocked struct{ Name string }

func (e *Unlocked) Error() string {
	return fmt.Sprintf("lock %q is not held: it was %v", e.Name, ErrUnlocked)
}

// Unwrap makes errors.Is true for [ErrUnlocked].
func (e *Unlocked) Unwrap() error { return ErrUnlocked }
