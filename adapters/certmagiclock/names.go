package certmagiclock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// names takes locks, and finds them again by their names, from any goroutine: certmagic's Unlock
// is not given what Lock has returned. At most one lock of a name is held through it.
type names struct {
	locks locker.Locker
	req   *driver.Request // what is asked for, but for the name

	mu   sync.Mutex
	held map[string]*entry
}

// entry is there from the beginning of a Lock until its Unlock. It stays when the lock is
// lost: else the Unlock that is still to come would unlock the next holder's.
type entry struct {
	lock *locker.Lock  // nil while the store is asked
	over chan struct{} // closed when the entry is gone
}

// newNames checks the options. Only exclusive locks can be told apart by their names.
func newNames(l locker.Locker, opts []locker.Option) (*names, error) {
	const name = "certmagic" // any
	locks := locker.With(l, opts...)
	req, err := driver.NewRequest(locks, name)
	if err != nil {
		return nil, err
	}
	if req.Kind != locker.KindExclusive {
		return nil, fmt.Errorf("locker: lock %q: it must keep everybody else out, and one of the kind %q does not", name, req.Kind)
	}
	return &names{locks: locks, req: req, held: make(map[string]*entry)}, nil
}

// Lock waits for the name. Where this process has it, Lock waits for Unlock, also when that
// lock was lost.
func (n *names) Lock(ctx context.Context, name string) error {
	ctx, cancel := n.req.Waiting(ctx) // for this process and for the store together
	defer cancel()
	for {
		mine, other := n.enter(name)
		if other == nil {
			return n.take(ctx, mine, name, n.locks.Lock)
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
func (n *names) TryLock(ctx context.Context, name string) error {
	mine, other := n.enter(name)
	if other != nil {
		return fmt.Errorf("locker: lock %q: %w, of this process", name, locker.ErrTaken)
	}
	return n.take(ctx, mine, name, n.locks.TryLock)
}

// enter makes an entry of the name, or returns the one that is there.
func (n *names) enter(name string) (mine, other *entry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if other := n.held[name]; other != nil {
		return nil, other
	}
	mine = &entry{over: make(chan struct{})}
	n.held[name] = mine
	return mine, nil
}

// take asks for the lock, and gives the entry what comes. It does so also after a panic.
func (n *names) take(ctx context.Context, e *entry, name string, acquire func(context.Context, string, ...locker.Option) (*locker.Lock, error)) (err error) {
	var lock *locker.Lock
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if e.lock = lock; lock == nil {
			n.remove(name, e)
		}
	}()
	lock, err = acquire(ctx, name)
	return err
}

// remove takes an entry away, under the mutex, and wakes those who wait for that.
func (n *names) remove(name string, e *entry) {
	delete(n.held, name)
	close(e.over)
}

// lockOf returns the lock that Unlock would unlock, or nil. It may have been lost.
func (n *names) lockOf(name string) *locker.Lock {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e := n.held[name]; e != nil {
		return e.lock
	}
	return nil
}

// retake makes one attempt to lock the name again when its lock was lost, for the same Unlock.
func (n *names) retake(ctx context.Context, name string, lost *locker.Lock) error {
	next, err := n.locks.TryLock(ctx, name)
	if err != nil {
		return err
	}
	n.mu.Lock()
	e := n.held[name]
	there := e != nil && e.lock == lost
	if there {
		e.lock = next
	}
	n.mu.Unlock()
	if !there { // Unlock came meanwhile
		return errors.Join(notHeld(name), next.Unlock(ctx))
	}
	return nil
}

// Unlock gives the lock back, and returns what [locker.Lock.Unlock] does. Whatever that is,
// the name is free for the next Lock of this process.
func (n *names) Unlock(ctx context.Context, name string) error {
	n.mu.Lock()
	e := n.held[name]
	if e == nil || e.lock == nil {
		n.mu.Unlock()
		return notHeld(name)
	}
	n.remove(name, e)
	n.mu.Unlock()
	return e.lock.Unlock(ctx)
}

// notHeld is the error of an Unlock without a Lock.
func notHeld(name string) error {
	return fmt.Errorf("locker: lock %q is not held: every Unlock needs a Lock of its own before it", name)
}
