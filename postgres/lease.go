package postgres

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/mailbox"
)

const (
	// lateTime is how long a withdrawn value is refused, at least. A request
	// that arrives later still leaves a lock behind that ends with its TTL.
	lateTime = time.Minute

	// sweepEvery is the least time between two rounds of clearing away what dead
	// processes have left.
	sweepEvery = 10 * time.Minute

	// tokens is how many a grant of either kind has: as many as a number of the sequence
	// stands for. The schema says it too.
	tokens = 1024
)

// store is the [driver.Store] of leases.
type store struct {
	opts    Options
	pool    *poolRunner
	renewer *renewer
	mail    *mailbox.Mailbox
	locks   *driver.Locker[*attempt]

	pooled atomic.Bool  // a pooler was found: no notifications
	sweeps atomic.Int64 // when to sweep next, a [locker.Instant]
}

// attempt is one attempt at a name, and the hold that comes of it.
type attempt struct {
	req    *locker.Request
	value  string // 16 random bytes: the holder, as far as the store knows
	ticket int64  // of its place in the queue

	queued bool // it may have a place in the queue
	held   bool // it has the lock, as far as we know
	unsure bool // a statement may have been carried out without our knowing, or may yet be
}

// Features implements [driver.Store].
func (s *store) Features() driver.Features { return driver.Features{Guarantees: s.opts.leases()} }

// Begin implements [driver.Store].
func (s *store) Begin(req *locker.Request) (*attempt, error) {
	return &attempt{req: req, value: random()}, nil
}

// Acquire implements [driver.Store].
func (s *store) Acquire(ctx context.Context, a *attempt, wait driver.Wait) (driver.Grant, error) {
	if err := s.pool.checkStandby(ctx, s.opts); err != nil {
		return driver.Grant{}, err
	}
	s.sweep()
	grant, err := s.acquire(ctx, a, wait)
	if !errors.Is(err, errWithdrawn) {
		return grant, err
	}
	// The attempt was granted the lock, the answer was lost, and somebody has broken
	// the lock since. Its requests are refused for as long as they may be on their way.
	if err := s.Withdraw(ctx, a); err != nil {
		return driver.Grant{}, err
	}
	a.value, a.ticket = random(), 0
	return s.acquire(ctx, a, wait)
}

// acquire asks without queueing first where nobody has listened yet: most locks are
// free, and listening costs a connection.
func (s *store) acquire(ctx context.Context, a *attempt, wait driver.Wait) (driver.Grant, error) {
	if wait == nil || s.poll() == 0 && s.mail.Channel() == "" {
		grant, _, err := s.ask(ctx, a, false)
		if wait == nil || err != nil || grant.Count > 0 {
			return grant, err
		}
		ctx = wait()
	}
	box := mailbox.NewBox()
	if err := s.listen(ctx, a.value, box); err != nil {
		return driver.Grant{}, classify(err)
	}
	defer s.mail.Drop(a.value)
	for {
		grant, look, err := s.ask(ctx, a, true)
		if err != nil || grant.Count > 0 {
			return grant, err
		}
		ctx = wait()
		if err := box.Sleep(ctx, look); err != nil {
			return driver.Grant{}, err
		}
	}
}

// listen returns when words can arrive, unless that is known to lead nowhere.
func (s *store) listen(ctx context.Context, value string, box mailbox.Box) error {
	if s.poll() > 0 {
		return nil
	}
	err := s.mail.Open(ctx, value, box.Put)
	if errors.Is(err, errPooled) {
		s.pooled.Store(true)
		return nil
	}
	return err
}

// poll is the time between two looks where no words arrive, else 0.
func (s *store) poll() time.Duration {
	if s.opts.Poll == 0 && s.pooled.Load() {
		return defaultPoll
	}
	return s.opts.Poll
}

// errWithdrawn means that the attempt had been withdrawn before it arrived.
var errWithdrawn = errors.New("the attempt was withdrawn")

// ask asks once, and says when to ask again. If it may queue and the lock is taken, the
// attempt waits in the database from then on.
func (s *store) ask(ctx context.Context, a *attempt, queue bool) (driver.Grant, time.Duration, error) {
	var ticket, first, left, ahead int64
	since := locker.Now()
	poll, place := s.poll(), a.ticket
	if place == 0 && a.queued && a.unsure {
		place = -1 // there may be one of which we were not told
	}
	was := a.unsure
	a.queued, a.unsure = a.queued || queue, true // also if a hook of the caller's panics
	repeated, err := s.pool.repeat(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		s.pool.getReady(ctx, conn)
		return scan(ctx, conn, s.pool.mode, sqlAcquire, []any{a.req.Name, a.value, a.req.TTL.Milliseconds(), a.req.Holder,
			queue, s.mail.Channel(), (time.Second + 2*poll).Milliseconds(), place}, []any{&ticket, &first, &left, &ahead})
	})
	a.unsure = was || repeated || unsure(err)
	switch {
	case err != nil:
		return driver.Grant{}, 0, classify(err)
	case first < 0:
		return driver.Grant{}, 0, errWithdrawn
	case first > 0:
		a.held = true
		return driver.Grant{First: uint64(first), Count: tokens, Since: since}, 0, nil
	}
	a.ticket = ticket
	return driver.Grant{}, nextLook(left, ahead, poll), nil
}

// nextLook is when the lock must have come to us, if everybody before us in the
// queue has died without a word: when the lease ends, and one claim time later
// for each of them. That is when we look again unless a word comes first.
func nextLook(left, ahead int64, poll time.Duration) time.Duration {
	look := time.Duration(left)*time.Millisecond + time.Duration(ahead)*mailbox.ClaimTime
	if poll > 0 {
		look = min(look, poll)
	}
	return look
}

// remember is for how many milliseconds the store should refuse the value from
// now on.
func (a *attempt) remember() int64 {
	if !a.unsure {
		return 0
	}
	return (lateTime + a.req.TTL).Milliseconds()
}

// Release implements [driver.Store].
func (s *store) Release(ctx context.Context, a *attempt, _ time.Duration) error {
	var code int64
	repeated, err := s.pool.run(ctx, sqlRelease, []any{a.req.Name, a.value, a.remember()}, &code)
	if err != nil {
		return classify(err)
	}
	a.forget()
	if code == -1 && repeated {
		return nil // the first try released it; we would have been told of a loss in time
	}
	return answer(code)
}

// forget notes that nothing of the attempt is left.
func (a *attempt) forget() { a.queued, a.held, a.unsure = false, false, false }

// Withdraw implements [driver.Store].
func (s *store) Withdraw(ctx context.Context, a *attempt) error {
	_, err := s.pool.run(ctx, `SELECT lockstile_withdraw_`+schemaVersion+`($1, $2, $3)`, []any{a.req.Name, a.value, a.remember()}, nil)
	if err != nil {
		return classify(err)
	}
	a.forget()
	return nil
}

// Left implements [driver.Store].
func (s *store) Left(a *attempt) bool { return a.queued || a.held || a.unsure }

// End implements [driver.Store].
func (s *store) End(*attempt) {}

// sweep clears away, in the background, what dead processes have left, until nothing
// is left of it, now and then for as long as locks are asked for. Nothing depends on it.
func (s *store) sweep() {
	now, next := locker.Now(), s.sweeps.Load()
	if int64(now) < next || !s.sweeps.CompareAndSwap(next, int64(now.Add(sweepEvery))) {
		return
	}
	s.locks.Go(func() {
		for rows := int64(1); rows > 0; {
			if _, err := s.pool.run(s.locks.Closing(), `SELECT lockstile_sweep_`+schemaVersion+`()`, nil, &rows); err != nil {
				return
			}
		}
	})
}

// Inspect implements [locker.Inspector].
func (s *store) Inspect(ctx context.Context, name string) (locker.Info, error) {
	info, _, err := s.inspect(ctx, name)
	return info, err
}

func (s *store) inspect(ctx context.Context, name string) (info locker.Info, value string, err error) {
	var token, left int64
	_, err = s.pool.run(ctx, `SELECT * FROM lockstile_inspect_`+schemaVersion+`($1)`, []any{name},
		&value, &info.Holder, &token, &left, &info.Waiters)
	if err != nil {
		return locker.Info{}, "", classify(err)
	}
	info.Held, info.Token, info.TimeLeft = value != "", fencing.Token(token), time.Duration(left)*time.Millisecond
	return info, value, nil
}

// Break implements [locker.Breaker]. It names the holder that it means, so that it can
// be sent again.
func (s *store) Break(ctx context.Context, name string) (broken bool, err error) {
	_, value, err := s.inspect(ctx, name)
	if value == "" || err != nil {
		return false, err
	}
	_, err = s.pool.run(ctx, `SELECT lockstile_force_`+schemaVersion+`($1, $2, $3)`,
		[]any{name, value, (lateTime + locker.MaxTTL).Milliseconds()}, &broken)
	return broken, classify(err)
}

// List implements [locker.Lister].
func (s *store) List(ctx context.Context, prefix string) (infos []locker.Info, err error) {
	_, err = s.pool.repeat(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `SELECT * FROM lockstile_held_`+schemaVersion+`($1)`, s.pool.mode, prefix)
		if err != nil {
			return err
		}
		infos, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (info locker.Info, err error) {
			var token, left int64
			err = row.Scan(&info.Name, &info.Holder, &token, &left, &info.Waiters)
			info.Held, info.Token, info.TimeLeft = true, fencing.Token(token), time.Duration(left)*time.Millisecond
			return info, err
		})
		return err
	})
	return infos, classify(err)
}
