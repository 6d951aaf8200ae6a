package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// sessionLimit is how many connections there are at most of those that wait for a
// lock, or hold one that was waited for.
const sessionLimit = 16

// sessionStore is the [driver.Store] of advisory locks, and has its connections.
type sessionStore struct {
	opts  Options
	admin *poolRunner // for those who look on
	locks *driver.Locker[*sessionAttempt]

	dialing chan struct{} // filled while the shared connection is being opened

	mu     sync.Mutex
	shared *sessionConn
	idle   []*sessionConn // of the extra ones
	extra  int            // of them, those included that are being opened
}

var (
	errNoSign = errors.New("the answer of the server is under way")

	errSessionLimit = driver.Refused(fmt.Errorf("%d connections wait for locks, or hold some that were waited for: that is the limit of a Locker", sessionLimit))
)

// share makes an attempt's connection the shared one.
func (s *sessionStore) share(ctx context.Context, a *sessionAttempt) error {
	err := errConnectionLost
	for range tries { // it may end just then, for want of users
		if !errors.Is(err, errConnectionLost) {
			break
		}
		var c *sessionConn
		if c, err = s.live(ctx); err == nil {
			err = c.join(ctx, a)
		}
	}
	return err
}

// live returns the shared connection, or opens one. One whose answer is overdue is
// replaced. It counts as extra from then on, and so it stays where there are too many.
func (s *sessionStore) live(ctx context.Context) (*sessionConn, error) {
	if c := s.usable(); c != nil {
		return c, nil
	}
	select {
	case s.dialing <- struct{}{}:
		defer func() { <-s.dialing }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if c := s.usable(); c != nil {
		return c, nil
	}
	c, err := s.open(ctx, false)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.shared; old != nil && old.ended() == nil {
		old.extra = true
		s.extra++
	}
	s.shared = c
	return c, nil
}

func (s *sessionStore) open(ctx context.Context, extra bool) (*sessionConn, error) {
	since := locker.Now()
	pg, err := dial(ctx, s.admin.pool)
	if err != nil {
		return nil, err
	}
	c := &sessionConn{store: s, pg: pg, extra: extra, since: since, wake: func() {}, burying: make(chan struct{}, 1),
		users: make(map[time.Duration]int), sessions: make(map[time.Duration]*sessionAttempt)}
	go c.listen()
	return c, nil
}

func (s *sessionStore) usable() *sessionConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.shared
	if c == nil || c.ended() != nil || c.slow() && s.extra < sessionLimit {
		return nil
	}
	return c
}

// own makes an attempt's connection one that nobody else uses.
func (s *sessionStore) own(ctx context.Context, a *sessionAttempt) error {
	err := errConnectionLost
	for range sessionLimit + tries { // idle ones may end just then
		if !errors.Is(err, errConnectionLost) {
			break
		}
		var c *sessionConn
		if c, err = s.take(ctx); err != nil {
			return err
		}
		if err = c.join(ctx, a); err != nil {
			c.end(nil)
		}
	}
	a.own = err == nil
	return err
}

// take takes an extra connection that nobody uses, or opens one.
func (s *sessionStore) take(ctx context.Context) (c *sessionConn, err error) {
	s.mu.Lock()
	n := len(s.idle)
	switch {
	case n > 0:
		c, s.idle = s.idle[n-1], s.idle[:n-1]
	case s.extra >= sessionLimit:
		err = errSessionLimit
	default:
		s.extra++
	}
	s.mu.Unlock()
	if c != nil || err != nil {
		return c, err
	}
	defer func() {
		if c == nil { // also if a hook of the caller's has panicked
			s.mu.Lock()
			defer s.mu.Unlock()
			s.extra--
		}
	}()
	return s.open(ctx, true)
}

// part lets go of an attempt's connection.
func (s *sessionStore) part(a *sessionAttempt) {
	if a.session == nil {
		return
	}
	a.conn.leave(a.ttl)
	a.session.Leave()
	a.session = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.own && !s.Left(a) && a.conn.ended() == nil {
		s.idle = append(s.idle, a.conn)
	}
	a.own = false
}

// forget is called when a connection has ended.
func (s *sessionStore) forget(c *sessionConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared == c {
		s.shared = nil
	}
	s.idle = slices.DeleteFunc(s.idle, func(other *sessionConn) bool { return other == c })
	if c.extra {
		s.extra--
	}
}

// over has f use the shared connection, for others than attempts. When the Locker has
// been closed there may be none, and it is one of the pool's.
func (s *sessionStore) over(ctx context.Context, ttl time.Duration, f func(ctx context.Context, pg *pgx.Conn) error) error {
	if s.locks.Closing().Err() != nil {
		return s.admin.pool.AcquireFunc(ctx, func(pg *pgxpool.Conn) error { return f(ctx, pg.Conn()) })
	}
	a := &sessionAttempt{ttl: ttl}
	if err := s.share(ctx, a); err != nil {
		return err
	}
	a.conn.leave(ttl) // nobody believes in anything here
	defer a.session.Leave()
	return a.conn.begin(func(pg *pgx.Conn) error { return f(context.Background(), pg) }).wait(ctx)
}

// bury has the server end a connection that was lost, and returns when it is gone.
func (s *sessionStore) bury(ctx context.Context, c *sessionConn) error {
	select {
	case c.burying <- struct{}{}:
		defer func() { <-c.burying }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	pid, began, ttl := c.who()
	for !c.buried {
		var gone bool
		err := s.over(ctx, ttl, func(ctx context.Context, pg *pgx.Conn) error {
			return pg.QueryRow(ctx, sessionEnd, pid, began).Scan(&gone)
		})
		if err != nil {
			return err
		}
		if c.buried = gone; gone {
			break
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// explain says what to do about an error of the server.
func (s *sessionStore) explain(ctx context.Context, err error) error {
	var reply *pgconn.PgError
	if !errors.As(err, &reply) || errors.Is(err, locker.ErrLost) {
		return err
	}
	return classify(s.admin.explain(ctx, err))
}
