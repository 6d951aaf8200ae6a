package postgres

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// sessionStore is the [driver.Store] of advisory locks, and has its connections.
type sessionStore struct {
	opts  Options
	admin *poolRunner // for Inspect, List, Break and the schema
	syncs *poolRunner // with a connection for what waits for the disk
	locks *driver.Locker[*sessionAttempt]

	synced atomic.Int64 // when syncs was last answered, a [driver.Instant]

	mu      sync.Mutex // never held while anything is sent
	shared  *sessionConn
	extra   map[*sessionConn]struct{} // of waiters, and shared ones that were replaced
	room    int64                     // for locks of all kinds in the server; 0 until it has told us
	entered int64                     // attempts that may have some of it
}

// sessionAttempt is one attempt at a name, and the hold that comes of it.
type sessionAttempt struct {
	req     *driver.Request
	conn    *sessionConn // that it has joined
	own     bool         // and nobody else may
	entered bool         // it counts as one that may have the lock; guarded by the store's mutex
	asked   *pending     // what it asked last

	// The goroutine that asks writes what follows. Others read it once asked is answered.
	since  driver.Instant // when it asked for the lock, or for a sign of life after that
	first  int64          // of the tokens that it was granted, until it is given back
	known  bool           // these tokens are on disk, and no standby has to have them
	mine   bool           // the lock was still there when it was given back
	unsure bool           // the connection broke: there may have been a grant
}

func (s *sessionStore) Guarantees() locker.Guarantees {
	return s.opts.sessions()
}

func (s *sessionStore) Begin(req *driver.Request) (*sessionAttempt, error) {
	return &sessionAttempt{req: req}, nil
}

// Acquire asks on the shared connection. Where the lock is taken, it asks again on a
// connection of the attempt's own, and waits there.
func (s *sessionStore) Acquire(ctx context.Context, a *sessionAttempt, wait driver.Wait) (driver.Grant, driver.Left, error) {
	grant, err := s.try(ctx, a)
	if err == nil && grant.Count == 0 && wait != nil {
		grant, err = s.wait(wait(), a)
	}
	if s.left(a) {
		return grant, driver.Unsure, s.explain(ctx, err)
	}
	return grant, driver.Nothing, s.explain(ctx, err)
}

// try asks again if the connection turns out to have ended and the server has freed
// whatever it had there: that a server was restarted we may hear with the answer.
func (s *sessionStore) try(ctx context.Context, a *sessionAttempt) (grant driver.Grant, err error) {
	for range tries {
		grant, err = s.tryOnce(ctx, a)
		if err == nil || ctx.Err() != nil || a.conn == nil || !errors.Is(a.conn.ended(), errConnectionLost) {
			break
		}
	}
	return grant, err
}

func (s *sessionStore) tryOnce(ctx context.Context, a *sessionAttempt) (driver.Grant, error) {
	if s.left(a) { // of an earlier try
		if err := s.clear(ctx, a); err != nil {
			return driver.Grant{}, err
		}
	}
	s.leave(a)
	s.share(a)
	ctx, cancel := driver.Patient(ctx, answerTime, a.conn.heard, errSilent)
	defer cancel()
	a.asked = a.conn.begin(func(pg *pgx.Conn) error { return a.ask(pg, false) })
	err := a.asked.wait(ctx)
	if err == nil {
		err = s.sync(ctx, a)
	}
	if err != nil {
		return driver.Grant{}, err
	}
	return s.grant(a)
}

// sync returns when the tokens of a grant outlast a crash, and what else SyncStandby
// promises. It waits on another connection than the locks'. Where there can be no other, or
// that one cannot serve, it waits on the locks'.
func (s *sessionStore) sync(ctx context.Context, a *sessionAttempt) error {
	if a.first == 0 || a.known && !s.opts.SyncStandby {
		return nil
	}
	args := []any{a.req.Name, a.first, s.opts.SyncStandby}
	ask := func(ctx context.Context, pg *pgx.Conn) error {
		return scan(ctx, pg, s.syncs.mode, sessionSync, args, []any{new(bool)})
	}
	first, cancel := driver.Patient(ctx, answerTime, func() driver.Instant { return driver.Instant(s.synced.Load()) }, errSilent)
	defer cancel()
	_, err := s.syncs.send(first, func(ctx context.Context, pg *pgx.Conn) error {
		err := ask(ctx, pg)
		switch {
		case err == nil:
			s.synced.Store(int64(driver.Now()))
		case notHere(err):
			hangUp(pg)
			err = &notSent{err}
		}
		return err
	})
	var unsent *notSent
	if !errors.As(err, &unsent) || first.Err() != nil {
		return withCause(first, err)
	}
	ctx, cancel = driver.Patient(ctx, answerTime, a.conn.heard, errSilent)
	defer cancel()
	a.asked = a.conn.begin(func(pg *pgx.Conn) error { return ask(context.Background(), pg) })
	return withCause(ctx, a.asked.wait(ctx))
}

// notHere reports whether another connection may do what this one's server, role or search
// path does not: the server is not the lock's, a standby, without the schema, …
func notHere(err error) bool {
	var reply *pgconn.PgError
	return errors.As(err, &reply) && slices.ContainsFunc([]string{"55000", "0A", "25006", "42"},
		func(class string) bool { return strings.HasPrefix(reply.Code, class) })
}

// clear is Withdraw, for no longer than an answer may take.
func (s *sessionStore) clear(ctx context.Context, a *sessionAttempt) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, errSilent)
	defer cancel()
	return s.Withdraw(ctx, a)
}

// freshness bounds the time from a request to its grant within which validity may count
// from the request.
const freshness = 10 * time.Millisecond

// wait returns when the lock is granted. The grant may be much older than its answer, and
// from the grant on the server would end a connection that is silent. So the validity of
// a lock that was waited for counts from before another question that was answered.
func (s *sessionStore) wait(ctx context.Context, a *sessionAttempt) (driver.Grant, error) {
	s.leave(a)
	if err := s.own(a); err != nil {
		return driver.Grant{}, err
	}
	a.asked = a.conn.begin(func(pg *pgx.Conn) error { return a.ask(pg, true) })
	err := s.answer(ctx, a)
	if err == nil {
		err = s.sync(ctx, a)
	}
	if err == nil && driver.Now().Sub(a.since) > freshness {
		a.since = driver.Now()
		ctx, cancel := context.WithTimeoutCause(ctx, answerTime, errSilent)
		defer cancel()
		err = a.conn.lives(ctx, a.conn.sign())
	}
	if err != nil {
		return driver.Grant{}, err
	}
	return s.grant(a)
}

// answer waits for the answer to a question that has no time limit. A connection that
// waits cannot be asked for a sign of life, so we ask over the shared one whether the
// server still has it.
func (s *sessionStore) answer(ctx context.Context, a *sessionAttempt) error {
	often := a.req.TTL / 3
	looks := time.NewTicker(often)
	defer looks.Stop()
	for {
		select {
		case <-a.asked.done:
			return a.asked.err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-looks.C:
			go s.look(ctx, a.conn, often)
		}
	}
}

// ask asks for the lock. An advisory lock outlives the error of the statement that took
// it, so after an error it is given back, or the connection ended.
//
// What the connection has under this name is in its books: the server would grant it the
// same lock again.
func (a *sessionAttempt) ask(pg *pgx.Conn, wait bool) error {
	name, shared, has := a.req.Name, a.req.Kind == locker.KindShared, a.conn.has[a.req.Name]
	if has == alone || has > 0 && (wait || !shared) {
		return nil
	}
	if err := a.conn.store.enter(a); err != nil {
		return err
	}
	var err error
	for already := has > 0; ; already = true { // until it is granted, or the connection ends, or it could not even wait
		a.since = driver.Now()
		err = pg.QueryRow(context.Background(), sessionAcquire, name, a.req.Holder, a.req.TTL.Milliseconds(), wait, a.conn.patience(), shared, already).Scan(&a.first, &a.known)
		if err != nil || a.first != 0 || !wait || driver.Now().Sub(a.since) < sessionSilence {
			break
		}
	}
	switch {
	case err == nil && a.first != 0 && shared:
		a.conn.has[name]++
	case err == nil && a.first != 0:
		a.conn.has[name] = alone
	}
	if err == nil {
		return nil
	}
	a.first = 0
	if !pg.IsClosed() {
		var freed bool
		if pg.QueryRow(context.Background(), sessionRelease, name, 0, shared, has == 0).Scan(&freed) == nil {
			return err
		}
		a.conn.end(connectionLost(err))
	}
	a.unsure = true
	return err
}

// grant is what was granted to an attempt, if anything was. From now on the attempt's
// lock is lost when its connection ends.
func (s *sessionStore) grant(a *sessionAttempt) (driver.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch err := a.conn.ended(); {
	case a.first == 0:
		return driver.Grant{}, nil
	case err != nil:
		return driver.Grant{}, err
	}
	a.conn.users[a] = true
	return grantOf(a.req, a.first, 0, a.since), nil
}

// Renew asks each connection for one sign of life, which renews all locks on it.
func (s *sessionStore) Renew(ctx context.Context, as []*sessionAttempt) []error {
	signs, answers := make(map[*sessionConn]*pending), make(map[*sessionConn]error)
	for _, a := range as {
		if signs[a.conn] == nil {
			signs[a.conn] = a.conn.sign()
		}
	}
	for c, sign := range signs {
		answers[c] = s.explain(ctx, c.lives(ctx, sign))
	}
	errs := make([]error, len(as))
	for i, a := range as {
		errs[i] = answers[a.conn]
	}
	return errs
}

func (s *sessionStore) Release(ctx context.Context, a *sessionAttempt, _ time.Duration) error {
	a.asked = a.conn.begin(a.release)
	err := a.asked.wait(ctx)
	var unsent *notSent
	var reply *pgconn.PgError
	switch {
	case errors.As(err, &unsent), errors.As(err, &reply) && reply.Code == "57P01": // the connection had ended before
		if s.endInServer(ctx, a.conn) == nil {
			return &locker.LostError{Reason: locker.ReasonSessionEnded, Cause: err}
		}
	case err == nil && !a.mine:
		return &locker.LostError{Reason: locker.ReasonTakenOver}
	}
	return s.explain(ctx, err)
}

// release gives back what was granted.
func (a *sessionAttempt) release(pg *pgx.Conn) error {
	name, shared, has := a.req.Name, a.req.Kind == locker.KindShared, a.conn.has[a.req.Name]
	err := pg.QueryRow(context.Background(), sessionRelease, name, a.first, shared, has <= 1).Scan(&a.mine)
	if err != nil {
		return err
	}
	a.first = 0
	if has--; has > 0 {
		a.conn.has[name] = has
	} else {
		delete(a.conn.has, name)
	}
	return nil
}

// Withdraw goes over the same connection, which carries it out after what the attempt
// asked last. If that answer takes long and nobody else uses the connection, Withdraw
// ends it: its locks are freed with it, and the server confirms that over another.
func (s *sessionStore) Withdraw(ctx context.Context, a *sessionAttempt) error {
	c := a.conn
	if !a.asked.answered() && (a.own || c.slow() && s.alone(a)) {
		c.end(errConnectionLost)
	}
	if err := a.asked.wait(ctx); !a.asked.answered() {
		return err
	}
	if a.first == 0 && !a.unsure {
		return nil
	}
	if c.ended() == nil {
		a.asked = c.begin(a.release)
		if err := a.asked.wait(ctx); err == nil || c.ended() == nil {
			return err
		}
	}
	if err := s.endInServer(ctx, c); err != nil {
		return err
	}
	a.first, a.unsure = 0, false
	return nil
}

// left reports whether the connection may have anything of the attempt.
func (s *sessionStore) left(a *sessionAttempt) bool {
	return a.asked != nil && (!a.asked.answered() || a.first != 0 || a.unsure)
}

// End leaves the connection. A lock that could not be given back is given back when the
// connection answers again, or else ends with it.
func (s *sessionStore) End(a *sessionAttempt) {
	left := s.left(a)
	s.leave(a)
	if left && a.conn.ended() == nil {
		go func() { // ends with the connection, at the latest
			<-a.asked.done
			if a.first != 0 && a.conn.begin(a.release).wait(context.Background()) != nil {
				a.conn.end(errConnectionLost)
			}
		}()
	}
}

func (s *sessionStore) Inspect(ctx context.Context, name string) (locker.Info, error) {
	return s.admin.lookAt(ctx, sessionInspect, name)
}

func (s *sessionStore) List(ctx context.Context, prefix string) ([]locker.Info, error) {
	return s.admin.look(ctx, sessionList, prefix)
}

var errPrepared = errors.New("a prepared transaction has the lock: commit it or roll it back (pg_prepared_xacts)")

// Break is sent once: sent again after a lost answer, it would free the next holder's lock.
func (s *sessionStore) Break(ctx context.Context, name string, number locker.Number) (broken bool, err error) {
	var prepared bool
	var numbers []locker.Number // none stands for all
	if number != 0 {
		numbers = append(numbers, number)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, errSilent)
	defer cancel()
	err = s.admin.pool.QueryRow(ctx, sessionForce, s.admin.mode, name, bigints(numbers)).Scan(&broken, &prepared)
	if err == nil && prepared {
		err = errPrepared
	}
	return broken, withCause(ctx, s.explain(ctx, err))
}

// explain says what to do about an error of the server.
func (s *sessionStore) explain(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, locker.ErrLost) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime) // for a connection of the pool
	defer cancel()
	return s.admin.explain(ctx, err)
}
