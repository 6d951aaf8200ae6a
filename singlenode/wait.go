package singlenode

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/chores"
	"github.com/lockstile/locker/internal/redisnode"
)

// try asks once.
func (l *Locker) try(ctx context.Context, a *attempt) error {
	standing, err := l.ask(ctx, a, false, 0)
	if err == nil && standing.Token == 0 {
		return locker.ErrTaken
	}
	return err
}

// ask asks the store, and notes a grant in a.
func (l *Locker) ask(ctx context.Context, a *attempt, queue bool, ticket int64) (redisnode.Standing, error) {
	since := locker.Now()
	standing, err := l.node.Acquire(ctx, &a.lease, queue, ticket)
	if err == nil && standing.Token != 0 {
		a.token, a.since = standing.Token, since
	}
	return standing, err
}

// wait asks until the lock is ours. The first question of a Locker to which
// nobody has listened yet is asked without queueing: most locks are free, and
// the subscription costs a connection.
func (l *Locker) wait(ctx context.Context, a *attempt) error {
	switch {
	case a.token != 0:
		return nil // handed over by our predecessor in the line
	case l.closing.Err() != nil:
		return locker.ErrClosed
	}
	if !l.mail.Listening() {
		if standing, err := l.ask(ctx, a, false, 0); err != nil || standing.Token != 0 {
			return err
		}
	}
	box, err := l.mail.Open(ctx, a.lease.Value)
	if err != nil {
		return l.ended(ctx, err)
	}
	defer l.mail.Drop(a.lease.Value)
	return l.queue(ctx, a, box)
}

// queue waits in the store. Every look there is answered with the end of the
// holder's lease, and that is when we look again unless a letter comes first.
func (l *Locker) queue(ctx context.Context, a *attempt, box <-chan redisnode.Letter) error {
	var ticket int64
	for {
		standing, err := l.ask(ctx, a, true, ticket)
		a.queued = true
		if err != nil {
			return l.ended(ctx, err)
		}
		if standing.Token != 0 {
			return nil
		}
		ticket = standing.Ticket
		if err := l.sleep(ctx, box, l.nextLook(standing)); err != nil {
			return err
		}
	}
}

// nextLook is when the lock must have come to us, if everybody before us in the
// queue has died without a word: when the lease ends, and one claim time later
// for each of them. A Cluster drops letters where its masters have lost each other,
// so there we look sooner, and the later the more there are before us.
func (l *Locker) nextLook(s redisnode.Standing) time.Duration {
	if s.Left < 0 {
		return time.Second // somebody's key without an expiry: nothing will tell us that it was deleted
	}
	end := s.Left + time.Duration(s.Ahead)*redisnode.ClaimTime + leeway
	if l.isCluster {
		return min(end, time.Duration(1+s.Ahead)*clusterLook)
	}
	return end
}

// clusterLook is when the first of a queue in a Cluster looks whether it missed its
// turn.
const clusterLook = 5 * time.Second

// leeway lets the server's clock pass the millisecond that it spoke of.
const leeway = 2 * time.Millisecond

// sleep returns nil when it is time to look.
func (l *Locker) sleep(ctx context.Context, box <-chan redisnode.Letter, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case letter := <-box:
			if letter != redisnode.StandBy {
				return nil
			}
			timer.Reset(redisnode.ClaimTime + leeway)
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", locker.ErrTaken, context.Cause(ctx))
		case <-l.closing.Done():
			return locker.ErrClosed
		}
	}
}

// ended explains the end of a wait for a lock that is known to be taken.
func (l *Locker) ended(ctx context.Context, err error) error {
	switch {
	case l.closing.Err() != nil:
		return locker.ErrClosed
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", locker.ErrTaken, context.Cause(ctx))
	}
	return err
}

// leftSomething reports whether a failed attempt may have left anything in the
// store.
func (l *Locker) leftSomething(a *attempt) bool {
	return a.queued || a.token != 0 || a.lease.Unsure()
}

// cleanUp removes what an attempt has left, and reports whether that was
// confirmed before the caller lost patience. It does not stop when the caller's
// context is over: that is when it is needed most.
func (l *Locker) cleanUp(lease *redisnode.Lease) bool {
	select {
	case ok := <-l.sweepLater(lease):
		return ok
	case <-time.After(confirmTime):
		return false
	}
}

// sweepLater removes what is left of a lease in the background.
func (l *Locker) sweepLater(lease *redisnode.Lease) <-chan bool {
	done := make(chan bool, 1)
	l.chores.Go(func() {
		done <- chores.Persist(l.closing, func(ctx context.Context) error { return l.node.Withdraw(ctx, lease) })
	})
	return done
}

// returnTurn gives back a reservation that came for a waiter who has gone.
func (l *Locker) returnTurn(value, key string) {
	l.chores.Go(func() {
		chores.Persist(l.closing, func(ctx context.Context) error { return l.node.ReturnTurn(ctx, value, key) })
	})
}
