package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

const (
	// sessionSilence is how much longer than the longest TTL the server keeps a
	// connection that says nothing. The server counts from when it has answered, the
	// holder from before it asked: so the holder stops believing first.
	sessionSilence = time.Second

	// alone stands for a lock that is not shared, in the books of a connection.
	alone = -1

	// sessionSlow is for how long a connection may owe an answer and still be joined.
	sessionSlow = time.Second
)

// errConnectionLost says that a connection was there, and is over.
var errConnectionLost = errors.New("the connection was lost")

func connectionLost(cause error) error {
	if cause == nil {
		return errConnectionLost
	}
	return fmt.Errorf("%w: %w", errConnectionLost, cause)
}

// sessionConn is a connection with the advisory locks that live on it. Statements
// use it one after another.
type sessionConn struct {
	store  *sessionStore
	ctx    context.Context // ends with the connection; its cause is why
	cancel context.CancelCauseFunc

	next  sync.Mutex     // of the statements that wait for io, all but signs of life wait for this first
	io    sync.Mutex     // its holder uses pg
	has   map[string]int // by name: how many attempts share the lock that the connection has, or alone; guarded by io
	asked atomic.Int64   // when the statement under way began, a [driver.Instant], or 0

	// The store's mutex guards what follows.
	pg    *pgx.Conn                // nil while it is being opened
	pid   int32                    // of the server's process; 0 while it is being opened
	began int64                    // when that process began, by the server's clock: a later one may have the same pid
	users map[*sessionAttempt]bool // that have joined, and whether they were granted their lock
	ttls  map[time.Duration]int    // of the users
	spare *time.Timer              // ends it, while there are no users

	ending chan struct{} // filled while the server is asked to end it
	gone   bool          // in the server, with all its locks; guarded by ending
}

// newConn returns a connection that is being opened. Statements wait until it is open.
// It is opened in nobody's context, so a caller who gives up fails nobody else.
func (s *sessionStore) newConn() *sessionConn {
	c := &sessionConn{store: s, users: make(map[*sessionAttempt]bool), ttls: make(map[time.Duration]int), has: make(map[string]int), ending: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.io.Lock()
	go func() {
		defer c.io.Unlock()
		err := driver.Caught(c.open)
		if err == nil {
			err = c.ended() // meanwhile
		}
		if err != nil {
			c.end(err)
		}
	}()
	return c
}

// open opens the connection. Its caller holds io.
func (c *sessionConn) open() error {
	ctx, cancel := context.WithTimeoutCause(c.ctx, answerTime, errSilent)
	defer cancel()
	var w *wire
	pg, err := dial(ctx, c.store.admin.pool, func(conn net.Conn) net.Conn {
		w = newWire(conn)
		return w
	})
	if err != nil {
		return withCause(ctx, err)
	}
	var pid int32
	var began int64
	var room int64
	err = pg.QueryRow(ctx, sessionOpen, c.patience(), c.store.opts.SyncStandby).Scan(&pid, &began, &room)
	c.store.mu.Lock()
	if err == nil {
		c.store.room = room
	}
	c.pg, c.pid, c.began = pg, pid, began
	c.store.mu.Unlock()
	switch {
	case err != nil:
		return withCause(ctx, err)
	case uint32(pid) != pg.PgConn().PID():
		return driver.Refused(fmt.Errorf("%w: session locks need a connection of their own: connect directly, or use lease rows", errPooled))
	}
	context.AfterFunc(w.ctx, func() { c.begin(c.readEnd) })
	return nil
}

// readEnd reads why the server has ended the connection, if it said so.
func (c *sessionConn) readEnd(pg *pgx.Conn) error {
	_, err := pg.WaitForNotification(context.Background())
	c.end(connectionLost(err))
	return err
}

// pending is a statement whose answer comes, though its caller may be gone.
type pending struct {
	done chan struct{}
	err  error // once done is closed
}

// begin calls f when the connection is free. pgx ends a connection together with a
// statement's context, and the server all locks with it. So f has none, and
// goes on until it is answered, or the connection ends.
func (c *sessionConn) begin(f func(pg *pgx.Conn) error) *pending {
	return inBackground(func() error {
		c.next.Lock()
		c.io.Lock()
		c.next.Unlock()
		return c.use(f)
	})
}

func inBackground(f func() error) *pending {
	p := &pending{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = f()
	}()
	return p
}

func (p *pending) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *pending) answered() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// use calls f with the connection, whose io is locked, and unlocks it.
func (c *sessionConn) use(f func(pg *pgx.Conn) error) error {
	defer c.io.Unlock()
	if err := c.ended(); err != nil {
		return &notSent{err}
	}
	c.asked.Store(int64(driver.Now()))
	err := driver.Caught(func() error { return f(c.pg) })
	c.asked.Store(0)
	var panicked *driver.PanicError // then the connection may be in the midst of an answer
	if c.pg.IsClosed() || errors.As(err, &panicked) {
		c.end(connectionLost(err))
	}
	return err
}

// slow reports whether an answer is overdue.
func (c *sessionConn) slow() bool {
	asked := c.asked.Load()
	return asked != 0 && driver.Now().Sub(driver.Instant(asked)) > sessionSlow
}

// heard returns when the server was last heard of: before the statement under way began.
func (c *sessionConn) heard() driver.Instant {
	if asked := c.asked.Load(); asked != 0 {
		return driver.Instant(asked)
	}
	return driver.Now()
}

// patience is for how many milliseconds the server has to keep the connection in silence:
// longer than any attempt on it believes, and no longer, or the lock of a holder that was
// cut off stays for the longer TTL of one that was there before. An attempt joins before
// it asks, and every question says this anew, so every attempt's TTL counts.
func (c *sessionConn) patience() int64 {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	longest := time.Duration(0)
	for ttl := range c.ttls {
		longest = max(longest, ttl)
	}
	return (longest + sessionSilence).Milliseconds()
}

// sign asks for a sign of life. Of the statements that wait for the connection one may go
// before it: behind those of a thousand names it would come too late for every lock.
func (c *sessionConn) sign() *pending {
	return inBackground(func() error {
		c.io.Lock()
		return c.use(func(pg *pgx.Conn) error {
			_, err := pg.Exec(context.Background(), sessionPatience, c.patience())
			return err
		})
	})
}

// lives waits for a sign of life.
func (c *sessionConn) lives(ctx context.Context, sign *pending) error {
	err := sign.wait(ctx)
	if ended := c.ended(); ended != nil {
		return &locker.LostError{Reason: locker.ReasonSessionEnded, Cause: ended}
	}
	return err
}

// ended is why the connection is over, or nil.
func (c *sessionConn) ended() error { return context.Cause(c.ctx) }

// end ends the connection. Every lock that was granted there is lost.
func (c *sessionConn) end(cause error) {
	c.cancel(cause)
	s := c.store
	s.mu.Lock()
	s.remove(c)
	pg, held := c.pg, []*sessionAttempt(nil)
	for a, granted := range c.users {
		if granted {
			held = append(held, a)
		}
	}
	s.mu.Unlock()
	if pg != nil {
		_ = pg.PgConn().Conn().Close() // so that the statement under way ends
	}
	for _, a := range held {
		s.locks.Lose(a.req.Name, a, locker.ReasonSessionEnded, c.ended())
	}
}
