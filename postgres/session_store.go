package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

const (
	// sessionSilence is how much longer than a TTL the server keeps a
	// connection that says nothing. The server counts from when it has answered, the
	// holder from before it asked: so the holder stops believing first.
	sessionSilence = time.Second

	// sessionStretch is for how long a statement waits, give or take a quarter. Those who began to wait
	// together then do not leave the server's queue together.
	sessionStretch = 20 * time.Second
)

// sessionStore is the [driver.Store] of advisory locks, and has its connections.
type sessionStore struct {
	opts    Options
	admin   *poolRunner // for Inspect, List, Break, the schema, and to hear that a connection is gone
	locks   *driver.Locker[*sessionAttempt]
	stretch time.Duration
	open    chan struct{} // has an entry for each connection, also for one that is being opened

	mu    sync.Mutex // never held while anything is sent
	spare []*sessionConn
}

// sessionAttempt is one attempt at a name, and the hold that comes of it.
type sessionAttempt struct {
	req  *driver.Request
	conn *sessionConn
	left bool // the connection is this attempt's alone, and may have the lock
}

func (s *sessionStore) Guarantees() locker.Guarantees { return s.opts.sessions() }

func (s *sessionStore) Begin(req *driver.Request) (*sessionAttempt, error) {
	return &sessionAttempt{req: req}, nil
}

// Acquire asks again if the connection turns out to have ended: that a server was restarted we may hear with the answer.
func (s *sessionStore) Acquire(ctx context.Context, a *sessionAttempt, wait driver.Wait) (grant driver.Grant, _ driver.Left, err error) {
	for range tries {
		if err = s.Withdraw(ctx, a); err == nil { // of an earlier try
			a.conn, err = s.take(ctx)
		}
		if err != nil {
			break
		}
		a.left = true
		if grant, err = s.ask(ctx, a, wait); !broken(ctx, err) || errors.Is(err, errSilent) {
			break
		}
	}
	return grant, driver.UnsureIf(a.left), s.admin.explain(ctx, err)
}

// ask asks for the lock, stretch after stretch if it may wait. The grant may be much older than its answer, and from the
// grant on the server would end a connection that is silent. So the validity of a lock that was waited for
// counts from before another question that was answered.
func (s *sessionStore) ask(ctx context.Context, a *sessionAttempt, wait driver.Wait) (driver.Grant, error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	silence := time.AfterFunc(answerTime, func() { giveUp(errSilent) })
	defer silence.Stop()
	var stop func() bool // nil until it is told that the lock is taken
	a.conn.taken = func() {
		silence.Reset(2*s.stretch + answerTime)
		if waiting := wait(); stop == nil {
			stop = context.AfterFunc(waiting, func() { giveUp(context.Cause(waiting)) })
		}
	}
	defer func() {
		if stop != nil {
			stop()
		}
	}()
	for again, token := false, int64(0); ; again = true {
		since, stretch := driver.Now(), time.Duration(0)
		if wait != nil {
			stretch = s.stretch*3/4 + rand.N(s.stretch/2)
		}
		err := a.conn.ask(ctx, func(pg *pgx.Conn) error { return a.question(pg, stretch, again, &token, s.opts.SyncStandby) })
		switch {
		case err != nil: // an advisory lock outlives the error of the statement that took it
			a.conn.end(connectionLost(err))
			return driver.Grant{}, withCause(ctx, err)
		case token > 0:
			silence.Reset(answerTime) // what follows is a question of its own
			if wait != nil && driver.Now().Sub(since) > a.req.TTL/20 {
				since = driver.Now()
				if err := a.conn.sign(ctx); err != nil {
					return driver.Grant{}, cmp.Or(a.conn.ended(), err)
				}
			}
			return grantOf(a.req, token, 0, since), nil
		case wait == nil:
			a.left = false
			s.keep(a.conn, a.req.TTL)
			return driver.Grant{}, nil
		}
	}
}

// question sends the statement that asks for the lock.
func (a *sessionAttempt) question(pg *pgx.Conn, stretch time.Duration, again bool, token *int64, synced bool) error {
	err := pg.QueryRow(context.Background(), sessionAcquire, a.req.Name, a.req.Holder, a.req.TTL.Milliseconds(), a.req.Kind == locker.KindShared,
		stretch.Milliseconds(), again, (a.req.TTL + sessionSilence).Milliseconds(), synced).Scan(token)
	if err == nil && *token > 0 {
		a.conn.holder.Store(a)
	}
	return err
}

// Renew asks each connection for a sign of life.
func (s *sessionStore) Renew(ctx context.Context, as []*sessionAttempt) []error {
	errs := make([]error, len(as))
	var all sync.WaitGroup // as many as there may be connections
	for i, a := range as {
		all.Go(func() { errs[i] = s.admin.explain(ctx, a.conn.sign(ctx)) })
	}
	all.Wait()
	return errs
}

func (s *sessionStore) Release(ctx context.Context, a *sessionAttempt, _ time.Duration) error {
	a.conn.holder.Store(nil) // nobody believes in it any more, nor has to hear of the connection's end
	err := a.conn.ask(ctx, func(pg *pgx.Conn) error {
		_, err := pg.Exec(context.Background(), sessionRelease)
		return err
	})
	if err == nil {
		a.left = false
		s.keep(a.conn, a.req.TTL)
		return nil
	}
	a.conn.end(connectionLost(err))
	var unsent *notSent
	ended := codeOf(err) == "57P01" // as its server says, whose process may take a while to go
	if ended || errors.As(err, &unsent) {
		if s.Withdraw(ctx, a) == nil || ended {
			return &locker.LostError{Reason: locker.ReasonSessionEnded, Cause: err}
		}
	}
	return s.admin.explain(ctx, err)
}

// Withdraw ends the connection, and has the server end it as well, and confirm that its process is gone there, with all its locks.
func (s *sessionStore) Withdraw(ctx context.Context, a *sessionAttempt) error {
	if !a.left {
		return nil
	}
	a.conn.holder.Store(nil) // nobody has to hear that
	a.conn.end(errConnectionLost)
	var gone bool
	err := driver.Caught(func() error {
		_, err := s.admin.run(ctx, sessionGone, []any{a.conn.pid, a.conn.began}, &gone)
		return err
	})
	if err == nil && !gone {
		err = fmt.Errorf("the server has not ended the connection of its process %d yet", a.conn.pid)
	}
	a.left = err != nil
	return err
}

func (s *sessionStore) Inspect(ctx context.Context, name string) (locker.Info, error) {
	return s.admin.lookAt(ctx, sessionInspect, name)
}

func (s *sessionStore) List(ctx context.Context, prefix string) ([]locker.Info, error) {
	return s.admin.look(ctx, sessionList, prefix)
}

// Break is sent once: sent again after a lost answer, it would free the next holder's lock.
func (s *sessionStore) Break(ctx context.Context, name string, number locker.Number) (broken bool, err error) {
	var prepared bool
	numbers := []locker.Number{number}
	if number == 0 {
		numbers = nil // all
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, errSilent)
	defer cancel()
	err = s.admin.pool.QueryRow(ctx, sessionForce, s.admin.mode, name, bigints(numbers)).Scan(&broken, &prepared)
	if err == nil && prepared {
		err = errors.New("a prepared transaction has the lock: commit it or roll it back (pg_prepared_xacts)")
	}
	return broken, withCause(ctx, s.admin.explain(ctx, err))
}
