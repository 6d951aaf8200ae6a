package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// SessionLocker grants advisory locks of the server. They have no lease: the server
// frees them when their connection ends. See [NewSession].
type SessionLocker struct {
	locks *driver.Locker[*sessionAttempt]
	store *sessionStore
}

var (
	_ locker.Locker    = (*SessionLocker)(nil)
	_ locker.Inspector = (*SessionLocker)(nil)
	_ locker.Breaker   = (*SessionLocker)(nil)
	_ locker.Lister    = (*SessionLocker)(nil)
)

// NewSession returns a Locker whose locks are advisory locks of the server, with
// the key hashtextextended(name, 0): whoever takes that with pg_advisory_lock in
// psql, or with [LockTx], is excluded and excludes. Two names with the same hash
// exclude each other as well.
//
// Locks that are free when they are asked for live on one connection, all of them. A
// Lock that has to wait does so in the server's own queue, on a connection of its
// own, and the lock then lives there: with 16 of those, waiting or held, the next is
// refused. The goroutines of a process need one between them. These connections have the
// pool's settings and hooks, do not count in the pool, and are closed when they have
// not been used for four TTLs. They must go to the server directly: a pooler in
// between is refused. While a connection waits, the server keeps dead rows that
// its statement could see, as for any statement that takes long.
//
// When a connection breaks, all locks on it are lost, and their holders are told at once,
// or within a quarter of a second where it has just been used. Silence is loss too, on
// both sides: each connection is asked for a sign of life three times per TTL, and a lock
// whose TTL ends without an answer is lost, cable cut or holder paused. A statement that the server does not answer, because
// its table is locked or its standby is away, is silence, too. The server ends a
// connection on which nothing has arrived for a second more than the longest TTL that
// is held or asked for there (idle_session_timeout, set for this connection alone); a
// waiter that it cannot reach for so long, and one whose process has ended, does not
// stay in the queue (tcp_user_timeout, client_connection_check_interval).
//
// What lies between can also end a connection on the server's side alone, as a
// proxy that is stopped or a firewall that forgets may do. The server frees its
// locks at once and gives them to others, while the holder hears nothing and
// believes until its TTL ends: guard writes with the token, or use [New], whose
// leases do not hang on a connection.
//
// [Options].Poll must be 0: waiters are always told.
func NewSession(pool *pgxpool.Pool, opts Options) (*SessionLocker, error) {
	switch {
	case pool == nil:
		return nil, errors.New("postgres: the pool is nil")
	case opts.Poll != 0:
		return nil, errors.New("postgres: session locks need a connection that can listen, so Poll must be 0")
	}
	if err := opts.check(); err != nil {
		return nil, err
	}
	s := &sessionStore{opts: opts, admin: newPoolRunner(pool), dialing: make(chan struct{}, 1)}
	s.locks = driver.New("postgres", s, driver.Options{})
	return &SessionLocker{s.locks, s}, nil
}

// Lock implements [locker.Locker].
func (l *SessionLocker) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	return l.locks.Lock(ctx, name, opts...)
}

// TryLock implements [locker.Locker].
func (l *SessionLocker) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	return l.locks.TryLock(ctx, name, opts...)
}

// Inspect implements [locker.Inspector]. A holder that is none of ours has
// neither text nor token.
func (l *SessionLocker) Inspect(ctx context.Context, name string) (locker.Info, error) {
	return l.locks.Inspect(ctx, name)
}

// List implements [locker.Lister]. It does not show what others hold, whose names
// the server does not know.
func (l *SessionLocker) List(ctx context.Context, prefix string) ([]locker.Info, error) {
	return l.locks.List(ctx, prefix)
}

// Break implements [locker.Breaker] by ending the holder's connection, for there
// is no other way to free an advisory lock from outside. So it takes all other
// locks of that connection as well. The role must be the holder's own, or one
// that may signal backends.
func (l *SessionLocker) Break(ctx context.Context, name string) (bool, error) {
	return l.locks.Break(ctx, name)
}

// EnsureSchema applies [Schema].
func (l *SessionLocker) EnsureSchema(ctx context.Context) error {
	return ensureSchema(ctx, l.store.admin.pool)
}

// Guarantees implements [locker.Locker]. While the connection and the server
// live, exclusion leans on nothing. Clocks and promptness come in when the
// connection breaks and nobody says so; that the server can be reached, when it
// breaks on the server's side alone; and a server that crashes, or its successor,
// knows nothing of advisory locks.
func (l *SessionLocker) Guarantees() locker.Guarantees {
	if l.store == nil { // what is promised without options
		return new(sessionStore).Features().Guarantees
	}
	return l.locks.Guarantees()
}

// Close ends the waiting: waiters get [locker.ErrClosed]. It waits, for two seconds at
// most, for clean-ups under way. Locks that are held stay held; a connection is closed
// with the last of them.
func (l *SessionLocker) Close() error { return l.locks.Close() }

// sessionAttempt is one attempt at a name, and the hold that comes of it; or a
// session, on which such hang.
type sessionAttempt struct {
	name, holder string
	ttl          time.Duration
	isSession    bool

	session driver.Session // that it has joined, or is
	conn    *sessionConn   // of that
	own     bool           // and nobody else's
	asked   *pending       // what it asked last
	waits   bool           // and for how long that takes is up to others

	// What follows is for whoever is being asked, and then for who has the answer.
	first  int64 // of the tokens that it was granted, until it is given back
	unsure bool  // the connection broke: there may have been a grant
}

func (s *sessionStore) Features() driver.Features {
	g := locker.Guarantees{
		Exclusion: locker.PromptHolder | locker.SteadyClocks | locker.ServerUp | locker.DurableServer | locker.DurableReplica,
		Tokens:    locker.DurableReplica,
		Fair:      true,
		Release:   locker.ByConnection,
	}
	if s.opts.SyncStandby || s.opts.NoStandby {
		g.Tokens &^= locker.DurableReplica
	}
	if s.opts.NoStandby {
		g.Exclusion &^= locker.DurableReplica
	}
	return driver.Features{Guarantees: g}
}

func (s *sessionStore) Begin(req *locker.Request) (*sessionAttempt, error) {
	return &sessionAttempt{name: req.Name, holder: req.Holder, ttl: req.TTL}, nil
}

// Acquire asks on the connection that all share. Where the lock is taken, it asks
// again on one that waits.
func (s *sessionStore) Acquire(ctx context.Context, a *sessionAttempt, wait driver.Wait) (driver.Grant, error) {
	grant, err := s.try(ctx, a)
	if err == nil && grant.Count == 0 && wait != nil {
		grant, err = s.wait(wait(), a)
	}
	return grant, s.explain(ctx, err)
}

// try asks once more where the connection turns out to have ended, and the server knows
// nothing of it any more: of a server that was restarted we may hear with the answer.
func (s *sessionStore) try(ctx context.Context, a *sessionAttempt) (grant driver.Grant, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, errSilent)
	defer cancel()
	for range tries {
		grant, err = s.tryOnce(ctx, a)
		if err == nil || ctx.Err() != nil || !a.unsure {
			break
		}
	}
	return grant, err
}

func (s *sessionStore) tryOnce(ctx context.Context, a *sessionAttempt) (driver.Grant, error) {
	if s.Left(a) { // of an earlier try
		if err := s.Withdraw(ctx, a); err != nil {
			return driver.Grant{}, err
		}
	}
	s.part(a)
	if err := s.share(ctx, a); err != nil {
		return driver.Grant{}, withCause(ctx, err)
	}
	since := locker.Now()
	a.asked = a.conn.begin(a.acquire)
	if err := a.asked.wait(ctx); err != nil {
		return driver.Grant{}, err
	}
	return a.grant(since), nil
}

// freshness is for how long what was sent before a lock was granted may be what its
// validity counts from.
const freshness = 10 * time.Millisecond

// wait returns when the lock is granted. The server may have done so long before its
// answer is here, and would end a connection that is silent from then on. So a lock
// that was waited for counts from before another question that was answered.
func (s *sessionStore) wait(ctx context.Context, a *sessionAttempt) (driver.Grant, error) {
	s.part(a)
	opening, cancel := context.WithTimeoutCause(ctx, answerTime, errSilent)
	defer cancel()
	if err := s.own(opening, a); err != nil {
		return driver.Grant{}, withCause(opening, err)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(a.session.Context(), func() { end(errConnectionLost) })()
	since := locker.Now()
	a.asked, a.waits = a.conn.begin(a.await), true
	err := a.asked.wait(ctx)
	a.waits = !a.asked.over()
	if err == nil && a.first == 0 {
		err = errors.New("the connection has this lock, and nobody knows of it")
	}
	if err == nil && locker.Now().Sub(since) > freshness {
		since = locker.Now()
		ctx, cancel := context.WithTimeoutCause(ctx, answerTime, errSilent)
		defer cancel()
		err = a.conn.sign(ctx)
	}
	if err != nil {
		return driver.Grant{}, err
	}
	return a.grant(since), nil
}

func (a *sessionAttempt) grant(since locker.Instant) driver.Grant {
	if a.first == 0 {
		return driver.Grant{}
	}
	return driver.Grant{First: uint64(a.first), Count: tokens, Since: since, Session: a.session}
}

// Renew asks each connection for a sign of life, which is good for all that hangs on it.
func (s *sessionStore) Renew(ctx context.Context, as []*sessionAttempt) []error {
	type sign struct {
		done chan struct{}
		err  error
	}
	signs := make(map[*sessionConn]*sign)
	for _, a := range as {
		if signs[a.conn] == nil {
			one := &sign{done: make(chan struct{})}
			signs[a.conn] = one
			go func() {
				defer close(one.done)
				one.err = s.explain(ctx, a.conn.sign(ctx))
			}()
		}
	}
	errs := make([]error, len(as))
	for i, a := range as {
		<-signs[a.conn].done
		errs[i] = signs[a.conn].err
	}
	return errs
}

func (s *sessionStore) Release(ctx context.Context, a *sessionAttempt, _ time.Duration) error {
	mine := true
	a.asked = a.conn.begin(func(pg *pgx.Conn) (err error) {
		mine, err = a.release(pg)
		return err
	})
	err := a.asked.wait(ctx)
	var unsent *notSent
	var reply *pgconn.PgError
	switch {
	case errors.As(err, &unsent), errors.As(err, &reply) && reply.Code == "57P01": // it was over before
		if s.bury(ctx, a.conn) == nil {
			return &locker.LostError{Reason: locker.SessionEnded, Cause: err}
		}
	case err == nil && !mine:
		return &locker.LostError{Reason: locker.TakenOver}
	}
	return s.explain(ctx, err)
}

// Withdraw follows what the attempt asked last over the same connection, which
// carries it out in order. One that waits ends with its connection. If that has died,
// its locks are freed with it, and the server confirms it over another.
func (s *sessionStore) Withdraw(ctx context.Context, a *sessionAttempt) error {
	if a.isSession {
		a.conn.drop(a)
		return nil
	}
	if a.waits {
		a.conn.end(nil)
	}
	if err := a.asked.wait(ctx); !a.asked.over() {
		return err
	}
	if a.first == 0 && !a.unsure {
		return nil
	}
	if a.conn.ended() == nil {
		a.asked = a.conn.begin(a.giveBack)
		if err := a.asked.wait(ctx); err == nil || a.conn.ended() == nil {
			return err
		}
	}
	if err := s.bury(ctx, a.conn); err != nil {
		return err
	}
	a.first, a.unsure = 0, false
	return nil
}

func (s *sessionStore) Left(a *sessionAttempt) bool {
	switch {
	case a.isSession:
		return true
	case a.asked == nil:
		return false
	}
	return !a.asked.over() || a.first != 0 || a.unsure
}

// End lets go of the connection. A lock that could not be given back is given back when
// the connection answers again, or else ends with it.
func (s *sessionStore) End(a *sessionAttempt) {
	if a.isSession {
		return
	}
	left := s.Left(a)
	s.part(a)
	if left && a.conn.ended() == nil {
		go func() { // ends with the connection, at the latest
			<-a.asked.done
			if a.first != 0 && a.conn.begin(a.giveBack).wait(context.Background()) != nil {
				a.conn.end(nil)
			}
		}()
	}
}
