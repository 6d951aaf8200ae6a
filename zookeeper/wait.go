package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/zkclient"
)

// untilClosed returns a context that ends with the Locker, too.
func (l *Locker) untilClosed(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(l.closing, func() { cancel(locker.ErrClosed) })
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}

// try takes a place and keeps it only if nobody is ahead.
func (l *Locker) try(ctx context.Context, a *attempt) error {
	ctx, stop := l.untilClosed(ctx)
	defer stop()
	switch err := l.take(ctx, a); {
	case errors.Is(err, errUsedUp):
		return err
	case err != nil:
		return unavailable(err)
	}
	if a.place.alone {
		return nil
	}
	ahead, err := l.look(ctx, a, false)
	switch {
	case err != nil:
		return unavailable(err)
	case ahead != "":
		return locker.ErrTaken
	}
	return nil
}

// wait takes a place, unless the predecessor in the line has left one, and
// returns when nobody is ahead of it.
func (l *Locker) wait(ctx context.Context, a *attempt) error {
	ctx, stop := l.untilClosed(ctx)
	defer stop()
	switch {
	case a.place != nil && a.place.alone:
		return nil
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), locker.ErrClosed): // while it stood in line
		return fmt.Errorf("%w: %w", locker.ErrTaken, context.Cause(ctx))
	}
	err := l.queue(ctx, a)
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), locker.ErrClosed):
		return locker.ErrClosed
	case ctx.Err() != nil && a.usedUp != 0: // by what is there: a holder, or something else
		return unavailable(fmt.Errorf("%w: %w", errUsedUp, context.Cause(ctx)))
	case ctx.Err() != nil && a.told:
		return fmt.Errorf("%w: %w", locker.ErrTaken, context.Cause(ctx))
	case ctx.Err() != nil:
		return unavailable(context.Cause(ctx))
	}
	return err
}

// queue takes a place, and waits for those ahead to go. A connection that breaks
// does not end the wait, for the place is still there: only a silence as long as
// the session timeout does.
func (l *Locker) queue(ctx context.Context, a *attempt) error {
	lastWord := locker.Now()
	for woken := false; ; {
		var held bool
		var err error
		held, woken, err = l.step(ctx, a, woken)
		switch {
		case held:
			return nil
		case err == nil:
			lastWord = locker.Now()
			continue
		case errors.Is(err, errGone):
			l.sweep(a.place) // in case that this was an error: an orphan would block the queue
			a.place = nil    // the next is somewhere at the end
			continue
		case errors.Is(err, errUsedUp):
			lastWord = locker.Now() // the wait goes on
		case ctx.Err() != nil || zkclient.Refused(err) || locker.Now().Sub(lastWord) > a.timeout:
			return unavailable(err)
		case a.place != nil && a.place.path == "":
			l.sweep(a.place)
			a.place, a.former = nil, a.place
		}
		pause(ctx, retryPause)
	}
}

// step takes a place if there is none, looks, and waits once if somebody is
// ahead.
func (l *Locker) step(ctx context.Context, a *attempt, woken bool) (held, wokenAgain bool, err error) {
	if a.place == nil {
		if err := l.take(ctx, a); err != nil || a.place.alone {
			return err == nil, false, err
		}
	}
	ahead, err := l.look(ctx, a, woken)
	if err != nil || ahead == "" {
		return err == nil, false, err
	}
	a.told = true
	woken, err = l.waitFor(ctx, a, ahead)
	return false, woken, err
}

// retryPause keeps a waiter from spinning while the client has no connection.
const retryPause = 50 * time.Millisecond

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// look reports which place comes right before a's, "" if none does: then the
// lock is a's.
//
// A list with our place in it and nobody ahead is a grant, whichever server it
// comes from and however old it is. It shows a state after the place was made,
// for the place is in it; places ahead can only go, never come; so from that
// state on the lock is ours for as long as the place is there. That is as long
// as validity which counts from the transaction that made the place, or last
// found it there: it is what an uncontended lock counts from, too, and no leader
// ends the session sooner. When the event came, and from whom, plays no part. A
// place that somebody deletes after the list was read is found missing by the
// next renewal, as any holder's is.
//
// So the place is confirmed only where too little of that validity is left; with
// likely, in the same round trip.
func (l *Locker) look(ctx context.Context, a *attempt, likely bool) (ahead string, err error) {
	p, since := a.place, locker.Now()
	var confirmed <-chan zkclient.Reply[[]zk.MultiResponse]
	if likely && a.stale() {
		confirmed = l.confirm(ctx, p)
	}
	children, err := l.children(ctx, p.parent)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return "", err
	}
	if !slices.Contains(children, p.node) {
		return "", errGone
	}
	_, _, ahead = inLine(children, p.node)
	if ahead != "" || confirmed == nil && !a.stale() { // the list may have taken long
		return ahead, nil
	}
	if confirmed == nil {
		since = locker.Now()
		confirmed = l.confirm(ctx, p)
	}
	_, err = zkclient.Await(ctx, confirmed)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return "", errGone
	case err == nil:
		p.since = since
	}
	return "", err
}

// stale reports whether a grant must not count from when the place was made or
// last confirmed: half of that validity is over, or the caller has wishes that
// lean on its beginning.
func (a *attempt) stale() bool {
	plain := a.req.Renew && a.req.MaxHold == 0 && a.req.MinValidity == 0
	return !plain || locker.Now().Sub(a.place.since) > a.req.TTL/2
}

// waitFor returns when the place ahead has gone or changed (then woken is true),
// or when it is time to look without having been told: the zk client sets its
// watches again after a broken connection, and drops them if that fails.
func (l *Locker) waitFor(ctx context.Context, a *attempt, ahead string) (woken bool, err error) {
	fired, err := l.watch(ctx, a.place.parent+"/"+ahead)
	if err != nil {
		return false, err
	}
	timer := time.NewTimer(max(a.timeout, time.Second))
	defer timer.Stop()
	select {
	case <-fired:
		return true, nil
	case <-timer.C:
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// watch returns a channel that closes when a node has gone or changed. The zk
// client cannot take a watch back, so one that a waiter has left is kept and
// shared with the next who waits for the same node: a hundred attempts with a
// short patience leave one watch, not a hundred.
func (l *Locker) watch(ctx context.Context, path string) (<-chan struct{}, error) {
	l.mu.Lock()
	fired := l.watches[path]
	l.mu.Unlock()
	if fired != nil {
		return fired, nil
	}
	return zkclient.Call(ctx, l.zk, func() (<-chan struct{}, error) {
		_, _, events, err := l.zk.GetW(path)
		fired := make(chan struct{})
		switch {
		case errors.Is(err, zk.ErrNoNode):
			close(fired)
			return fired, nil
		case err != nil:
			return nil, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.watches[path] = fired
		go func() {
			select {
			case <-events:
			case <-l.closing.Done():
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.watches[path] == fired {
				delete(l.watches, path)
			}
			close(fired)
		}()
		return fired, nil
	})
}
