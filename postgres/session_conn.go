package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

const (
	// sessionSilence is how much longer than the longest TTL the server keeps a
	// connection that says nothing. Its count starts when it has answered, and belief
	// is counted from before it was asked: the holder is always first.
	sessionSilence = time.Second

	// sessionLinger is how long the end of a connection may go unnoticed that was used
	// just now: to be interrupted in listening costs as much as a statement.
	sessionLinger = 250 * time.Millisecond

	// sessionSlow is when a connection that owes an answer is no longer used for what
	// is new.
	sessionSlow = time.Second
)

// errConnectionLost says that a connection is over.
var errConnectionLost = errors.New("the connection was lost")

// sessionConn is a connection with the advisory locks that live on it. Statements
// use it one after another. In between a goroutine listens for its end, so that
// holders are told at once.
type sessionConn struct {
	store *sessionStore
	pg    *pgx.Conn
	since locker.Instant // read before it was opened
	extra bool           // made for one that waits; the store's mutex guards it

	io     sync.Mutex    // whoever has it uses pg
	kept   time.Duration // for how long the server keeps it in silence, as far as it was told; guarded by io
	wanted atomic.Int32  // statements that have pg, or wait for it
	used   atomic.Bool   // since the last look
	asked  atomic.Int64  // when the statement under way began, a [locker.Instant], or 0
	waits  atomic.Bool   // the statement under way waits for a lock

	mu       sync.Mutex
	wake     context.CancelFunc    // ends the listening
	users    map[time.Duration]int // attempts that have joined, by TTL
	ttl      time.Duration         // of the first session
	pid      int32                 // of the server's process, if there was a session
	began    int64                 // when that began, by the server's clock: a later one may have the same pid
	sessions map[time.Duration]*sessionAttempt
	err      error // why it is over

	burying chan struct{} // filled while the server is asked to end it
	buried  bool          // it is gone in the server, with all its locks; guarded by burying
}

// pending is a statement whose answer comes, though its caller may be gone.
type pending struct {
	done chan struct{}
	err  error // once done is closed
}

// begin has f use the connection when its turn comes. pgx ends a connection together
// with a statement's context, and the server all locks with it. So f has none, and
// goes on until it is answered, or the connection ends: at the latest when its last
// session does, for want of an answer.
func (c *sessionConn) begin(f func(pg *pgx.Conn) error) *pending {
	p := &pending{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = c.use(f)
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

func (p *pending) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (c *sessionConn) use(f func(pg *pgx.Conn) error) error {
	c.wanted.Add(1)
	defer c.wanted.Add(-1)
	c.mu.Lock()
	c.wake()
	c.mu.Unlock()
	c.io.Lock()
	defer c.io.Unlock()
	if err := c.ended(); err != nil {
		return &notSent{err}
	}
	c.used.Store(true)
	c.asked.Store(int64(locker.Now()))
	err := f(c.pg)
	c.asked.Store(0)
	c.used.Store(true)
	if c.pg.IsClosed() {
		c.end(err)
	}
	return err
}

// slow reports whether an answer is overdue.
func (c *sessionConn) slow() bool {
	asked := c.asked.Load()
	return asked != 0 && !c.waits.Load() && locker.Now().Sub(locker.Instant(asked)) > sessionSlow
}

// listen runs until the connection ends.
func (c *sessionConn) listen() {
	for c.ended() == nil {
		for c.used.Swap(false) {
			time.Sleep(sessionLinger) // bounded by the end of use
		}
		c.io.Lock()
		ctx := c.listening()
		_, err := c.pg.WaitForNotification(ctx)
		over := err != nil && (ctx.Err() == nil || c.pg.IsClosed())
		c.io.Unlock()
		if over {
			c.end(err)
		}
	}
}

// listening returns a context that ends when a statement comes.
func (c *sessionConn) listening() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wake()
	c.wake = cancel
	if c.wanted.Load() > 0 || c.used.Load() {
		cancel()
	}
	return ctx
}

// who says which of the server's processes this is, and for what TTL it was opened.
func (c *sessionConn) who() (pid int32, began int64, ttl time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid, c.began, c.ttl
}

// patience is for how long the server has to keep the connection in silence: longer than
// anybody on it believes, and no longer than that, or a lock of a holder that was cut off
// stays for as long as a longer one would that was there before. Where nobody uses it,
// its sessions keep it. An attempt joins before it asks, and sends what this says with
// its question: nobody's is forgotten.
func (c *sessionConn) patience() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	longest := time.Duration(0)
	for ttl := range c.users {
		longest = max(longest, ttl)
	}
	for ttl := range c.sessions {
		if len(c.users) == 0 {
			longest = max(longest, ttl)
		}
	}
	return longest + sessionSilence
}

// change is what the server is to be told of its patience, in milliseconds, or 0 if it
// knows. It is called with the connection in use.
func (c *sessionConn) change(patience time.Duration) int64 {
	if patience == c.kept {
		return 0
	}
	return patience.Milliseconds()
}

// keep tells the server for how long to keep the connection, if that has changed.
func (c *sessionConn) keep(pg *pgx.Conn) error {
	patience := c.patience()
	change := c.change(patience)
	if change == 0 {
		return nil
	}
	_, err := pg.Exec(context.Background(), sessionKeep, change)
	if err == nil {
		c.kept = patience
	}
	return err
}

// leave ends what join has begun.
func (c *sessionConn) leave(ttl time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users[ttl]--; c.users[ttl] == 0 {
		delete(c.users, ttl)
	}
}

func (c *sessionConn) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// end ends the connection, and tells everybody that it is over.
func (c *sessionConn) end(err error) {
	_ = c.pg.PgConn().Conn().Close() // so that whoever uses it finds that it is over
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = errConnectionLost
		if err != nil {
			c.err = fmt.Errorf("%w: %w", errConnectionLost, err)
		}
	}
	sessions, cause := c.sessions, c.err
	c.sessions = nil
	c.mu.Unlock()
	if first {
		c.store.forget(c)
	}
	for _, a := range sessions {
		a.session.Lose(locker.SessionEnded, cause)
	}
}

// join makes the connection that of an attempt. There is a session for each TTL that
// is in use on it.
func (c *sessionConn) join(ctx context.Context, a *sessionAttempt) error {
	for range tries { // it may end just then, for want of users
		c.mu.Lock()
		there := c.sessions[a.ttl]
		c.mu.Unlock()
		if there != nil && there.session.Join() {
			a.conn, a.session = c, there.session
			c.mu.Lock()
			c.users[a.ttl]++
			c.mu.Unlock()
			return nil
		}
		if err := c.begin(func(pg *pgx.Conn) error { return c.start(pg, a.ttl) }).wait(ctx); err != nil {
			return err
		}
	}
	return errConnectionLost
}

// start makes a session, and has the server keep the connection for longer than
// that lasts. A connection that never had one is no use to anybody. It is called with
// the connection in use.
func (c *sessionConn) start(pg *pgx.Conn, ttl time.Duration) (err error) {
	c.mu.Lock()
	there, fresh := c.sessions[ttl], c.pid == 0
	c.mu.Unlock()
	if there != nil && there.session.Context().Err() == nil {
		return nil // another has made it
	}
	since := locker.Now()
	if fresh {
		since = c.since // somebody may want to know how long all of it took
		limit := time.AfterFunc(answerTime, func() { c.end(errSilent) })
		defer func() {
			limit.Stop()
			if err != nil {
				c.end(err)
			}
		}()
	}
	a := &sessionAttempt{conn: c, ttl: ttl, isSession: true}
	patience := max(c.kept, ttl+sessionSilence)
	pid, began, err := c.introduce(pg, patience.Milliseconds(), fresh)
	if err != nil {
		return err
	}
	c.kept = patience
	if a.session, err = c.store.locks.NewSession(a, ttl, since); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		a.session.Lose(locker.SessionEnded, c.err)
		return c.err
	}
	if c.pid, c.began = pid, began; fresh {
		c.ttl = ttl
	}
	c.sessions[ttl] = a
	return nil
}

// introduce tells the server for how long to keep the connection, and learns which of
// its processes this is.
func (c *sessionConn) introduce(pg *pgx.Conn, patience int64, fresh bool) (pid int32, began int64, err error) {
	var standbys string
	err = pg.QueryRow(context.Background(), sessionOpen, patience, fresh).Scan(&pid, &began, &standbys)
	switch {
	case err != nil:
	case uint32(pid) != pg.PgConn().PID():
		err = driver.Refused(fmt.Errorf("%w: session locks need a connection of their own: connect directly, or use lease rows", errPooled))
	case standbys == "" && c.store.opts.SyncStandby:
		err = driver.Refused(errNoStandby)
	}
	return pid, began, err
}

// drop ends a session. The connection ends with the last; the server's patience with it
// may have been that of a short one.
func (c *sessionConn) drop(a *sessionAttempt) {
	c.mu.Lock()
	if c.sessions[a.ttl] == a {
		delete(c.sessions, a.ttl)
	}
	last := len(c.sessions) == 0
	c.mu.Unlock()
	if last {
		c.end(nil)
		return
	}
	c.begin(c.keep)
}

// sign asks for a sign of life. A connection that waits for a lock cannot be asked:
// whether the server still has it wait is asked over another. Nothing is held on it
// yet, and what it is granted later the server frees later, too.
func (c *sessionConn) sign(ctx context.Context) error {
	if c.waits.Load() {
		return c.store.look(ctx, c)
	}
	err := c.begin(func(pg *pgx.Conn) error { return pg.Ping(context.Background()) }).wait(ctx)
	if over := c.ended(); over != nil {
		return &locker.LostError{Reason: locker.SessionEnded, Cause: over}
	}
	return err
}
