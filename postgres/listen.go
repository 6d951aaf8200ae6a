package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// pulse is how often a connection on which nothing arrives is asked for a
	// sign of life.
	pulse = 5 * time.Second
	// reopen is the pause before a broken connection is opened again.
	reopen = 50 * time.Millisecond
)

// dial opens a connection of our own with the pool's settings. It does not come
// out of the pool: one that is kept for good would be missing there, and keep
// the pool from closing.
func dial(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	config := pool.Config()
	config.ConnConfig.OnNotification = nil // it would keep them from us
	// The end of a wait for notifications must only end the wait. The other
	// handler that pgx has would cancel whatever the server does next.
	config.ConnConfig.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: c.Conn()}
	}
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil || config.AfterConnect == nil {
		return conn, err
	}
	if err := config.AfterConnect(ctx, conn); err != nil {
		hangUp(conn)
		return nil, err
	}
	return conn, nil
}

// hangUp closes a connection without waiting for a server that is gone.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// errPooled means that the server's process is not the one that the connection
// was introduced to: something in between shares connections out.
var errPooled = errors.New("a connection pooler is between this process and the server")

// introduced returns errPooled unless conn leads to the server directly.
func introduced(ctx context.Context, conn *pgx.Conn, mode pgx.QueryExecMode) error {
	var pid uint32
	if err := scan(ctx, conn, mode, `SELECT pg_backend_pid()::bigint WHERE $1::text <> ''`, []any{"pid"}, []any{&pid}); err != nil {
		return err
	}
	if pid != conn.PgConn().PID() {
		return errPooled
	}
	return nil
}

// attach makes conn one that letters can be sent to: it listens on channel, and
// holds the advisory lock that says that somebody does.
func attach(ctx context.Context, conn *pgx.Conn, mode pgx.QueryExecMode, channel string) error {
	if err := introduced(ctx, conn, mode); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, fmt.Sprintf(`LISTEN "%[1]s"; SELECT pg_advisory_lock(1819239276, hashtext('%[1]s'))`, channel))
	return err
}

// connect opens a connection of our own that letters can be sent to.
func (p *poolRunner) connect(ctx context.Context) (conn *pgx.Conn, channel string, err error) {
	if conn, err = dial(ctx, p.pool); err != nil {
		return nil, "", err
	}
	channel = "lockstile_" + random()
	if err = attach(ctx, conn, p.mode, channel); err != nil {
		hangUp(conn)
		return nil, "", err
	}
	return conn, channel, nil
}

// listener receives the letters for one Locker over a connection of its own,
// which it opens for the first waiter and closes when there have been none for a
// while.
type listener struct {
	via  *poolRunner
	mail *mailbox

	ctx    context.Context // ends with close
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu    sync.Mutex
	state *subscription // nil: not open
}

// subscription is one reader's life.
type subscription struct {
	decided chan struct{} // closed when it listens or has failed to
	err     error
	channel string // guarded by the listener's mutex; "" while its connection is being opened again
}

func newListener(via *poolRunner, mail *mailbox) *listener {
	l := &listener{via: via, mail: mail}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// close ends the subscription. Waiters get no more letters.
func (l *listener) close() {
	l.mu.Lock()
	l.cancel() // under the mutex, so that open starts no reader after it
	l.mu.Unlock()
	l.done.Wait()
}

// open waits until letters can arrive.
func (l *listener) open(ctx context.Context) error {
	l.mu.Lock()
	if l.state == nil && l.ctx.Err() == nil {
		l.state = &subscription{decided: make(chan struct{})}
		l.done.Add(1)
		go l.read(l.state)
	}
	state := l.state
	l.mu.Unlock()
	if state == nil {
		return context.Canceled
	}
	select {
	case <-state.decided:
		return state.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// channel is where letters to this Locker go at the moment, "" if nobody
// listens.
func (l *listener) channel() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == nil {
		return ""
	}
	return l.state.channel
}

// read listens until close, or until nobody has been waiting for a while. A
// connection that breaks later is opened again.
func (l *listener) read(state *subscription) {
	defer l.done.Done()
	for {
		err := l.listen(state)
		if l.over(state, err) {
			return
		}
		select {
		case <-time.After(reopen):
		case <-l.ctx.Done():
		}
	}
}

// over decides whether the reader stops, and if so makes room for another.
func (l *listener) over(state *subscription, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	state.channel = ""
	undecided := true
	select {
	case <-state.decided:
		undecided = false
	default:
	}
	if !undecided && !l.mail.empty() && l.ctx.Err() == nil {
		return false
	}
	if undecided {
		state.err = err
		close(state.decided)
	}
	l.state = nil
	return true
}

// listen receives letters over one connection until it breaks, is idle or the
// listener is closed.
func (l *listener) listen(state *subscription) error {
	conn, channel, err := l.connect()
	if err != nil {
		return err
	}
	defer hangUp(conn)
	l.listening(state, channel)
	for {
		ctx, cancel := context.WithTimeout(l.ctx, pulse)
		n, err := conn.WaitForNotification(ctx)
		cancel()
		switch {
		case n != nil:
			l.mail.arrived(n.Payload)
		case l.ctx.Err() != nil || conn.IsClosed() || l.mail.empty():
			return err
		default:
			if err := ping(l.ctx, conn); err != nil {
				return err
			}
		}
	}
}

func (l *listener) connect() (*pgx.Conn, string, error) {
	ctx, cancel := context.WithTimeoutCause(l.ctx, answerTime, errSilent)
	defer cancel()
	conn, channel, err := l.via.connect(ctx)
	return conn, channel, withCause(ctx, err)
}

func ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, pulse)
	defer cancel()
	return conn.Ping(ctx)
}

// listening is called when a connection has begun to listen. What was sent
// while there was none is lost, and the places in the queues name a channel that
// is gone, so everybody looks.
func (l *listener) listening(state *subscription, channel string) {
	l.mu.Lock()
	state.channel = channel
	again := true
	select {
	case <-state.decided:
	default:
		again = false
		close(state.decided)
	}
	l.mu.Unlock()
	if again {
		l.mail.wakeAll()
	}
}
