package postgres

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

const (
	// claimTime is how long a lock stays reserved for the waiter whose turn it
	// is. One that is dead or paused is skipped after that. The schema says
	// it too.
	claimTime = 500 * time.Millisecond

	// lateTime is how long a withdrawn value is refused, at least. A request
	// that arrives later still leaves a lock behind that ends with its TTL.
	lateTime = time.Minute

	// answerTime is how long a statement may take: none waits for a lock that
	// somebody holds.
	answerTime = 10 * time.Second

	// tries bounds how often a statement is sent when its connection breaks.
	tries = 4

	// batchSize keeps one renewal from holding up the server.
	batchSize = 500
)

// lease is one attempt to hold a lock, and the hold that comes of it.
type lease struct {
	name   string
	value  string // 16 random bytes: the holder, as far as the store knows
	ttl    time.Duration
	holder string

	onDisk  atomic.Int64 // when the lease was asked for that the disk is known to have, an [locker.Instant]
	unsure  atomic.Bool  // a statement may have been carried out without our knowing, or may yet be
	session *session     // which holds it, or may; nil for lease rows
	granted bool
	cleaned <-chan struct{} // closed at the end of a clean-up that goes on behind the caller's back
}

func newLease(req *locker.Request) *lease {
	return &lease{name: req.Name, value: random(), ttl: req.TTL, holder: req.Holder}
}

func random() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails since Go 1.24: it crashes instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// remember is for how many milliseconds the store should refuse the value from
// now on.
func (l *lease) remember() int64 {
	if !l.unsure.Load() || l.session != nil { // what a session sends late is lost with it
		return 0
	}
	return (lateTime + l.ttl).Milliseconds()
}

// standing is the answer to an attempt.
type standing struct {
	token  fencing.Token // 0: not granted
	left   time.Duration // until it is worth looking again
	ahead  int           // waiters in front of us
	ticket int64         // our place in the queue, for asking again
}

// errWithdrawn means that the attempt had been withdrawn before it arrived.
var errWithdrawn = errors.New("the attempt was withdrawn")

// runner carries out one statement that answers one row.
type runner interface {
	// run sends the statement until its answer arrives or ctx ends, and
	// reports whether an earlier try may have been carried out as well. After
	// an error, dest may still be written to.
	run(ctx context.Context, l *lease, sql string, args []any, dest ...any) (repeated bool, err error)
}

// store calls the functions of Schema.
type store struct {
	runner
	sql      statements
	advisory bool // for advisory locks of a session, not leases
}

// acquire asks for the lock. If queue is set and the lock is taken, the attempt
// waits in the store from then on; letters go to channel, which is "" for one
// that looks every poll instead. After an error the attempt may be anywhere:
// withdraw it.
func (s *store) acquire(ctx context.Context, l *lease, queue bool, channel string, poll time.Duration, ticket int64) (standing, error) {
	var place, token, left, ahead int64
	repeated, err := s.run(ctx, l, s.sql.acquire,
		[]any{l.name, l.value, l.ttl.Milliseconds(), l.holder, queue, channel, s.patience(time.Second + 2*poll), ticket},
		&place, &token, &left, &ahead)
	if repeated || unsure(err) || err != nil && s.advisory { // a session's lock survives the error of its statement
		l.unsure.Store(true)
	}
	l.granted = err == nil && token > 0 // in this order: after an error a late answer may be writing it
	switch {
	case err != nil:
		return standing{}, classify(err)
	case token < 0:
		return standing{}, errWithdrawn
	case token > 0:
		return standing{token: fencing.Token(token)}, nil
	}
	return standing{left: time.Duration(left) * time.Millisecond, ahead: int(ahead), ticket: place}, nil
}

// release gives the lock back, to next if that is not nil, whose token it then
// returns. With yield, waiters of other processes go first. With quick, next's
// lease does not wait for the disk. A LostError says that the lock was no longer
// ours, nor had a token from behind, if that is not 0, up to mine.
func (s *store) release(ctx context.Context, l, next *lease, channel string, yield, quick bool, behind, mine fencing.Token) (fencing.Token, error) {
	heir := &lease{}
	if next != nil {
		heir = next
		heir.session = l.session
	}
	if l.session != nil { // whose locks the server's patience must suit from now on
		l.session.forget(l)
		if next != nil {
			l.session.expect(next)
		}
	}
	var code int64
	args := []any{l.name, l.value, channel, heir.value, heir.ttl.Milliseconds(), heir.holder, yield}
	if s.advisory {
		args = append(args, s.patience(0))
	} else {
		args = append(args, l.remember(), quick, int64(behind), int64(mine))
	}
	repeated, err := s.run(ctx, l, s.sql.release, args, &code)
	if repeated || unsure(err) {
		heir.unsure.Store(true)
	}
	switch {
	case err != nil:
		return 0, classify(err)
	case code == -1 && repeated:
		return 0, nil // the first try released it; we would have been told of a loss in time
	case code < 0:
		return 0, gone(l.name, code)
	}
	heir.granted = code > 0
	return fencing.Token(code), nil
}

// patience is how long the server waits for a sign of life: of a waiter that
// polls, or of a session, for which its locks decide.
func (s *store) patience(polls time.Duration) any {
	if s.advisory {
		return sessionPatience{}
	}
	return polls.Milliseconds()
}

func gone(name string, code int64) error {
	if code == -2 {
		return &locker.LostError{Name: name, Reason: locker.Forced}
	}
	return &locker.LostError{Name: name, Reason: locker.TakenOver}
}

// withdraw removes whatever the attempt has left, or will leave. With spare, a
// lock that is held is left alone; unlock says that its session may hold it.
func (s *store) withdraw(ctx context.Context, l *lease, channel string, spare, unlock bool) error {
	_, err := s.run(ctx, l, `SELECT lockstile_withdraw($1, $2, $3, $4, $5, $6, $7)`,
		[]any{s.advisory, l.name, l.value, channel, l.remember(), spare, unlock}, nil)
	return classify(err)
}

// inspect reads what the server knows of a lock.
func (p *poolRunner) inspect(ctx context.Context, name string, advisory bool) (locker.Info, error) {
	info := locker.Info{Name: name}
	sql := inspectLease
	if advisory {
		sql = inspectSession
	}
	var token, left int64
	_, err := p.run(ctx, nil, sql, []any{name}, &info.Held, &info.Holder, &token, &left, &info.Waiters)
	if err != nil {
		return locker.Info{}, classify(err)
	}
	info.Token = fencing.Token(token)
	info.TimeLeft = time.Duration(left) * time.Millisecond
	return info, nil
}

const (
	inspectLease = `
SELECT coalesce(l.held, false), CASE WHEN l.held THEN l.holder ELSE '' END, coalesce(l.token, 0),
  CASE WHEN l.held THEN ceil(extract(epoch FROM l.expires - clock_timestamp()) * 1000)::bigint ELSE 0 END,
  (SELECT count(*) FROM lockstile_waiter w WHERE w.name = a.name AND NOT w.session)
FROM (SELECT $1::text AS name) a LEFT JOIN
  (SELECT *, NOT reserved AND expires > clock_timestamp() AS held FROM lockstile_lock WHERE NOT session) l ON l.name = a.name`

	inspectSession = `
SELECT h.pid IS NOT NULL, coalesce(l.holder, ''), coalesce(l.token, 0),
  CASE WHEN l.ttl IS NULL THEN 0 ELSE greatest(1, l.ttl - coalesce((SELECT extract(epoch FROM clock_timestamp() - a.state_change) * 1000
    FROM pg_stat_activity a WHERE a.pid = h.pid), 0)::bigint) END,
  (SELECT count(*) FROM lockstile_waiter w WHERE w.name = h.name AND w.session)
FROM (SELECT $1::text AS name, lockstile_session_holder($1::text) AS pid) h
LEFT JOIN lockstile_lock l ON l.name = h.name AND l.session AND NOT l.reserved AND l.pid = h.pid`
)

// statements are those of every lock. Connections that are used more than once
// have them prepared.
type statements struct{ acquire, release string }

var (
	leaseSQL = statements{
		acquire: `SELECT * FROM lockstile_lease_acquire($1, $2, $3, $4, $5, $6, $7, $8)`,
		release: `SELECT lockstile_lease_release($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
	}
	sessionSQL = statements{
		acquire: `SELECT * FROM lockstile_session_acquire($1, $2, $3, $4, $5, $6, $7, $8)`,
		release: `SELECT lockstile_session_release($1, $2, $3, $4, $5, $6, $7, $8)`,
	}
)

// poolRunner sends statements over the connections of a pool.
type poolRunner struct {
	pool     *pgxpool.Pool
	mode     pgx.QueryExecMode
	prepares bool // as far as the pool's settings go
}

func newPoolRunner(pool *pgxpool.Pool) *poolRunner {
	configured := pool.Config().ConnConfig.DefaultQueryExecMode
	return &poolRunner{
		pool:     pool,
		mode:     execMode(configured),
		prepares: configured == pgx.QueryExecModeCacheStatement,
	}
}

// execMode is how statements are sent that are not prepared. Parameters travel
// with the statement, which has no name: that is one round trip on any connection,
// and needs nothing that a pooler would have to remember between transactions. A
// pool that is set to the simple protocol has a reason.
func execMode(configured pgx.QueryExecMode) pgx.QueryExecMode {
	if configured == pgx.QueryExecModeSimpleProtocol {
		return configured
	}
	return pgx.QueryExecModeExec
}

// prepare spares the server half of its work with what is sent over a connection
// later. Nothing depends on it: a statement that could not be prepared is sent in
// full.
func (p *poolRunner) prepare(ctx context.Context, conn *pgx.Conn, sql statements) {
	for _, sql := range []string{sql.acquire, sql.release} {
		if !p.prepares {
			return
		}
		if _, err := conn.Prepare(ctx, sql, sql); err != nil {
			return
		}
	}
}

// getReady prepares a connection of the pool when it is used for the third time,
// if it leads to the server directly: a program that locks once pays nothing.
func (p *poolRunner) getReady(ctx context.Context, conn *pgx.Conn) {
	const key = "github.com/lockstile/locker/postgres"
	memory := conn.PgConn().CustomData()
	uses, _ := memory[key].(int)
	if memory[key] = uses + 1; uses == 2 && introduced(ctx, conn, p.mode) == nil {
		p.prepare(ctx, conn, leaseSQL)
	}
}

// run implements runner. A request for a lock may wait for a preparation; a
// release comes first, for it has to free the lock even if no answer ever comes.
func (p *poolRunner) run(ctx context.Context, _ *lease, sql string, args []any, dest ...any) (repeated bool, err error) {
	return p.repeat(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if p.prepares && sql == leaseSQL.acquire {
			p.getReady(ctx, conn)
		}
		err := scan(ctx, conn, p.mode, sql, args, dest)
		if p.prepares && sql == leaseSQL.release && err == nil {
			p.getReady(ctx, conn)
		}
		return err
	})
}

// runOnce is run for what must not be carried out twice. After an error that is
// unsure it may have been, once.
func (p *poolRunner) runOnce(ctx context.Context, sql string, args []any, dest ...any) error {
	var maybe error
	_, err := p.repeat(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		err := scan(ctx, conn, p.mode, sql, args, dest)
		if unsure(err) {
			maybe, err = err, nil
		}
		return err
	})
	if err == nil {
		err = maybe
	}
	return err
}

// repeat calls send with a connection, and with another if that was broken, and
// reports whether an earlier call may have been carried out as well as the last.
func (p *poolRunner) repeat(ctx context.Context, send func(context.Context, *pgx.Conn) error) (repeated bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, errSilent)
	defer cancel()
	maybeDone := false
	for range tries {
		repeated = maybeDone
		var conn *pgxpool.Conn
		if conn, err = p.pool.Acquire(ctx); err != nil {
			err = &notSent{err}
			break
		}
		err = send(ctx, conn.Conn())
		if broken(ctx, err) { // or the server has ended it, or forgotten what it had prepared
			hangUp(conn.Conn())
		}
		conn.Release()
		if !broken(ctx, err) {
			break
		}
		maybeDone = maybeDone || unsure(err)
	}
	return repeated, withCause(ctx, p.explain(ctx, err))
}

// errSilent says that the server did not answer.
var errSilent = fmt.Errorf("no answer within %v", answerTime)

// withCause says why ctx ended, where that is why err happened. The network may
// keep the deadline a moment before ctx itself does.
func withCause(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if end, ok := ctx.Deadline(); cause == nil && ok && !time.Now().Before(end) {
		<-ctx.Done() // due now
		cause = context.Cause(ctx)
	}
	if cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// scan runs the statement and reads its row; a single nil stands for a result
// that does not matter.
func scan(ctx context.Context, conn *pgx.Conn, mode pgx.QueryExecMode, sql string, args, dest []any) error {
	return conn.QueryRow(ctx, sql, append([]any{mode}, args...)...).Scan(dest...)
}

// notSent is an error before anything was sent.
type notSent struct{ err error }

func (e *notSent) Error() string     { return e.err.Error() }
func (e *notSent) Unwrap() error     { return e.err }
func (e *notSent) SafeToRetry() bool { return true }

func neverSent(err error) bool {
	var unsent *notSent
	return errors.As(err, &unsent)
}

// renew starts another TTL for each lease, many in one statement.
func (p *poolRunner) renew(ctx context.Context, leases []*lease) []error {
	errs := make([]error, len(leases))
	for start := 0; start < len(leases); start += batchSize {
		end := min(start+batchSize, len(leases))
		if err := p.renewSome(ctx, leases[start:end], errs[start:end]); err != nil {
			for i := start; i < end; i++ {
				errs[i] = classify(err)
			}
		}
	}
	return errs
}

func (p *poolRunner) renewSome(ctx context.Context, leases []*lease, errs []error) error {
	names, values, ttls := make([]string, len(leases)), make([]string, len(leases)), make([]int64, len(leases))
	for i, l := range leases {
		names[i], values[i], ttls[i] = l.name, l.value, l.ttl.Milliseconds()
	}
	for i := range errs {
		errs[i] = errors.New("the server did not answer for this lock")
	}
	since := locker.Now()
	_, err := p.repeat(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `SELECT place, code FROM lockstile_renew($1::text[], $2::text[], $3::bigint[])`, p.mode, names, values, ttls)
		if err != nil {
			return err
		}
		var place, code int64
		_, err = pgx.ForEachRow(rows, []any{&place, &code}, func() error {
			errs[place-1] = nil
			if code < 0 {
				errs[place-1] = gone(leases[place-1].name, code)
			}
			return nil
		})
		return err
	})
	for i, l := range leases {
		if err == nil && errs[i] == nil {
			l.onDisk.Store(int64(since))
		}
	}
	return err
}
