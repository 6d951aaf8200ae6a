package conformance

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

var tokenClauses = []Clause{
	{"tokens-increase", "The storage recognizes a late write by its smaller token, so the next holder's must be greater.", tokensIncrease},
	{"tokens-over-expiry", "Late writes come from holders whose lease has ended, so the next token must be greater then, too.", tokensOverExpiry},
	{"tokens-over-break", "After a forced unlock the old holder goes on writing until it hears of it, so the next token must be greater.", tokensOverBreak},
	{"tokens-under-contention", "A token drawn before the wait is over can be overtaken by one drawn later.", tokensUnderContention},
	{"tokens-over-recreation", "A counter that is deleted with the lock starts again, and then late writes pass.", tokensOverRecreation},
}

// tokenOrder checks the tokens of one name in the order of its grants.
type tokenOrder struct {
	x    *trial
	last fencing.Token
}

func (o *tokenOrder) next(lock *locker.Lock, when string) {
	if err := o.check(lock); err != nil {
		o.x.failf("%w %s", err, when)
	}
}

func (o *tokenOrder) check(lock *locker.Lock) error {
	if lock.Token() <= o.last {
		return fmt.Errorf("token %d was granted after token %d", lock.Token(), o.last)
	}
	o.last = lock.Token()
	return nil
}

func tokensIncrease(x *trial) {
	name, ls := x.name(), x.lockers(3)
	order := tokenOrder{x: x}
	for round := range 9 {
		lock := x.tryLock(ls[round%3], name, "of a free name")
		order.next(lock, "to TryLock")
		x.unlock(lock)
		lock = x.lock(ls[round%2], name)
		order.next(lock, "to Lock")
		x.unlock(lock)
	}
}

func tokensOverExpiry(x *trial) {
	a, b, name := x.locker(), x.locker(), x.name()
	order := tokenOrder{x: x}
	held := x.lock(a, name, x.ttl(), locker.WithoutRenewal())
	order.next(held, "at first")
	lock := x.lock(b, name)
	order.next(lock, "after the last holder's lease had ended")
	x.unlock(lock)
	lock = x.lock(a, name)
	order.next(lock, "to the client whose lease had ended before")
	x.unlock(lock)
}

func tokensOverBreak(x *trial) {
	b, name := x.locker(), x.name()
	breaker := x.breaker(b)
	order := tokenOrder{x: x}
	for range 3 {
		order.next(x.lock(x.locker(), name), "to one more client")
		x.breakNow(breaker, name, "a held lock")
		lock := x.lock(b, name)
		order.next(lock, "after Break")
		x.unlock(lock)
	}
}

func tokensUnderContention(x *trial) {
	const clients, goroutines, rounds = 3, 6, 8
	name := x.name()
	order := tokenOrder{x: x}
	var mu sync.Mutex // exclusion is checked elsewhere
	var workers sync.WaitGroup
	errs := make(chan error, clients*goroutines)
	step := func(l locker.Locker) error {
		lock, err := x.lockSlowly(x.patient(), l, name)
		if err != nil {
			return err
		}
		mu.Lock()
		err = order.check(lock)
		mu.Unlock()
		return errors.Join(err, x.unlockInACrowd(lock))
	}
	for _, l := range x.lockers(clients) {
		for range goroutines {
			workers.Go(func() {
				for range rounds {
					if err := step(l); err != nil {
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
		x.failf("under contention: %w", err)
	default:
	}
}

// tokensOverRecreation waits until everything has ended that ends with the lease.
func tokensOverRecreation(x *trial) {
	name := x.name()
	order := tokenOrder{x: x}
	for range 3 {
		l := x.locker()
		lock := x.lock(l, name, x.ttl())
		order.next(lock, "after the name was unused for longer than its TTL")
		if err := lock.Unlock(x.patient()); err != nil && !errors.Is(err, locker.ErrLost) { // lost if the machine stalls
			x.failf("Unlock: %w", err)
		}
		<-time.After(x.h.TTL + x.h.TTL/4)
	}
}
