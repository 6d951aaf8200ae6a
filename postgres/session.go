package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
)

// SessionLocker grants advisory locks of the server, all on one connection. They
// have no lease: the server frees them when that connection ends. See
// [NewSession].
type SessionLocker struct {
	opts  Options
	queue queue

	dialing chan struct{} // filled while a connection is being opened

	mu      sync.Mutex
	current *session
	old     []string // channels of connections whose end the server has not confirmed
}

var (
	_ locker.Locker    = (*SessionLocker)(nil)
	_ locker.Inspector = (*SessionLocker)(nil)
	_ locker.Breaker   = (*SessionLocker)(nil)
)

// NewSession returns a Locker whose locks are advisory locks of the server, with
// the key hashtextextended(name, 0): whoever takes that with pg_advisory_lock in
// psql, or with [LockTx], is excluded and excludes. Two names with the same hash
// exclude each other as well, which harms nothing but speed.
//
// All locks of a SessionLocker live on one connection, and waiting for them needs
// no other. It has the pool's settings, does not count in the pool, is made for
// the first lock and again when it is lost. It must go to the server directly: a
// pooler in between is refused.
//
// When the connection breaks, all locks on it are lost, and told to be so at
// once. Silence is loss too, on both sides: the connection is asked for a sign of
// life three times per TTL, and a lock whose TTL ends without an answer is lost,
// cable cut or holder paused. The server ends a connection on which nothing has
// arrived for a second more than the longest TTL held there
// (idle_session_timeout, set for this connection alone); left to itself, it would
// keep the locks for hours, or for as long as a proxy in between holds the line.
//
// What lies between can also end the connection on the server's side alone, as a
// proxy that is stopped or a firewall that forgets may do. The server frees its
// locks at once and gives them to others, while the holder hears nothing and
// believes until its TTL ends: guard writes with the token, or use [New], whose
// leases do not hang on a connection.
//
// Waiters of different SessionLockers are served in the order in which they
// arrived. One that takes the key by itself stands in the server's own queue,
// which goes first; its release is found by looking, twice a second, and so is
// the end of a holder that died.
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
	s := &SessionLocker{opts: opts, dialing: make(chan struct{}, 1)}
	q := &s.queue
	q.closing, q.close = context.WithCancel(context.Background())
	q.store = &store{runner: sessions{s}, sql: sessionSQL, advisory: true}
	q.admin = newPoolRunner(pool)
	q.mail = newMailbox(q.returnTurn)
	q.post = sessions{s}
	q.keeper = locker.NewKeeper(renewSessions)
	return s, nil
}

// Lock implements [locker.Locker].
func (s *SessionLocker) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	return s.queue.lock(ctx, name, opts)
}

// TryLock implements [locker.Locker].
func (s *SessionLocker) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	return s.queue.tryLock(ctx, name, opts)
}

// Inspect implements [locker.Inspector]. A holder that is none of ours has
// neither text nor token.
func (s *SessionLocker) Inspect(ctx context.Context, name string) (locker.Info, error) {
	return s.queue.inspect(ctx, name)
}

// Break implements [locker.Breaker] by ending the holder's connection, for there
// is no other way to free an advisory lock from outside. So it takes all other
// locks of that connection as well. The role must be the holder's own, or one
// that may signal backends.
func (s *SessionLocker) Break(ctx context.Context, name string) (bool, error) {
	return s.queue.force(ctx, name, `SELECT lockstile_session_force($1)`)
}

// EnsureSchema applies [Schema].
func (s *SessionLocker) EnsureSchema(ctx context.Context) error {
	return ensureSchema(ctx, s.queue.admin.pool)
}

// Guarantees implements [locker.Locker]. While the connection and the server
// live, exclusion leans on nothing. Clocks and promptness come in when the
// connection breaks and nobody says so; that the server can be reached, when it
// breaks on the server's side alone; and a server that crashes, or its successor,
// knows nothing of advisory locks.
func (s *SessionLocker) Guarantees() locker.Guarantees {
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
	return g
}

// Close ends the waiting: waiters get [locker.ErrClosed]. Locks that are held
// stay held; the connection is closed with the last of them.
func (s *SessionLocker) Close() error {
	s.queue.stop()
	s.queue.chores.Wait()
	s.mu.Lock()
	sess := s.current
	s.mu.Unlock()
	if sess != nil {
		sess.closeIfIdle()
	}
	return nil
}

// sessions is the post and the runner of advisory locks.
type sessions struct{ *SessionLocker }

// bind gives the lease the connection that is in use. Nothing is held on an
// earlier one that it may have had: that has died.
func (s sessions) bind(ctx context.Context, l *lease) error {
	if err := s.queue.checkStandby(ctx, s.opts); err != nil {
		return err
	}
	sess, err := s.live(ctx)
	if err != nil {
		return err
	}
	l.session = sess
	sess.expect(l)
	return nil
}

func (s sessions) run(ctx context.Context, l *lease, sql string, args []any, dest ...any) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, errSilent)
	defer cancel()
	return false, l.session.do(ctx, sql, args, dest)
}

func (s sessions) open(ctx context.Context) error {
	_, err := s.live(ctx)
	return err
}

// channel is that of the connection in use, which also receives the letters.
func (s sessions) channel() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil || s.current.dead() {
		return ""
	}
	return s.current.channel
}

func (sessions) poll() time.Duration { return 0 }

// withdraw follows the attempt's own statement over the same connection, which
// carries them out in order. If that has died, its locks are freed with it, and
// opening another has the server confirm it.
func (s sessions) withdraw(ctx context.Context, l *lease, spare bool) error {
	if sess := l.session; sess != nil && !sess.dead() {
		return s.queue.store.withdraw(ctx, l, sess.channel, spare, !spare && (l.granted || l.unsure.Load()))
	}
	other := &lease{name: l.name, value: l.value}
	if err := s.bind(ctx, other); err != nil {
		return err
	}
	if s.unburied() {
		return errors.New("the server has not ended the lost connection yet")
	}
	return s.queue.store.withdraw(ctx, other, other.session.channel, spare, false)
}

func (s sessions) held(l *lease, lock *locker.Lock) { l.session.hold(l, lock) }

// ended takes a lock out of the books. One that was lost while its connection
// lives is still held in the server. Giving it back is in the connection's queue
// before anybody else in this process can ask for it, or the connection would
// grant it to us a second time.
func (s sessions) ended(l *lease, lost bool) {
	if l.session == nil {
		return
	}
	if lost && !l.session.dead() {
		ctx, cancel := context.WithTimeout(context.Background(), confirmTime)
		if err := s.withdraw(ctx, l, false); err != nil {
			s.queue.cleanUpLater(l)
		}
		cancel()
	}
	l.session.forget(l)
	if s.queue.closing.Err() != nil {
		l.session.closeIfIdle()
	}
}

// live returns the connection in use, or opens one.
func (s *SessionLocker) live(ctx context.Context) (*session, error) {
	s.mu.Lock()
	sess := s.current
	s.mu.Unlock()
	if sess != nil && !sess.dead() {
		return sess, nil
	}
	select {
	case s.dialing <- struct{}{}:
		defer func() { <-s.dialing }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	sess = s.current
	s.mu.Unlock()
	if sess != nil && !sess.dead() {
		return sess, nil
	}
	return s.replace(ctx, sess)
}

// replace opens a connection, and has the server end those that were lost.
func (s *SessionLocker) replace(ctx context.Context, lost *session) (*session, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, errSilent)
	defer cancel()
	conn, channel, err := s.queue.admin.connect(ctx)
	switch {
	case errors.Is(err, errPooled):
		return nil, fmt.Errorf("%w: session locks need a connection of their own: connect directly, or use lease rows", err)
	case err != nil:
		return nil, withCause(ctx, err)
	}
	s.queue.admin.prepare(ctx, conn, sessionSQL)
	sess := newSession(conn, s.queue.admin.mode, channel, s.queue.mail, s.died)
	s.mu.Lock()
	if lost != nil {
		s.old = append(s.old, lost.channel)
	}
	old := s.old
	s.current = sess
	s.mu.Unlock()
	s.bury(ctx, sess, old)
	if lost == nil {
		s.queue.sweep()
	}
	return sess, nil
}
