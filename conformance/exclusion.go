package conformance

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

var exclusionClauses = []Clause{
	{"exclusion", "Two holders at once overwrite each other's updates, which a lock is there to prevent.", exclusion},
	{"try-lock", "TryLock must tell taken from free at once, because programs branch on it.", tryLock},
	{"lock-waits", "A Lock that returns before the holder has unlocked makes two holders.", lockWaits},
}

// exclusion has goroutines of several clients read a counter, pause and write it
// back, as a program does whose update is not atomic.
func exclusion(x *trial) {
	const clients, goroutines, rounds = 3, 4, 8
	var (
		name    = x.name()
		shared  critical
		workers sync.WaitGroup
		errs    = make(chan error, clients*goroutines)
	)
	for _, l := range x.lockers(clients) {
		for range goroutines {
			workers.Go(func() {
				for range rounds {
					if err := shared.update(x, l, name); err != nil {
						errs <- err
						return
					}
				}
			})
		}
	}
	workers.Wait()
	select {
	case err := <-errs:
		x.failf("%w", err)
	default:
	}
	if n := shared.counter.Load(); n != clients*goroutines*rounds {
		x.failf("%d updates left the counter at %d", clients*goroutines*rounds, n)
	}
	if n := shared.guarded.Load(); n != clients*goroutines*rounds {
		x.failf("%d guarded updates left the counter at %d", clients*goroutines*rounds, n)
	}
}

// critical is what the lock protects. Its numbers are atomic only so that the clause, and
// not the race detector, finds the mistake.
type critical struct {
	inside  atomic.Int32
	counter atomic.Int64
	guarded atomic.Int64
	guard   fencing.Memory
}

func (c *critical) update(x *trial, l locker.Locker, name string) error {
	lock, err := x.lockSlowly(x.patient(), l, name)
	if err != nil {
		return err
	}
	if c.inside.Add(1) != 1 {
		return errors.New("two holders at once")
	}
	plain, guarded := c.counter.Load(), c.guarded.Load()
	time.Sleep(100 * time.Microsecond) // work: the longer it takes, the easier others get in
	c.counter.Store(plain + 1)
	err = c.guard.Write(x.ctx, name, lock.Token(), func() error {
		c.guarded.Store(guarded + 1)
		return nil
	})
	c.inside.Add(-1)
	return errors.Join(err, x.unlockInACrowd(lock))
}

func tryLock(x *trial) {
	a, b, name := x.locker(), x.locker(), x.name()
	held := x.tryLock(a, name, "of a free name")
	if held.Name() != name {
		x.failf("the lock of %q says that its name is %q", name, held.Name())
	}
	if err := held.Err(); err != nil {
		x.failf("a lock just granted says: %w", err)
	}
	x.taken(b, name, "of a name that another client holds")
	x.taken(a, name, "of a name that the same client holds")
	if err := held.Err(); err != nil {
		x.failf("the lock was lost to attempts of others: %w", err)
	}
	x.unlock(held)
	x.free(b, name, "after unlock, by another client")
	x.free(a, name, "after unlock, by the same client")
}

func lockWaits(x *trial) {
	a, b, name := x.locker(), x.locker(), x.name()
	held := x.lock(a, name)
	other, same := x.wait(x.patient(), b, name), x.wait(x.patient(), a, name)
	select { // long enough for a Lock that does not wait; one that does cannot return
	case <-other.done:
		x.failf("Lock by another client returned while the lock was held (error %v)", other.err)
	case <-same.done:
		x.failf("Lock by the same client returned while the lock was held (error %v)", same.err)
	case <-time.After(x.h.TTL / 2):
	}
	x.unlock(held)
	first, rest := x.next([]*waiter{other, same}, "after unlock")
	select {
	case <-rest[0].done:
		x.failf("both waiters were served by one unlock (error %v)", rest[0].err)
	case <-time.After(x.h.TTL / 10):
	}
	x.unlock(first.lock)
	x.unlock(x.served(rest[0], "after the second unlock"))
}
