package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstile/locker"
)

// breath is the pause before a question is asked again that was not answered.
const breath = 100 * time.Millisecond

// errSession is the cause of the end of a context when the session has ended.
var errSession = errors.New("the session has ended")

// try asks once.
func (l *Locker) try(ctx context.Context, a *attempt) error {
	return l.onSession(ctx, a, func(ctx context.Context) error {
		ahead, err := a.take(ctx, true)
		if err == nil && ahead != "" {
			err = locker.ErrTaken
		}
		return err
	})
}

// wait asks until the lock is ours.
func (l *Locker) wait(ctx context.Context, a *attempt) error {
	switch {
	case a.granted:
		return nil // handed over by our predecessor in the line
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", locker.ErrTaken, context.Cause(ctx))
	}
	return l.onSession(ctx, a, a.queue)
}

// onSession calls f with a context that ends with the session too, and calls it
// again on a new session if that was the reason for which it failed: the place
// in the queue is gone then.
func (l *Locker) onSession(ctx context.Context, a *attempt, f func(context.Context) error) error {
	for {
		if a.session == nil {
			if err := l.join(ctx, a); err != nil {
				return l.ended(ctx, a, err)
			}
		}
		err := a.whileAlive(ctx, f)
		if err == nil || ctx.Err() != nil || l.closing.Err() != nil || a.session.hold.Err() == nil {
			return l.ended(ctx, a, err)
		}
		if a.place != 0 || a.doubt {
			a.former = a.session // what we have there goes with its lease
		}
		a.session.leave()
		a.session = nil
	}
}

// whileAlive calls f with a context that ends with the session and the Locker,
// and renews the session at the same time where validate would have to do it
// afterwards.
func (a *attempt) whileAlive(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	waiting := a.session.waiting
	stop := context.AfterFunc(waiting, func() { cancel(context.Cause(waiting)) })
	defer stop()
	if a.since = a.session.since(); a.plain() || a.since >= a.asked {
		return f(ctx)
	}
	var renewal sync.WaitGroup
	renewal.Go(func() { a.since, _ = a.session.keepAlive(ctx) }) // if it fails, validate tries again
	err := f(ctx)
	if err != nil {
		cancel(nil)
	}
	renewal.Wait()
	return err
}

// queue takes a place and waits until nobody is ahead.
func (a *attempt) queue(ctx context.Context) error {
	ahead, err := a.take(ctx, false)
	for !a.granted && ctx.Err() == nil {
		switch {
		case err == nil:
			ahead, err = a.follow(ctx, ahead)
		case errors.Is(err, errPlaceLost): // by hand: the end of the session ends ctx
			a.place, a.mod = 0, 0
			ahead, err = a.take(ctx, false)
		case a.place == 0 || a.hopeless(err):
			return err
		default: // we have a place, and the servers do not answer: they may again before the session ends
			pause(ctx, breath)
			ahead, err = a.look(ctx)
		}
	}
	if !a.granted && err == nil {
		err = context.Cause(ctx)
	}
	return err
}

// follow waits until the key ahead is deleted, and returns the one that is ahead
// then. A watch that it opens begins now and not at a past revision: the servers
// serve those with a delay. What has happened between our place and its beginning
// is looked up; word from before our place tells nothing that we did not know
// when we got the place.
func (a *attempt) follow(ctx context.Context, ahead string) (string, error) {
	l := a.session.owner
	w := l.watch(ctx, a.folder, ahead)
	patience := askTime
	for {
		at, ok := w.next(ctx, patience)
		switch {
		case !ok:
			pause(ctx, breath) // there is no watch any more: at least we look
		case 0 < at && at <= a.place:
			continue
		}
		// The watch may be silent for ever, if its server is. So we look
		// once in a TTL, by which time a dead holder's lease is over, and
		// early on, lest a watch that was kept is silent already. One that
		// was is not relied on any longer: another is opened.
		a.asked = locker.Now()
		now, err := a.lookAt(ctx, at)
		switch {
		case a.granted && at != 0:
			l.keep(a.folder, w)
			return "", nil
		case err != nil || now != ahead || at == 0:
			w.cancel()
			return now, err
		}
		patience = a.session.ttl
	}
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// ended explains why there is no lock.
func (l *Locker) ended(ctx context.Context, a *attempt, err error) error {
	switch {
	case err == nil || errors.Is(err, locker.ErrTaken):
		return err
	case l.closing.Err() != nil:
		return locker.ErrClosed
	case ctx.Err() != nil && a.place != 0:
		return fmt.Errorf("%w: %w", locker.ErrTaken, context.Cause(ctx))
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", locker.ErrUnavailable, context.Cause(ctx))
	}
	return err
}
