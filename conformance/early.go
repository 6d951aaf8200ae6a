package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstile/locker"
)

// early asks again and again, from the first moment to the last, for locks that nobody
// renews. A renewal would hide this flaw, because the lease never comes near its end. So
// would a waiter alone, who asks again only after the end of the lease.
//
// A lease begins in several ways, which most backends write in several places. In many of
// them it also depends on a waiter which code looks at the end of the lease.
func early(x *trial) {
	a, b, c := x.locker(), x.locker(), x.locker()
	ways := []struct {
		how  string
		take func() *locker.Lock
	}{
		{"that was free", func() *locker.Lock { return x.lease(a, x.name()) }},
		{"that was renewed", func() *locker.Lock { return x.renewed(x.lease(a, x.name())) }},
		{"that had been waited for", func() *locker.Lock { return x.leaseAfter(x.lock(b, x.name(), x.long()), a, b) }},
		{"that came from a goroutine of its own process", func() *locker.Lock {
			return x.leaseAfter(x.lock(a, x.name(), x.long()), a, nil)
		}},
	}
	var takings []<-chan error
	for _, way := range ways {
		for _, waits := range []bool{false, true} {
			held := way.take()
			takings = append(takings, x.takeFrom(held, way.how, c.TryLock))
			if waits {
				takings = append(takings, x.takeFrom(held, way.how, b.Lock))
			}
		}
	}
	for _, taking := range takings {
		x.takenInTime(taking)
	}
}

// takenInTime waits for the result of a takeFrom.
func (x *trial) takenInTime(taking <-chan error) {
	if err := receive(x, x.h.patience, taking, "a lock that is not renewed comes to another client"); err != nil {
		x.failf("%w", err)
	}
}

// lease takes a lock that ends by itself.
func (x *trial) lease(l locker.Locker, name string) *locker.Lock {
	return x.lock(l, name, x.ttl(), locker.WithoutRenewal())
}

// renewed renews a lock, and asks again if the store did not answer in time. A lock that
// has ended before, because the machine stalled, shows nothing.
func (x *trial) renewed(lock *locker.Lock) *locker.Lock {
	ctx := x.patient()
	for {
		err := lock.Renew(ctx)
		switch {
		case err == nil, errors.Is(err, locker.ErrLost):
			return lock
		case !errors.Is(err, locker.ErrUnavailable) || ctx.Err() != nil:
			x.failf("Renew of a held lock: %w", err)
		}
	}
}

// leaseAfter has l wait behind held, unlocks held, and returns l's lock, which ends by
// itself. through is the client that can see the waiter; nil if none can.
func (x *trial) leaseAfter(held *locker.Lock, l, through locker.Locker) *locker.Lock {
	w := x.wait(x.patient(), l, held.Name(), x.ttl(), locker.WithoutRenewal())
	x.waits(w, through, held.Name())
	x.unlock(held)
	x.returned(w, "after unlock")
	if errors.Is(w.err, locker.ErrUnavailable) { // the machine stalled for a whole lease
		return x.lease(l, held.Name())
	}
	return x.served(w, "after unlock")
}

// asking is Lock or TryLock of one client.
type asking func(context.Context, string, ...locker.Option) (*locker.Lock, error)

// takeFrom asks for held's name until it is granted. The result is an error if held was
// still valid then. held is asked after the grant, on the same machine: if it is valid
// then, it was valid at the grant, however slow the machine is.
func (x *trial) takeFrom(held *locker.Lock, how string, ask asking) <-chan error {
	result := make(chan error, 1)
	ctx := x.patientFor(x.h.TTL)
	go func() {
		var lock *locker.Lock
		err := locker.ErrTaken
		for stalled := false; ctx.Err() == nil && (errors.Is(err, locker.ErrTaken) || errors.Is(err, locker.ErrUnavailable) && stalled); {
			time.Sleep(x.h.TTL / 200) // let the others run
			begun := time.Now()
			lock, err = ask(ctx, held.Name(), x.long())
			stalled = time.Since(begun) > x.h.TTL/2 // then it may be refused, and rightly so: see lock
		}
		switch {
		case err != nil:
			err = fmt.Errorf("a name %s, whose lock was not renewed, has not come to another client: %w", how, err)
		case held.Err() == nil:
			err = fmt.Errorf("a name %s was given to another client %v before its holder stops believing", how, time.Until(held.Deadline()))
		}
		result <- err
		if lock != nil {
			_ = lock.Unlock(x.ctx) // another clause checks this
		}
	}()
	return result
}
