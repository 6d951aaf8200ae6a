package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/open"
)

const (
	// shortestWait is the shortest --wait that is one. Under it the time would be
	// over before the store could say whether the lock is taken, so it is asked once.
	shortestWait = 10 * time.Millisecond

	// askAgain is the pause before a store is asked again that did not answer.
	askAgain = time.Second

	// explainAfter is how long somebody at a terminal waits before they are told why.
	explainAfter = time.Second
)

// attempt opens the store and asks for the lock, for wait at most where --wait is given.
func (c *runCommand) attempt(ctx context.Context, wait time.Duration) (hold, error) {
	opening, cancel := ctx, context.CancelFunc(func() {})
	if wait < c.wait { // it is not asked for the first time
		opening, cancel = context.WithTimeout(ctx, wait)
	}
	store, err := c.connect(opening)
	cancel()
	if err != nil {
		return hold{}, err
	}
	asked := &asking{Locker: store}
	stop := c.explain(asked, store)
	set, err := c.lockFrom(ctx, asked, wait)
	stop()
	if err != nil {
		return hold{}, errors.Join(err, shut(store))
	}
	return hold{store, set, driver.Now()}, nil
}

func (c *runCommand) lockFrom(ctx context.Context, store locker.Locker, wait time.Duration) (*locker.Set, error) {
	opts := c.options()
	switch {
	case c.noWait, c.wait > 0 && wait < shortestWait:
		return locker.TryLockAll(ctx, store, c.names, opts...)
	case c.wait > 0:
		opts = append(opts, locker.WithWait(wait))
	}
	return locker.LockAll(ctx, store, c.names, opts...)
}

// asking is a Locker that knows which name it was asked for last.
type asking struct {
	locker.Locker
	name atomic.Value
}

func (a *asking) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	a.name.Store(name)
	return a.Locker.Lock(ctx, name, opts...)
}

// mayPass reports whether asking again may help: the store was silent, and has neither
// said that the lock is taken nor refused to serve.
func mayPass(err error) bool {
	silent := errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrOutcomeUnknown)
	return silent && !errors.Is(err, locker.ErrTaken) && !errors.Is(err, locker.ErrRefused)
}

// timeIsUp reports whether err says no more than that --wait is over.
func timeIsUp(err error) bool {
	return mayPass(err) && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, locker.ErrOutcomeUnknown)
}

// rest waits before the store is asked again, and reports whether it is to be.
func rest(ctx context.Context, end driver.Instant) bool {
	left := end.Sub(driver.Now())
	if left < shortestWait {
		return false
	}
	select {
	case <-time.After(min(askAgain, left/2)):
		return true
	case <-ctx.Done():
		return false
	}
}

// remark tells somebody at a terminal what goes on.
func (c *runCommand) remark(format string, args ...any) {
	if !c.quiet && isTerminal(os.Stderr) {
		complain(fmt.Errorf(format, args...))
	}
}

// explain says after a while who has the lock that is waited for. It asks the store
// once, beside the waiting, which neither waits for the answer nor minds an error.
func (c *runCommand) explain(asked *asking, store open.Backend) (stop func()) {
	since := time.Now()
	ctx, stop := context.WithTimeout(context.Background(), explainAfter+askTime)
	time.AfterFunc(explainAfter, func() {
		if ctx.Err() != nil || c.quiet || !isTerminal(os.Stderr) {
			return
		}
		name, _ := asked.name.Load().(string)
		info, err := store.Inspect(ctx, name)
		if ctx.Err() == nil {
			c.remark("waiting for the lock %q since %s: %s", name, since.Format(time.TimeOnly), whoHas(info, err))
		}
	})
	return stop
}

// whoHas says who has a lock.
func whoHas(info locker.Info, err error) string {
	switch {
	case err != nil:
		return "the store does not say who has it"
	case !info.Held:
		return "nobody is seen to have it"
	case info.Kind == locker.KindShared:
		return fmt.Sprintf("it is shared, by %d", len(info.Holders))
	case info.Kind == locker.KindSlots:
		return fmt.Sprintf("%d of %d slots are taken", len(info.Holders), info.Slots)
	case info.Holder == "":
		return "somebody unknown has it"
	}
	return fmt.Sprintf("%q has it, with token %d", info.Holder, info.Token)
}
