package postgres

import (
	"context"

	"github.com/lockstile/locker"
)

// Busy keeps the session's connection busy with a statement that does not end by
// itself, and returns a channel with its error.
func Busy(s *SessionLocker) (<-chan error, error) {
	sess, err := s.live(context.Background())
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() {
		var slept bool
		done <- sess.do(context.Background(), `SELECT pg_sleep(3600) IS NULL`, nil, []any{&slept})
	}()
	return done, nil
}

// Queued is how many statements wait for the session's connection.
func Queued(s *SessionLocker) int {
	sess, err := s.live(context.Background())
	if err != nil {
		return -1
	}
	sess.mu.Lock()
	defer sess.mu.Unlock()
	return len(sess.calls)
}

// PassOn is passOn for a lock of held's that next waits for.
func PassOn(held, next *locker.Request, onDisk locker.Instant, ofSession bool) (since locker.Instant, quick bool) {
	a := &attempt{req: held, lease: newLease(held)}
	a.lease.onDisk.Store(int64(onDisk))
	if ofSession {
		a.lease.session = &session{}
	}
	if next == nil {
		return a.passOn(nil)
	}
	return a.passOn(&attempt{req: next})
}

// InLine is how many have the name or wait for it in this process.
func InLine(l locker.Locker, name string) int {
	if s, ok := l.(*SessionLocker); ok {
		return s.queue.lines.Len(name)
	}
	return l.(*Locker).queue.lines.Len(name)
}

// OnDisk takes a lock, and answers since when its lease is known to be on disk. It
// also returns a function that renews it and answers the same.
func OnDisk(ctx context.Context, l *Locker, name string) (locker.Instant, func() (locker.Instant, error), error) {
	a, err := l.queue.newAttempt(ctx, name, nil)
	if err != nil {
		return 0, nil, err
	}
	_, err = l.queue.ask(ctx, a, false, 0)
	known := func() locker.Instant { return locker.Instant(a.lease.onDisk.Load()) }
	return known(), func() (locker.Instant, error) {
		err := l.queue.admin.renew(ctx, []*lease{a.lease})[0]
		return known(), err
	}, err
}
