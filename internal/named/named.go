// Package named keeps locks by their names, for libraries whose Unlock is not given what Lock
// has returned. At most one lock of a name is held through a [Locks].
//
// The adapters are modules of their own, and older ones are built with newer versions of this:
// what it has, it keeps.
package named

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lockstile/locker"
)

// Locks takes locks, and finds them again when they are to be unlocked, from any goroutine.
type Locks struct {
	locks locker.Locker
	req   *locker.Request
	opts  []locker.Option

	mu   sync.Mutex
	held map[string]*entry
}

// entry is there from the beginning of a Lock until its Unlock. It stays when the lock is
// lost: else the Unlock that is still to come would unlock the next holder's.
type entry struct {
	lock *locker.Lock  // nil while the store is asked
	over chan struct{} // closed when the entry is gone
}

// New checks the options with a name for which they will be used. Only exclusive locks can
// be told apart by their names.
func New(l locker.Locker, name string, opts ...locker.Option) (*Locks, error) {
	req, err := locker.NewRequest(name, opts...)
	if err != nil {
		return nil, err
	}
	if req.Kind != locker.Exclusive {
		return nil, fmt.Errorf("locker: lock %q: it must keep everybody else out, and one of the kind %q does not", name, req.Kind)
	}
	opts = append(opts[:len(opts):len(opts)], waitsAlready)
	return &Locks{locks: l, req: req, opts: opts, held: make(map[string]*entry)}, nil
}

// waitsAlready takes WithWait away, which Lock has seen to and TryLock would refuse.
func waitsAlready(r *locker.Request) error {
	r.Wait = 0
	return nil
}

// Lock waits for the name. Where this Locks has it, Lock waits for Unlock, also when that
// lock was lost.
func (l *Locks) Lock(ctx context.Context, name string) error {
	ctx, cancel := l.req.Waiting(ctx)
	defer cancel()
	for {
		mine, other := l.enter(name)
		if other == nil {
			return l.take(ctx, mine, name, l.locks.Lock)
		}
		select {
		case <-other.over:
		case <-ctx.Done():
			cause := context.Cause(ctx)
			if !errors.Is(cause, ctx.Err()) {
				cause = fmt.Errorf("%w: %w", ctx.Err(), cause)
			}
			return fmt.Errorf("locker: lock %q: %w, of this process: %w", name, locker.ErrTaken, cause)
		}
	}
}

// TryLock makes one attempt.
func (l *Locks) TryLock(ctx context.Context, name string) error {
	mine, other := l.enter(name)
	if other != nil {
		return fmt.Errorf("locker: lock %q: %w, of this process", name, locker.ErrTaken)
	}
	return l.take(ctx, mine, name, l.locks.TryLock)
}

// enter makes an entry of the name, or returns the one that is there.
func (l *Locks) enter(name string) (mine, other *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := l.held[name]; other != nil {
		return nil, other
	}
	mine = &entry{over: make(chan struct{})}
	l.held[name] = mine
	return mine, nil
}

// take asks for the lock, and gives the entry what comes. It does so also after a panic.
func (l *Locks) take(ctx context.Context, e *entry, name string, acquire func(context.Context, string, ...locker.Option) (*locker.Lock, error)) (err error) {
	var lock *locker.Lock
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if e.lock = lock; lock == nil {
			l.remove(name, e)
		}
	}()
	lock, err = acquire(ctx, name, l.opts...)
	return err
}

// remove takes an entry away, under the mutex, and wakes those who wait for that.
func (l *Locks) remove(name string, e *entry) {
	delete(l.held, name)
	close(e.over)
}

// Held returns the lock that Unlock would unlock, or nil. It may have been lost.
func (l *Locks) Held(name string) *locker.Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.held[name]; e != nil {
		return e.lock
	}
	return nil
}

// Retake makes one attempt to lock the name again when its lock was lost, for the same Unlock.
func (l *Locks) Retake(ctx context.Context, name string, lost *locker.Lock) error {
	next, err := l.locks.TryLock(ctx, name, l.opts...)
	if err != nil {
		return err
	}
	l.mu.Lock()
	e := l.held[name]
	there := e != nil && e.lock == lost
	if there {
		e.lock = next
	}
	l.mu.Unlock()
	if !there { // Unlock came meanwhile
		return errors.Join(NotHeld(name), next.Unlock(ctx))
	}
	return nil
}

// Unlock gives the lock back, and returns what [locker.Lock.Unlock] does. Whatever that is,
// the name is free for the next Lock of this process.
func (l *Locks) Unlock(ctx context.Context, name string) error {
	l.mu.Lock()
	e := l.held[name]
	if e == nil || e.lock == nil {
		l.mu.Unlock()
		return NotHeld(name)
	}
	l.remove(name, e)
	l.mu.Unlock()
	return e.lock.Unlock(ctx)
}

// NotHeld is the error of an Unlock without a Lock.
func NotHeld(name string) error {
	return fmt.Errorf("locker: lock %q is not held: every Unlock needs a Lock of its own before it", name)
}
