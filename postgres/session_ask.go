package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// acquire takes the lock if it is free.
func (a *sessionAttempt) acquire(pg *pgx.Conn) error { return a.ask(pg, false) }

// await takes it when it is free.
func (a *sessionAttempt) await(pg *pgx.Conn) error {
	a.conn.waits.Store(true)
	defer a.conn.waits.Store(false)
	return a.ask(pg, true)
}

// ask leaves no lock behind that its connection does not know of: one outlives the
// error of the statement that took it.
func (a *sessionAttempt) ask(pg *pgx.Conn, wait bool) error {
	patience := a.conn.patience()
	err := pg.QueryRow(context.Background(), sessionAcquire, a.name, a.holder, a.ttl.Milliseconds(), wait, a.conn.change(patience)).Scan(&a.first)
	if err == nil {
		a.conn.kept = patience
		return nil
	}
	a.first = 0
	if !pg.IsClosed() {
		var freed bool
		if pg.QueryRow(context.Background(), sessionRelease, a.name, 0).Scan(&freed) == nil {
			return err
		}
		a.conn.end(nil)
	}
	a.unsure = true
	return err
}

// release gives back what was granted, and reports whether it was still there.
func (a *sessionAttempt) release(pg *pgx.Conn) (mine bool, err error) {
	err = pg.QueryRow(context.Background(), sessionRelease, a.name, a.first).Scan(&mine)
	if err == nil {
		a.first = 0
	}
	return mine, err
}

func (a *sessionAttempt) giveBack(pg *pgx.Conn) error {
	_, err := a.release(pg)
	return err
}

// look asks whether a connection that waits for a lock still does.
func (s *sessionStore) look(ctx context.Context, c *sessionConn) error {
	var waits, there bool
	pid, began, ttl := c.who()
	err := s.over(ctx, ttl, func(ctx context.Context, pg *pgx.Conn) error {
		return pg.QueryRow(ctx, sessionLook, pid, began).Scan(&waits, &there)
	})
	switch {
	case err != nil || waits:
		return err
	case there:
		return errNoSign
	}
	c.end(nil)
	return &locker.LostError{Reason: locker.SessionEnded, Cause: errConnectionLost}
}

// Inspect implements [locker.Inspector].
func (s *sessionStore) Inspect(ctx context.Context, name string) (info locker.Info, err error) {
	var token, left int64
	_, err = s.admin.run(ctx, sessionInspect, []any{name}, &info.Held, &info.Holder, &token, &left, &info.Waiters)
	info.Token, info.TimeLeft = fencing.Token(token), time.Duration(left)*time.Millisecond
	return info, s.explain(ctx, err)
}

// List implements [locker.Lister].
func (s *sessionStore) List(ctx context.Context, prefix string) ([]locker.Info, error) {
	rows, err := s.admin.pool.Query(ctx, sessionList, s.admin.mode, prefix)
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	infos, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (locker.Info, error) {
		var token, left int64
		info := locker.Info{Held: true}
		err := row.Scan(&info.Name, &info.Holder, &token, &left, &info.Waiters)
		info.Token, info.TimeLeft = fencing.Token(token), time.Duration(left)*time.Millisecond
		return info, err
	})
	return infos, s.explain(ctx, err)
}

// Break implements [locker.Breaker]. It is asked once: sent again after a lost answer,
// it would free the next holder's.
func (s *sessionStore) Break(ctx context.Context, name string) (broken bool, err error) {
	err = s.admin.pool.QueryRow(ctx, sessionForce, s.admin.mode, name).Scan(&broken)
	return broken, s.explain(ctx, err)
}
