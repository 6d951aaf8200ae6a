package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/async"
)

// sessionLeast is how many connections a Locker may have for its session locks, unless its pool may have more.
const sessionLeast = 32

// sessionLull is how long after a statement the end of a connection may go unnoticed.
const sessionLull = 5 * time.Millisecond

// errConnectionLost says that a connection was there, and is over.
var errConnectionLost = errors.New("the connection was lost")

func connectionLost(cause error) error { return fmt.Errorf("%w: %w", errConnectionLost, cause) }

// sessionConn is a connection of the server's that one attempt at a time has.
type sessionConn struct {
	store  *sessionStore
	ctx    context.Context // ends with the connection; its cause is why
	cancel context.CancelCauseFunc
	holder atomic.Pointer[sessionAttempt] // that was granted a lock here

	busy chan struct{} // filled by whoever uses what follows

	pg    *pgx.Conn
	pid   int    // of the server's process
	began string // when that began
	taken func() // called when the server says that the lock is taken, while it goes on with the statement
	stop  func() // ends the reading between two uses

	// The store's mutex guards what follows.
	used  driver.Instant // last, before it was spare
	spare *time.Timer    // ends it
}

// take returns a connection that nobody has.
func (s *sessionStore) take(ctx context.Context) (*sessionConn, error) {
	for c := s.pick(nil); c != nil; c = s.pick(nil) {
		asking, cancel := context.WithTimeout(ctx, pingTime)
		fresh := driver.Now().Sub(c.used) < time.Second || c.sign(asking) == nil
		cancel()
		if fresh {
			return c, nil
		}
		c.end(errConnectionLost)
	}
	select {
	case s.open <- struct{}{}:
	default:
		return nil, driver.Refused(fmt.Errorf("%d connections hold session locks or wait for them, which is the limit of a Locker: "+
			"raise the pool's MaxConns (pool_max_conns in a URL) and the server's max_connections, or use lease rows", cap(s.open)))
	}
	c := &sessionConn{store: s, busy: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	err := driver.Caught(func() error { return c.dial(ctx) })
	if err != nil {
		<-s.open
	}
	return c, err
}

// pick takes a spare connection, this one or the last.
func (s *sessionStore) pick(c *sessionConn) *sessionConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := len(s.spare) - 1
	if c != nil {
		i = slices.Index(s.spare, c)
	}
	if i < 0 {
		return nil
	}
	c = s.spare[i]
	c.spare.Stop()
	s.spare = slices.Delete(s.spare, i, i+1)
	return c
}

// dial opens the connection. The pool's hooks get none of the caller's values: others use the connection later.
func (c *sessionConn) dial(caller context.Context) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), answerTime, errSilent)
	defer cancel()
	defer context.AfterFunc(caller, cancel)()
	pg, err := dial(ctx, c.store.admin.pool, func(config *pgconn.Config) {
		hook := config.OnNotice
		config.OnNotice = func(conn *pgconn.PgConn, n *pgconn.Notice) {
			if n.Message == sessionTaken {
				c.taken()
			} else if hook != nil {
				hook(conn, n)
			}
		}
	})
	if err == nil {
		c.pg = pg
		err = c.introduce(ctx)
	}
	if err != nil && pg != nil {
		hangUp(pg)
	}
	return withCause(caller, withCause(ctx, err))
}

// introduce learns who serves the connection, and gets it ready.
func (c *sessionConn) introduce(ctx context.Context) error {
	err := scan(ctx, c.pg, c.store.admin.mode, sessionWho, nil, []any{&c.pid, &c.began})
	switch {
	case err != nil:
		return err
	case c.pid != int(c.pg.PgConn().PID()):
		return driver.Refused(fmt.Errorf("%w: session locks need connections of their own: connect directly, or use lease rows", errPooled))
	}
	if _, err = c.pg.Exec(ctx, sessionOpen); err == nil {
		c.read()
	}
	return err
}

// ask calls f while nobody else uses the connection, which ends with ctx. An answer that comes just then is none: whoever is
// granted the lock would not hear that the connection has ended.
func (c *sessionConn) ask(ctx context.Context, f func(pg *pgx.Conn) error) error {
	return c.use(ctx, func(pg *pgx.Conn) error {
		goesOn := context.AfterFunc(ctx, func() { c.end(context.Cause(ctx)) })
		err := f(pg)
		if !goesOn() {
			c.end(context.Cause(ctx))
			return cmp.Or(err, c.ended())
		}
		return err
	})
}

// use calls f while nobody else uses the connection. What f sends needs no context of its own: it is
// answered, or the connection ends.
func (c *sessionConn) use(ctx context.Context, f func(pg *pgx.Conn) error) error {
	select {
	case c.busy <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.busy }()
	c.stop()
	if err := c.ended(); err != nil {
		return &notSent{err}
	}
	err := driver.Caught(func() error { return f(c.pg) })
	var panicked *driver.PanicError // then the connection may be in the midst of an answer
	if c.pg.IsClosed() || errors.As(err, &panicked) {
		c.end(connectionLost(err))
	}
	c.read()
	return err
}

// read reads the connection until its next use, so that its end is noticed at once. Before a use that comes soon
// it has not begun: to begin and to end it takes as long as a statement.
func (c *sessionConn) read() {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	begin := time.AfterFunc(sessionLull, func() {
		defer close(over)
		var err error
		for err == nil { // a hook of the pool's may listen
			_, err = c.pg.WaitForNotification(ctx)
		}
		if ctx.Err() == nil || c.pg.IsClosed() {
			c.end(connectionLost(err))
		}
	})
	c.stop = func() {
		cancel()
		if !begin.Stop() {
			<-over
		}
	}
}

// sign asks for a sign of life. An answer may take longer than ctx: the lock is lost with its TTL.
func (c *sessionConn) sign(ctx context.Context) error {
	err := async.Do(ctx, func() error {
		return c.use(ctx, func(pg *pgx.Conn) error { return pg.Ping(context.Background()) })
	})
	if ended := c.ended(); ended != nil {
		return &locker.LostError{Reason: locker.ReasonSessionEnded, Cause: ended}
	}
	return err
}

// ended is why the connection is over, or nil.
func (c *sessionConn) ended() error { return context.Cause(c.ctx) }

// end ends the connection. A lock that was granted there is lost.
func (c *sessionConn) end(cause error) {
	s := c.store
	s.mu.Lock()
	if c.ctx.Err() == nil {
		c.cancel(cause)
		<-s.open
		s.spare = slices.DeleteFunc(s.spare, func(o *sessionConn) bool { return o == c })
	}
	s.mu.Unlock()
	_ = c.pg.PgConn().Conn().Close() // so that the statement under way ends
	if a := c.holder.Swap(nil); a != nil {
		s.locks.Lose(a.req.Name, a, locker.ReasonSessionEnded, c.ended())
	}
}

// keep makes a connection spare that has no locks any more, for the next attempt. It ends before the server ends it, which would log
// that as a fault.
func (s *sessionStore) keep(c *sessionConn, ttl time.Duration) {
	s.mu.Lock()
	if c.ctx.Err() == nil {
		c.used = driver.Now()
		c.spare = time.AfterFunc(min(ttl, ownIdle), func() { s.endSpare(c) })
		s.spare = append(s.spare, c)
	}
	s.mu.Unlock()
	if s.locks.Closing().Err() != nil { // Close may have ended the others before
		s.endSpare(c)
	}
}

// endSpare ends a connection that nobody has taken meanwhile, or all of them.
func (s *sessionStore) endSpare(c *sessionConn) {
	for picked := s.pick(c); picked != nil; picked = s.pick(c) {
		picked.end(errConnectionLost)
	}
}
