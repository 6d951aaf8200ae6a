package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker/driver"
)

// current is the shared connection, which is opened if need be.
func current(l *SessionLocker) *sessionConn {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	return l.store.current()
}

// Busy keeps the shared connection busy with a statement that does not end by itself,
// and returns a channel with its error.
func Busy(l *SessionLocker) <-chan error {
	done := make(chan error, 1)
	go func() {
		done <- current(l).begin(func(pg *pgx.Conn) error {
			_, err := pg.Exec(context.Background(), `SELECT pg_sleep(3600)`)
			return err
		}).wait(context.Background())
	}()
	return done
}

// Connections counts those of a Locker that are open.
func Connections(l *SessionLocker) (shared, extra int) {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if l.store.shared != nil {
		shared = 1
	}
	return shared, len(l.store.extra)
}

// Setting is what a setting of the server's is on the shared connection.
func Setting(ctx context.Context, l *SessionLocker, name string) (value int64, err error) {
	err = current(l).begin(func(pg *pgx.Conn) error {
		return pg.QueryRow(ctx, `SELECT setting::bigint FROM pg_settings WHERE name = $1`, name).Scan(&value)
	}).wait(ctx)
	return value, err
}

// Users counts the attempts that are in the books of a Locker's connections.
func Users(l *SessionLocker) (n int) {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	for c := range l.store.extra {
		n += len(c.users) + len(c.ttls)
	}
	if c := l.store.shared; c != nil {
		n += len(c.users) + len(c.ttls)
	}
	return n
}

// SessionGone says whether a connection is gone, by its number and its beginning, and ends it
// if it is told to.
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

// Await has a connection of its own wait for a name. Look looks for it as if its process
// in the server had begun so much later, and says whether it has been given up.
func Await(l *SessionLocker, name string) (look func(later int64) error, end func(), err error) {
	a, err := begin(l.store, name)
	if err == nil {
		err = l.store.own(a)
	}
	if err != nil {
		return nil, nil, err
	}
	a.asked = a.conn.begin(func(pg *pgx.Conn) error { return a.ask(pg, true) })
	look = func(later int64) error {
		l.store.mu.Lock()
		a.conn.began += later
		l.store.mu.Unlock()
		l.store.look(context.Background(), a.conn, answerTime)
		return a.conn.ended()
	}
	return look, func() {
		_ = l.store.Withdraw(context.Background(), a)
		l.store.End(a)
	}, nil
}

// EndUnanswered has an attempt end whose request the server has not answered within ctx.
func EndUnanswered(ctx context.Context, l *SessionLocker, name string) error {
	a, err := begin(l.store, name)
	if err != nil {
		return err
	}
	_, err = l.store.try(ctx, a)
	l.store.End(a)
	return err
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

// Shared returns when the shared connection is open, and a function that ends it.
func Shared(ctx context.Context, l *SessionLocker) (end func(), err error) {
	c := current(l)
	err = c.begin(func(pg *pgx.Conn) error { return pg.Ping(context.Background()) }).wait(ctx)
	return func() { c.end(errConnectionLost) }, err
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
