package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/async"
	"github.com/lockstile/locker/open"
)

const (
	// shortestWait is the shortest --wait that is one. Under it the time would be
	// over before the store could say whether the lock is taken, so it is asked once.
	shortestWait = 10 * time.Millisecond

	// askAgain is the pause before a store is asked again that did not answer.
	askAgain = time.Second

	// explainAfter is how long somebody waits before they are told why.
	explainAfter = 2 * time.Second

	// nameTime bounds how long it takes to find out who has a lock that was refused.
	nameTime = time.Second
)

// wanted is the locks that a command asks for, and how it waits for them.
type wanted struct {
	*backend
	names     []string
	ttl, wait time.Duration // wait is 0 if it is not given
	noWait    bool
	holder    string
	more      []locker.Option // beside those of the fields
	detached  bool            // the one lock is to leave the process: it is in no Set

	who string // who has the lock that was refused; "" if nobody has asked
}

func (c *wanted) flags() []cli.Flag {
	return []cli.Flag{
		durationFlag("wait", "wait for the lock for `DURATION` at most, and meanwhile ask a store again that\n\tcannot be reached; default: wait for ever, but not for a store", &c.wait, 0),
		boolFlag("no-wait", "do not wait for the lock at all", &c.noWait),
		&cli.StringFlag{Name: "holder", Usage: "show `TEXT` to others as the holder; default: the process and its machine", Destination: &c.holder},
		boolFlag("quiet", "say nothing about waiting and about a lock that is taken", &c.quiet),
	}
}

// agree returns an error if what is wanted does not go together.
func (c *wanted) agree() error {
	if c.noWait && c.wait > 0 {
		return errors.New("--wait and --no-wait exclude each other")
	}
	if err := c.check(); err != nil {
		return err
	}
	for _, name := range c.names {
		if _, err := driver.NewRequest(nil, name, c.options()...); err != nil {
			return err
		}
	}
	return nil
}

func (c *wanted) options() []locker.Option {
	opts := append([]locker.Option{locker.WithTTL(c.ttl)}, c.more...)
	if c.holder != "" {
		opts = append(opts, locker.WithHolder(c.holder))
	}
	return opts
}

// what names the locks.
func (c *wanted) what() string {
	if len(c.names) == 1 {
		return fmt.Sprintf("the lock %q", c.names[0])
	}
	return fmt.Sprintf("the locks %q", c.names)
}

// get waits for the locks until it has them or a signal ends the wait. Without them the hold has no store.
func (c *wanted) get(signals <-chan os.Signal) (h hold, status int, err error) {
	ended := until(signals, func(ctx context.Context) { h, err = c.acquire(ctx) })
	if ended != nil || err != nil {
		status, err = c.notHeld(h, err, ended)
		h = hold{}
	}
	return h, status, err
}

// notHeld explains why there is no lock: there is an error, or a signal came, maybe when the lock had just been granted.
func (c *wanted) notHeld(h hold, err error, ended *signalError) (int, error) {
	status := statusOf(err)
	switch {
	case ended != nil && err == nil:
		return ended.status(), h.giveBack()
	case ended != nil && !errors.Is(err, locker.ErrOutcomeUnknown):
		return ended.status(), fmt.Errorf("waiting for %s was %w", c.what(), ended)
	case errors.Is(err, locker.ErrOutcomeUnknown):
		return status, fmt.Errorf("%w; the name may stay locked, by nobody, for up to %v (--ttl)", err, c.ttl)
	case c.wait > 0 && mayPass(err):
		return status, fmt.Errorf("%w; it was asked for %v (--wait)", err, c.wait)
	case status != exitTaken:
		return status, err
	}
	waited := "(--no-wait)"
	if c.wait > 0 {
		waited = fmt.Sprintf("and stayed so for %v (--wait)", c.wait)
	}
	if c.who != "" {
		waited += ": " + c.who
	}
	if len(c.names) > 1 {
		return status, fmt.Errorf("%w %s", err, waited)
	}
	return status, fmt.Errorf("%s is taken %s", c.what(), waited)
}

// hold is locks and the store that granted them.
type hold struct {
	store   open.Backend
	set     *locker.Set
	lock    *locker.Lock   // in place of a set, of a lock that is to be detached
	granted driver.Instant // not before the store granted it
}

// acquire gets the lock. With --wait it asks again while the store is silent.
func (c *wanted) acquire(ctx context.Context) (hold, error) {
	end := driver.Now().Add(c.wait)
	h, err := c.attempt(ctx, c.wait)
	for told := false; c.wait > 0 && mayPass(err) && rest(ctx, end); told = true {
		if !told {
			c.remark("the store is asked again until --wait %v is over: %w", c.wait, err)
		}
		again := error(nil)
		h, again = c.attempt(ctx, end.Sub(driver.Now()))
		if !timeIsUp(again) { // else what was said before tells more
			err = again
		}
	}
	return h, err
}

// attempt opens the store and asks for the lock, for wait at most where --wait is given.
func (c *wanted) attempt(ctx context.Context, wait time.Duration) (hold, error) {
	opening, cancel := ctx, context.CancelFunc(func() {})
	if wait < c.wait { // it is not asked for the first time
		opening, cancel = context.WithTimeout(ctx, wait)
	}
	store, err := c.connect(opening)
	cancel()
	if err != nil {
		return hold{}, err
	}
	asked := &asking{Backend: store}
	h := hold{store: store}
	if err = c.canDetach(store); err == nil {
		stop := c.explain(asked)
		err = c.lockFrom(ctx, asked, wait, &h)
		stop()
	}
	if err != nil {
		if errors.Is(err, locker.ErrTaken) && !c.quiet && ctx.Err() == nil {
			within, cancel := context.WithTimeout(context.Background(), nameTime)
			_, c.who = asked.holder(within)
			cancel()
		}
		return hold{}, errors.Join(err, shut(store))
	}
	h.granted = driver.Now()
	return h, nil
}

func (c *wanted) lockFrom(ctx context.Context, store locker.Locker, wait time.Duration, h *hold) (err error) {
	lock, lockAll, opts := store.Lock, locker.LockAll, c.options()
	switch {
	case c.noWait, c.wait > 0 && wait < shortestWait:
		lock, lockAll = store.TryLock, locker.TryLockAll
	case c.wait > 0:
		opts = append(opts, locker.WithWait(wait))
	}
	if c.detached {
		h.lock, err = lock(ctx, c.names[0], opts...)
	} else {
		h.set, err = lockAll(ctx, store, c.names, opts...)
	}
	return err
}

// asking is a Backend that knows which name it was asked for last.
type asking struct {
	open.Backend
	name atomic.Value
}

func (a *asking) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	a.name.Store(name)
	return a.Backend.Lock(ctx, name, opts...)
}

func (a *asking) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	a.name.Store(name)
	return a.Backend.TryLock(ctx, name, opts...)
}

// holder says who has the lock that was asked for.
func (a *asking) holder(ctx context.Context) (name, who string) {
	name, _ = a.name.Load().(string)
	return name, whoHas(a.Inspect(ctx, name))
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

// explain says after a while who has the lock that is waited for. It asks the store
// once, beside the waiting, which neither waits for the answer nor minds an error.
func (c *wanted) explain(asked *asking) (stop func()) {
	since := time.Now()
	ctx, stop := context.WithTimeout(context.Background(), explainAfter+askTime)
	time.AfterFunc(explainAfter, func() {
		if ctx.Err() != nil {
			return
		}
		if name, who := asked.holder(ctx); ctx.Err() == nil {
			c.remark("waiting for the lock %q since %s: %s", name, since.Format(time.TimeOnly), who)
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
	case info.Kept:
		return fmt.Sprintf("nobody has it, and it is kept for another %v (minimum hold)", info.TimeLeft.Round(time.Millisecond))
	case info.Kind == locker.KindShared:
		return fmt.Sprintf("it is shared, by %d", len(info.Holders))
	case info.Kind == locker.KindSlots:
		return fmt.Sprintf("%d of %d slots are taken", len(info.Holders), info.Slots)
	case info.Holder == "":
		return "somebody unknown has it"
	}
	has := fmt.Sprintf("%q has it, with token %d", info.Holder, info.Token)
	if info.TimeLeft > 0 {
		has += fmt.Sprintf(", for another %v unless it is renewed", info.TimeLeft.Round(time.Millisecond))
	}
	return has
}

// giveBack unlocks and closes. Its errors are for the user.
func (h hold) giveBack() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), partingTime, fmt.Errorf("no answer within %v", partingTime))
	defer cancel()
	unlock := h.set.Unlock
	if h.lock != nil {
		unlock = h.lock.Unlock
	}
	err := async.Do(ctx, func() error { return unlock(ctx) })
	if err != nil && !errors.Is(err, locker.ErrLost) {
		err = fmt.Errorf("warning: the lock could not be given back and stays taken until it ends by itself: %w", err)
	}
	return errors.Join(err, closeWithin(ctx, h.store))
}
