package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/chores"
)

// leeway lets the server's clock pass the millisecond that it spoke of.
const leeway = 2 * time.Millisecond

// ask asks the store, and notes a grant in a.
func (q *queue) ask(ctx context.Context, a *attempt, queue bool, ticket int64) (standing, error) {
	since := locker.Now()
	if err := q.post.bind(ctx, a.lease); err != nil {
		return standing{}, classify(err)
	}
	s, err := q.store.acquire(ctx, a.lease, queue, q.post.channel(), q.post.poll(), ticket)
	if err == nil && s.token != 0 {
		a.token, a.since = s.token, since
		a.lease.onDisk.Store(int64(since))
	}
	return s, err
}

// wait asks until the lock is ours. The first question of a Locker to which
// nobody has listened yet is asked without queueing: most locks are free, and
// listening costs a connection.
func (q *queue) wait(ctx context.Context, a *attempt) error {
	switch {
	case a.token != 0:
		return nil // handed over by our predecessor in the line
	case q.closing.Err() != nil:
		return locker.ErrClosed
	case ctx.Err() != nil: // while it stood in line
		return fmt.Errorf("%w: %w", locker.ErrTaken, context.Cause(ctx))
	}
	told := false
	if q.post.channel() == "" {
		s, err := q.ask(ctx, a, false, 0)
		switch {
		case err != nil:
			return q.gaveUp(ctx, told, err)
		case s.token != 0:
			return nil
		}
		told = true
		if err := q.post.open(ctx); err != nil {
			return q.gaveUp(ctx, told, classify(err))
		}
	}
	box := q.mail.open(a.lease.value)
	defer q.mail.drop(a.lease.value)
	var ticket int64
	for {
		s, err := q.ask(ctx, a, true, ticket)
		a.queued = true
		if err != nil {
			return q.gaveUp(ctx, told, err)
		}
		if s.token != 0 {
			return nil
		}
		told, ticket = true, s.ticket
		if err := q.sleep(ctx, box, q.nextLook(s)); err != nil {
			return err
		}
	}
}

// nextLook is when the lock must have come to us, if everybody before us in the
// queue has died without a word: when the lease ends, and one claim time later
// for each of them. That is when we look again unless a letter comes first.
func (q *queue) nextLook(s standing) time.Duration {
	look := s.left + time.Duration(s.ahead)*claimTime + leeway
	if poll := q.post.poll(); poll > 0 {
		look = min(look, poll)
	}
	return look
}

// sleep returns nil when it is time to look.
func (q *queue) sleep(ctx context.Context, box <-chan letter, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case l := <-box:
			if l != standBy {
				return nil
			}
			timer.Reset(claimTime + leeway)
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", locker.ErrTaken, context.Cause(ctx))
		case <-q.closing.Done():
			return locker.ErrClosed
		}
	}
}

// gaveUp explains the end of a wait. It was for a lock that is taken if the server has
// told us so.
func (q *queue) gaveUp(ctx context.Context, told bool, err error) error {
	switch {
	case q.closing.Err() != nil:
		return locker.ErrClosed
	case ctx.Err() != nil && told:
		return fmt.Errorf("%w: %w", locker.ErrTaken, context.Cause(ctx))
	}
	return err
}

// cleanUp removes what an attempt has left, and reports whether that was
// confirmed before the caller lost patience. It does not stop when the caller's
// context is over: that is when it is needed most.
func (q *queue) cleanUp(l *lease) bool {
	select {
	case ok := <-q.cleanUpLater(l):
		return ok
	case <-time.After(confirmTime):
		return false
	}
}

// cleanUpLater removes what is left of a lease in the background. A session that
// may still hold an advisory lock which nobody here knows of any more is ended.
func (q *queue) cleanUpLater(l *lease) <-chan bool {
	done, cleaned := make(chan bool, 1), make(chan struct{})
	l.cleaned = cleaned
	q.chores.Go(func() {
		ok := chores.Persist(q.closing, func(ctx context.Context) error { return q.post.withdraw(ctx, l, false) })
		if !ok && l.session != nil {
			l.session.hangUp()
		}
		close(cleaned)
		done <- ok
	})
	return done
}

// leave passes the turn on, in a session after the clean-up: the server counts the
// advisory locks of a connection together, and a lock that is granted once more
// before it was given back is given back once only.
func (q *queue) leave(a *attempt) {
	cleaned := a.lease.cleaned
	if a.lease.session == nil || cleaned == nil {
		a.turn.Leave()
		return
	}
	select {
	case <-cleaned:
		a.turn.Leave()
	default:
		q.chores.Go(func() {
			<-cleaned
			a.turn.Leave()
		})
	}
}

// returnTurn gives back a reservation that came for a waiter who has gone. It
// does not touch a lock that is held under the same value: a letter may be
// slower than the waiter, who looked by itself and has the lock already.
func (q *queue) returnTurn(value, name string) {
	q.chores.Go(func() {
		chores.Persist(q.closing, func(ctx context.Context) error {
			return q.post.withdraw(ctx, &lease{name: name, value: value}, true)
		})
	})
}

// sweep clears away what dead processes have left. Nothing depends on it.
func (q *queue) sweep() {
	q.chores.Go(func() {
		ctx, cancel := context.WithTimeout(q.closing, answerTime)
		defer cancel()
		_, _ = q.admin.run(ctx, nil, `SELECT lockstile_sweep() WHERE $1`, []any{true}, nil)
	})
}
