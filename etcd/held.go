package etcd

import (
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
)

// Held returns the condition under which lock, which this Locker has granted, is
// held in the store. A transaction that has it among its conditions and writes to
// the same cluster needs no other guard: the store itself decides, in one step
// with the write, so no pause and no clock can come between.
//
//	held, err := locks.Held(lock)
//	…
//	resp, err := client.Txn(ctx).If(held).Then(clientv3.OpPut("balance", "42")).Commit()
//
// If resp.Succeeded is false, nothing was written, for the lock was lost. For a
// lock that is known not to be held any more, Held returns its error, an
// [locker.ErrLost].
func (l *Locker) Held(lock *locker.Lock) (clientv3.Cmp, error) {
	l.mu.Lock()
	a := l.held[lock]
	l.mu.Unlock()
	err := lock.Err()
	if err == nil && a == nil {
		err = fmt.Errorf("it was not granted by this Locker")
	}
	if err != nil {
		return clientv3.Cmp{}, fmt.Errorf("etcd: held %q: %w", lock.Name(), err)
	}
	return unchanged(a.key, a.mod), nil
}

// note keeps the books about a new lock: the end of its session is its end.
func (l *Locker) note(a *attempt, lock *locker.Lock) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left {
		return // lost already
	}
	a.lock = lock
	l.mu.Lock()
	l.held[lock] = a
	l.mu.Unlock()
	if err := a.session.hold.Err(); err != nil { // it ended while the lock was being made
		lose(lock, err)
	}
}

func (l *Locker) forget(a *attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, a.lock)
}

func (l *Locker) heldOn(s *session) []*locker.Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	var locks []*locker.Lock
	for lock, a := range l.held {
		if a.session == s {
			locks = append(locks, lock)
		}
	}
	return locks
}
