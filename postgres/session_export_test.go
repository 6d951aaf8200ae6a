package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Busy keeps the shared connection busy with a statement that does not end by itself,
// and returns a channel with its error.
func Busy(l *SessionLocker) (<-chan error, error) {
	c, err := l.store.live(context.Background())
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() {
		done <- c.begin(func(pg *pgx.Conn) error {
			_, err := pg.Exec(context.Background(), `SELECT pg_sleep(3600)`)
			return err
		}).wait(context.Background())
	}()
	return done, nil
}

// Queued is how many statements have the shared connection, or wait for it.
func Queued(l *SessionLocker) int {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	return int(l.store.shared.wanted.Load())
}

// Connections counts those of a Locker that are open.
func Connections(l *SessionLocker) (shared, extra int) {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if l.store.shared != nil {
		shared = 1
	}
	return shared, l.store.extra
}

// Patience is for how long the server keeps the shared connection in silence.
func Patience(ctx context.Context, l *SessionLocker) (time.Duration, error) {
	c, err := l.store.live(ctx)
	if err != nil {
		return 0, err
	}
	var ms int64
	err = c.begin(func(pg *pgx.Conn) error {
		return pg.QueryRow(ctx, `SELECT setting::bigint FROM pg_settings WHERE name = 'idle_session_timeout'`).Scan(&ms)
	}).wait(ctx)
	return time.Duration(ms) * time.Millisecond, err
}
