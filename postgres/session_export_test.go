package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker/driver"
)

// Connections counts those that a Locker has, and those among them that nobody has.
func Connections(l *SessionLocker) (open, spare int) {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	return len(l.store.open), len(l.store.spare)
}

// Stretch sets for how long a statement waits.
func Stretch(l *SessionLocker, d time.Duration) { l.store.stretch = d }

// Setting is what a setting of the server's is on a connection that nobody has.
func Setting(ctx context.Context, l *SessionLocker, name string) (value int64, err error) {
	c, err := l.store.take(ctx)
	if err != nil {
		return 0, err
	}
	defer l.store.keep(c, time.Minute)
	err = c.use(ctx, func(pg *pgx.Conn) error {
		return pg.QueryRow(ctx, `SELECT setting::bigint FROM pg_settings WHERE name = $1`, name).Scan(&value)
	})
	return value, err
}

// AskAtTheEnd has a connection granted a lock just when the context of the question has ended, and the connection with it.
// It returns what the question was answered, and whether whoever was granted the lock was told of the end.
func AskAtTheEnd(ctx context.Context, l *SessionLocker) (told bool, err error) {
	a, err := begin(l.store, "a")
	if err != nil {
		return false, err
	}
	c, err := l.store.take(ctx)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	err = c.ask(ctx, func(*pgx.Conn) error {
		cancel()
		<-c.ctx.Done()
		c.holder.Store(a)
		return nil
	})
	return c.holder.Load() == nil, err
}

// SessionGone ends a process of the server, by its number and its beginning.
const SessionGone = sessionGone

// begin begins an attempt at a name.
func begin[A any](s interface {
	Begin(req *driver.Request) (A, error)
}, name string,
) (a A, err error) {
	req, err := driver.NewRequest(nil, name)
	if err != nil {
		return a, err
	}
	return s.Begin(req)
}

// SweepDue lets the time pass until what the dead have left is cleared away again.
func SweepDue(l *Locker) { l.store.sweeps.Add(-int64(sweepEvery)) }

// LateRequest has an attempt granted a name, and gives it back, while an earlier request of the
// attempt is on its way that has no answer. It returns what that is answered when it arrives.
func LateRequest(ctx context.Context, l *Locker, name string) error {
	a, err := begin(l.store, name)
	if err != nil {
		return err
	}
	a.unsure = true // as after a request whose answer was lost
	if grant, _, err := l.store.ask(ctx, a, false); err != nil || grant.Count == 0 {
		return fmt.Errorf("not granted: %+v, %w", grant, err)
	}
	if err := l.store.Release(ctx, a, 0); err != nil {
		return err
	}
	_, _, err = l.store.ask(ctx, a, false)
	return err
}

// Keep has an attempt granted a name, and gives it back with so much left of its minimum hold.
func Keep(ctx context.Context, l *Locker, name string, left time.Duration) error {
	a, err := begin(l.store, name)
	if err != nil {
		return err
	}
	if _, _, err := l.store.ask(ctx, a, false); err != nil {
		return err
	}
	return l.store.Release(ctx, a, left)
}

// ErrWithdrawn is what a request gets that arrives too late.
var ErrWithdrawn = errWithdrawn

// Level is the isolation level of a connection that nobody has.
func Level(ctx context.Context, l *SessionLocker) (level string, err error) {
	c, err := l.store.take(ctx)
	if err != nil {
		return "", err
	}
	defer l.store.keep(c, time.Minute)
	err = c.use(ctx, func(pg *pgx.Conn) error { return pg.QueryRow(ctx, `SHOW transaction_isolation`).Scan(&level) })
	return level, err
}
