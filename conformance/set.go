package conformance

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/lockstile/locker"
)

var setClauses = []Clause{
	{"set", "Programs that lock the same names in different orders must not deadlock, and whoever gets not all of them must leave none.", set},
	{"set-limits", "The bounds of a Set count from when it is complete, or a lock that came early ends early.", setLimits},
}

// set has clients want two of three names each, given in different orders.
func set(x *trial) {
	names := []string{x.name(), x.name(), x.name()}
	pairs := [][]string{{names[0], names[1]}, {names[1], names[2]}, {names[2], names[0]}, {names[1], names[0]}}
	inside := map[string]*atomic.Int32{names[0]: {}, names[1]: {}, names[2]: {}}
	var k atomic.Int32
	x.each(x.lockers(4), 1, func(l locker.Locker) {
		pair := pairs[k.Add(1)-1]
		for range 5 {
			set, err := locker.LockAll(x.patient(), l, pair)
			if err != nil {
				x.failf("LockAll: %w", err)
			}
			for _, name := range pair {
				if inside[name].Add(1) != 1 {
					x.failf("two Sets have %q at once", name)
				}
				if lock, err := set.Lock(name); err != nil || lock.Token() == 0 {
					x.failf("a Set of %q has no lock, or one without a token, of %q", pair, name)
				}
			}
			for _, name := range pair {
				inside[name].Add(-1)
			}
			if err := set.Unlock(x.patient()); err != nil {
				x.failf("Unlock of a Set: %w", err)
			}
		}
	})
	a, b := x.locker(), x.locker()
	held := x.lock(a, names[2])
	if set, err := locker.TryLockAll(x.patient(), b, names, locker.WithMinHold(time.Hour)); !errors.Is(err, locker.ErrTaken) || set != nil {
		x.failf("TryLockAll of a name that is taken and two that are free returned %t and error %v, want ErrTaken", set != nil, err)
	}
	x.free(a, names[0], "after a Set did not become complete")
	x.free(a, names[1], "after a Set did not become complete")
	x.unlock(held)
}

// setLimits has the second name of a Set come late.
func setLimits(x *trial) {
	a, b, name := x.locker(), x.locker(), x.name()
	first, second := name+"/1", name+"/2"
	most := x.h.TTL
	held := x.lock(a, second, x.long())
	done := make(chan struct{})
	var set *locker.Set
	var err error
	var complete time.Time
	go func() {
		defer close(done)
		set, err = askSlowly(x.patient(), x, func() (*locker.Set, error) {
			return locker.LockAll(x.patient(), b, []string{second, first}, x.long(), locker.WithMaxHold(most))
		})
		complete = time.Now()
	}()
	x.eventually("the first name of a Set is locked", func() bool {
		lock, err := a.TryLock(x.patient(), first)
		if err == nil {
			x.unlock(lock)
		}
		return errors.Is(err, locker.ErrTaken)
	})
	select {
	case <-done:
		x.failf("LockAll returned before all names were free (error %v)", err)
	case <-time.After(most + most/2):
	}
	x.unlock(held)
	x.event(done, "LockAll returns when all names are free")
	if err != nil {
		x.failf("LockAll, with a maximum hold of %v and a second name that came after %v: %w", most, most+most/2, err)
	}
	x.event(set.Lost(), "a Set ends with its maximum hold")
	if early := most - time.Since(complete); early > most/2 {
		x.failf("a Set was lost %v before its maximum hold of %v was over", early, most)
	}
	if lost := (*locker.LostError)(nil); !errors.As(set.Err(), &lost) || lost.Reason != locker.ReasonMaxHold {
		x.failf("a Set whose maximum hold is over says %v", set.Err())
	}
}
