package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// SessionLocker grants advisory locks of the server. They have no lease: the server
// frees them when their connection ends. See [NewSession]. It implements [locker.Locker],
// [locker.Inspector], [locker.Breaker] and [locker.Lister].
//
// Inspect shows a holder that is none of ours, a transaction for example, with neither text nor token, and
// without a number if it shares the lock. List does not show what others hold, whose names
// the server does not know.
//
// Break ends the holder's connection: there is no
// other way to free an advisory lock from outside. The role must be the holder's own, or one that may signal backends.
// A prepared transaction has no connection: then Break is an error. After any other
// error the connection may have been ended.
type SessionLocker struct {
	driver.Methods
	opts  Options
	store *sessionStore
}

// NewSession returns a Locker whose locks are advisory locks of the server, with
// the key hashtextextended(name, 0). It excludes everybody who takes that key with
// pg_advisory_lock, in psql for example, or with [LockTx], and the leases of [New]. Two names with the same
// hash exclude each other as well.
//
// A lock lives on a connection of its own, and so does a wait for one. The goroutines of a process need one
// connection a name between them; those that share a lock may need one each. A Locker has 32 of them at
// most, or as many as the pool may have (MaxConns), if that is more: the next lock is refused. These
// connections have the pool's settings and hooks, and do not count in the pool. After a lock they are kept
// for the next one, for a TTL and a minute at most. They must lead to the server directly: a
// pooler in between is refused. For thousands of locks use [New].
//
// A wait is a statement, which keeps a snapshot for as long as it goes on, and VACUUM and CREATE INDEX
// CONCURRENTLY wait for old snapshots. So a wait ends on the server after 20 seconds, give or take a quarter, and begins
// anew. A migration with CREATE INDEX CONCURRENTLY under such a lock goes on when all that wait for it have begun anew, and
// candidates of an election hold back no VACUUM. Waiters are served in order of arrival as long as
// nobody has to begin anew. A writer that waits for readers begins anew with a turn, the key hashtextextended(name, 1), which keeps out later
// readers: those who take the other key by hand, or with [LockTx], may come first then.
//
// Shared locks ([locker.WithShared]) are those of pg_advisory_lock_shared with the same key. There are no slots.
//
// When a connection breaks, its lock is lost, and the holder is notified at once.
// The server may not have noticed, so it is asked over the pool to end that connection. Silence is loss too, on both
// sides. A connection with a lock is asked for a sign of life three times per TTL, and a lock whose TTL ends
// without an answer is lost. The server in turn ends a connection on which nothing has arrived for a second more
// than the TTL (idle_session_timeout, set for this connection alone). It drops a waiter that it cannot
// reach for so long, and one whose process has ended (tcp_user_timeout, client_connection_check_interval).
//
// A proxy that is stopped, or a firewall that forgets, may end a connection on the
// server's side alone. The server frees its lock at once and gives it to others,
// while the holder hears nothing and believes until its TTL ends. Where both sides of a
// connection are ended, or the holder's machine is busy, the server may hear of it first: then
// the next holder has the lock some milliseconds before the former knows. Guard writes with the
// token, or use [New], whose leases do not depend on a connection.
//
// [Options].Poll must be 0: waiters stand in the server's queue.
func NewSession(pool *pgxpool.Pool, opts Options) (*SessionLocker, error) {
	if opts.Poll != 0 {
		return nil, errors.New("postgres: waiters for session locks stand in the server's queue, so Poll must be 0")
	}
	if err := opts.check(pool); err != nil {
		return nil, err
	}
	s := &sessionStore{opts: opts, admin: newPoolRunner(pool), stretch: sessionStretch, open: make(chan struct{}, max(sessionLeast, int(pool.Config().MaxConns)))}
	s.locks = driver.New("postgres", s, driver.Options{})
	return &SessionLocker{s.locks, opts, s}, nil
}

// EnsureSchema applies [Schema], as [Locker.EnsureSchema] does.
func (l *SessionLocker) EnsureSchema(ctx context.Context) error {
	return ensureSchema(ctx, l.store.admin.pool)
}

// Guarantees implements [locker.Locker]. While the connection and the server live,
// exclusion assumes nothing. It assumes steady clocks and a prompt holder when the
// connection breaks in silence, and that the server is up when the connection breaks on
// the server's side alone, or there first. A server that crashes, or its successor, knows
// nothing of advisory locks.
func (l *SessionLocker) Guarantees() locker.Guarantees { return l.opts.sessions() }

// Close ends the waiting: waiters get [locker.ErrClosed]. It waits, for two seconds at
// most, for calls and clean-ups under way. Locks that are held stay held, renewed and unlockable;
// a connection is closed with its lock. The pool stays open.
func (l *SessionLocker) Close() error {
	err := l.Methods.Close()
	l.store.endSpare(nil)
	return err
}
