package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// SessionLocker grants advisory locks of the server. They have no lease: the server
// frees them when their connection ends. See [NewSession].
type SessionLocker struct {
	opts  Options
	store *sessionStore
}

var (
	_ locker.Locker    = (*SessionLocker)(nil)
	_ locker.Inspector = (*SessionLocker)(nil)
	_ locker.Breaker   = (*SessionLocker)(nil)
	_ locker.Lister    = (*SessionLocker)(nil)
)

// NewSession returns a Locker whose locks are advisory locks of the server, with
// the key hashtextextended(name, 0). It excludes everybody who takes that key with
// pg_advisory_lock, in psql for example, or with [LockTx]. Two names with the same
// hash exclude each other as well.
//
// All locks that are free when they are asked for live on one connection. A Lock that
// has to wait does so in the server's own queue, on a connection of its own, and the
// lock then lives there. The goroutines of a process need one connection a name between
// them. A Locker has 16 of those at most, waiting or held; the next is refused. These
// connections have the pool's settings and hooks, do not count in the pool, and are
// closed a TTL after they were last used. They must lead to the server directly: a
// pooler in between is refused.
//
// A wait is a statement, and keeps a snapshot for as long as it goes on. So the server removes
// no row that died meanwhile: candidates of an election that wait for days hold back VACUUM in the
// whole database. And CREATE INDEX CONCURRENTLY waits for all older snapshots: run under
// such a lock while another process waits for the lock, it never ends, and the server sees no
// deadlock (golang-migrate issue 960, flyway issue 1654). For migrations and elections use [New].
//
// If a hook of the pool's does SET ROLE to a role that is no member of the login's, we may not end
// a connection that was lost in the server (pg_terminate_backend): its locks are freed when the server notices
// by itself, after a second more than the longest TTL.
//
// Shared locks ([locker.WithShared]) are those of pg_advisory_lock_shared with the same key.
// The readers of a process that share a connection have one advisory lock there, which the
// last of them gives back. There are no slots.
//
// The server ends a connection on which nothing arrives, but not one that waits. So that a
// writer which was cut off does not keep later readers out for as long as others read, its
// wait ends on the server after a second more than its TTL, and it is asked to wait on. It
// keeps its turn meanwhile, with the key hashtextextended(name, 1): those who take the other
// key by hand, or with [LockTx], may come first then. The turn of one that is cut off ends
// as late again.
//
// Each lock takes a place in the server's lock table, which is everybody's: when it is
// full, the application's own statements fail. A Locker may have a quarter of it, held and
// asked for: 1,600 locks with the server's default settings (max_locks_per_transaction,
// times max_connections). The next is refused. Other Lockers have as much: with many
// locks and processes, set max_locks_per_transaction, or use [New].
//
// When a connection breaks, all locks on it are lost, and their holders are notified at once.
// The server may not have noticed, so it is asked over another connection to end this
// one. Silence is loss too, on both sides. A connection with locks is asked for a sign of
// life three times per TTL, and a lock whose TTL ends without an answer is lost. Nothing
// waits for a disk or a standby there: what does has a connection of its own, unless there
// can be no other (CONNECTION LIMIT), or that one cannot serve: it leads to a standby, say. But if somebody locks the table
// lockstile_session, the next name that is asked for keeps the sign of life waiting. The
// server in turn ends a connection on which nothing has arrived for
// a second more than the longest TTL that is held or asked for there
// (idle_session_timeout, set for this connection alone). It drops a waiter that it cannot
// reach for so long, and one whose process has ended (tcp_user_timeout,
// client_connection_check_interval).
//
// A proxy that is stopped, or a firewall that forgets, may end a connection on the
// server's side alone. The server frees its locks at once and gives them to others,
// while the holder hears nothing and believes until its TTL ends. Where both sides of a
// connection are ended, or the holder's machine is busy, the server may hear of it first: then
// the next holder has the lock some milliseconds before the former knows. Guard writes with the
// token, or use [New], whose leases do not depend on a connection.
//
// [Options].Poll must be 0: waiters are always notified.
func NewSession(pool *pgxpool.Pool, opts Options) (*SessionLocker, error) {
	switch {
	case pool == nil:
		return nil, errors.New("postgres: the pool is nil")
	case opts.Poll != 0:
		return nil, errors.New("postgres: waiters for session locks are always notified, so Poll must be 0")
	}
	if err := opts.check(); err != nil {
		return nil, err
	}
	own, err := newOwnPool(pool, true)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	s := &sessionStore{opts: opts, admin: newPoolRunner(pool), syncs: newPoolRunner(own), extra: make(map[*sessionConn]struct{})}
	s.locks = driver.New("postgres", s, driver.Options{})
	return &SessionLocker{opts, s}, nil
}

// Lock implements [locker.Locker].
func (l *SessionLocker) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	return l.store.locks.Lock(ctx, name, opts...)
}

// TryLock implements [locker.Locker].
func (l *SessionLocker) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	return l.store.locks.TryLock(ctx, name, opts...)
}

// Inspect implements [locker.Inspector]. A holder that is none of ours, a transaction
// for example, has neither text nor token, and no number if it shares the lock.
func (l *SessionLocker) Inspect(ctx context.Context, name string) (locker.Info, error) {
	return l.store.locks.Inspect(ctx, name)
}

// List implements [locker.Lister]. It does not show what others hold, whose names
// the server does not know.
func (l *SessionLocker) List(ctx context.Context, prefix string) ([]locker.Info, error) {
	return l.store.locks.List(ctx, prefix)
}

// Break implements [locker.Breaker] by ending the holder's connection: there is no
// other way to free an advisory lock from outside. All other locks of that connection
// are lost with it, also those of readers whose number was not given. The role must be the holder's own, or one that may signal backends.
// A prepared transaction has no connection: then Break is an error. After any other
// error the connection may have been ended.
func (l *SessionLocker) Break(ctx context.Context, name string) (bool, error) {
	return l.store.locks.Break(ctx, name)
}

// BreakHolder implements [locker.Breaker].
func (l *SessionLocker) BreakHolder(ctx context.Context, name string, number locker.Number) (bool, error) {
	return l.store.locks.BreakHolder(ctx, name, number)
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
// a connection is closed with the last of its locks. The pool stays open.
func (l *SessionLocker) Close() error {
	err := l.store.locks.Close()
	l.store.endAllUnused()
	go l.store.syncs.pool.Close() // it waits for what is under way
	return err
}
