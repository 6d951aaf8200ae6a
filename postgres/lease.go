package postgres

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/mailbox"
)

const (
	// lateTime is how long a withdrawn value is refused, at least, by the server's
	// clock. A request that arrives even later leaves a lock behind, which ends with
	// its TTL.
	lateTime = time.Minute

	// sweepEvery is the least time between two sweeps.
	sweepEvery = 10 * time.Minute

	// tokens is how many a grant of an exclusive lock has. The schema multiplies each
	// number of its sequence by it.
	tokens = 1024
)

// store is the [driver.Store] of leases.
type store struct {
	opts  Options
	pool  *poolRunner
	own   *poolRunner // with the connection for renewals
	mail  *mailbox.Mailbox
	locks *driver.Locker[*attempt]

	sweeps atomic.Int64 // when to sweep next, a [driver.Instant]
}

// attempt is one attempt at a name, and the hold that comes of it.
type attempt struct {
	req    *driver.Request
	value  string // 16 random bytes, by which the store knows it
	ticket int64  // of its place in the queue

	queued bool // it may have a place in the queue
	unsure bool // a statement without an answer may have been carried out, or may yet be

	adopted bool // another process had it
}

func (s *store) Guarantees() locker.Guarantees { return s.opts.leases() }

func (s *store) Begin(req *driver.Request) (*attempt, error) {
	return &attempt{req: req, value: random()}, nil
}

func (s *store) Acquire(ctx context.Context, a *attempt, wait driver.Wait) (driver.Grant, driver.Left, error) {
	s.sweep()
	grant, left, err := s.acquire(ctx, a, wait)
	if errors.Is(err, errWithdrawn) {
		// The attempt was granted the lock, the answer was lost, and somebody has broken
		// the lock since. Its requests are refused for as long as they may be on their way.
		if err = s.Withdraw(ctx, a); err == nil {
			a.value, a.ticket = random(), 0
			grant, left, err = s.acquire(ctx, a, wait)
		}
	}
	if a.unsure {
		left = driver.Unsure
	}
	return grant, left, err
}

func (s *store) acquire(ctx context.Context, a *attempt, wait driver.Wait) (driver.Grant, driver.Left, error) {
	return s.mail.Acquire(ctx, a.value, wait, func(ctx context.Context, queue bool) (driver.Grant, time.Duration, error) {
		return s.ask(ctx, a, queue)
	})
}

// errWithdrawn means that the attempt had been withdrawn before its request arrived.
var errWithdrawn = errors.New("the attempt was withdrawn")

// ask asks once, and says when to ask again. If it may queue and the lock is taken, the
// attempt waits in the database from then on.
func (s *store) ask(ctx context.Context, a *attempt, queue bool) (driver.Grant, time.Duration, error) {
	var got answered
	var since driver.Instant // not the time that the application keeps all connections
	poll, place := s.opts.Poll, a.ticket
	if poll == 0 && s.mail.Silent() {
		poll = defaultPoll
	}
	unheard := a.queued && a.unsure // there may be a place, but no answer has told us its ticket
	was := a.unsure
	a.queued, a.unsure = a.queued || queue, true // also if a hook of the caller's panics
	repeated, err := s.pool.repeat(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		s.pool.getReady(ctx, conn)
		if since == 0 { // it is the first that is sent
			since = driver.Now()
		} else if queue { // an earlier one may have arrived
			unheard = true
		}
		if place == 0 && unheard {
			place = -1
		}
		return scan(ctx, conn, s.pool.mode, sqlAcquire, []any{a.req.Name, a.value, a.req.TTL.Milliseconds(), a.req.Holder,
			queue, s.mail.Channel(), (time.Second + 2*poll).Milliseconds(), place, s.opts.SyncStandby, slotsOf(a.req)},
			[]any{&got.ticket, &got.first, &got.slot, &got.left, &got.ahead})
	})
	a.unsure = was || repeated || unsure(err)
	if err != nil {
		return driver.Grant{}, 0, err
	}
	grant, err := got.grant(a.req, since)
	switch {
	case err != nil:
		a.unsure = a.unsure || !errors.Is(err, errWithdrawn) && !errors.Is(err, locker.ErrMismatch)
		return driver.Grant{}, 0, err
	case grant.Count > 0:
		a.queued = a.unsure
		return grant, 0, nil
	}
	a.ticket = got.ticket
	return driver.Grant{}, nextLook(got.left, got.ahead, poll), nil
}

// answered is the row of an answer.
type answered struct{ ticket, first, slot, left, ahead int64 }

// grant is what was granted, or the zero Grant if the lock is taken. A row that the schema does
// not answer may be a grant that nobody can understand: it is an error, after which the attempt
// is withdrawn.
func (got answered) grant(req *driver.Request, since driver.Instant) (driver.Grant, error) {
	switch {
	case got.first == -2:
		kind, slots := kindOf(int(got.slot))
		return driver.Grant{}, driver.Mismatch(req, kind, slots)
	case got.first == -1:
		return driver.Grant{}, errWithdrawn
	case got.first == 0 && got.ahead >= 0:
		return driver.Grant{}, nil
	case got.first > 0 && got.slot >= 0 && got.slot < int64(max(1, req.Slots)):
		return grantOf(req, got.first, int(got.slot), since), nil
	}
	return driver.Grant{}, fmt.Errorf("the database gave an answer of an unknown form: %+v", got)
}

// nextLook is when we look again unless a word comes first. If all before us in the queue
// have died, the lock comes to us then: when the lease ends, and one claim time later for
// each of them.
func nextLook(left, ahead int64, poll time.Duration) time.Duration {
	look := mailbox.Left(left) + time.Duration(min(ahead, mostAhead))*mailbox.ClaimTime
	if poll > 0 {
		look = min(look, poll)
	}
	return look
}

// mostAhead is more than wait: a process counts once.
const mostAhead = 1 << 32

// ID implements [driver.Detacher].
func (s *store) ID(a *attempt) string { return a.value }

// Resume implements [driver.Detacher].
func (s *store) Resume(ctx context.Context, a *attempt, ids []string) (driver.Grant, driver.Left, error) {
	for _, id := range ids {
		if err := a.checkValue(id); err != nil {
			return driver.Grant{}, driver.Nothing, err
		}
	}
	var token int64
	var since driver.Instant
	repeated, err := s.pool.repeat(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		since = cmp.Or(since, driver.Now()) // it is the first that is sent
		return scan(ctx, conn, s.pool.mode, `SELECT lockstile_resume_`+schemaVersion+`($1::pg_catalog.text, $2::pg_catalog.text, $3::bigint, $4::pg_catalog.text,
			$5::pg_catalog.text[], $6::bigint, $7::boolean)`,
			[]any{a.req.Name, a.value, a.req.TTL.Milliseconds(), a.req.Holder, ids, (lateTime + a.req.TTL).Milliseconds(), s.opts.SyncStandby}, []any{&token})
	})
	a.unsure = repeated || unsure(err)
	switch {
	case err != nil:
		return driver.Grant{}, driver.UnsureIf(a.unsure), err
	case token > 0:
	case answer(token) != nil:
		return driver.Grant{}, driver.Nothing, answer(token)
	default: // it may be a grant
		a.unsure = true
		return driver.Grant{}, driver.Unsure, fmt.Errorf("the server gave an answer of an unknown form: %d", token)
	}
	return grantOf(a.req, token, 0, since), driver.Unsure, nil
}

// Adopt implements [driver.Detacher].
func (s *store) Adopt(a *attempt, id string) error {
	if err := a.checkValue(id); err != nil {
		return err
	}
	a.value, a.adopted = id, true
	a.unsure = true // its first statement may still be under way
	return nil
}

// checkValue returns an error if a value that comes from outside cannot be one of ours.
func (a *attempt) checkValue(value string) error {
	if _, err := base64.RawURLEncoding.DecodeString(value); err != nil || len(value) != len(a.value) {
		return fmt.Errorf("%w: the handle has a value that is none of this backend's", errors.ErrUnsupported)
	}
	return nil
}

func (s *store) Release(ctx context.Context, a *attempt, keep time.Duration) error {
	code, repeated, err := s.giveBack(ctx, a, keep)
	switch {
	case err != nil:
		return err
	case code == -1 && repeated && a.adopted:
		return errors.New("an earlier statement, which was not answered, may have freed the lock: when asked again, it was gone")
	case code == -1 && repeated:
		return nil // the first try released it; we would have been told of a loss in time
	}
	return answer(code)
}

func (s *store) Withdraw(ctx context.Context, a *attempt) error {
	_, _, err := s.giveBack(ctx, a, 0)
	return err
}

// giveBack removes whatever the attempt has in the store, or leaves the lock there until keep
// has passed. From then on the store refuses a request of the attempt that may still be on
// its way.
func (s *store) giveBack(ctx context.Context, a *attempt, keep time.Duration) (code int64, repeated bool, err error) {
	keep += time.Millisecond - 1 // counted in whole ones, and not for less
	refuse := time.Duration(0)
	if a.unsure {
		refuse = lateTime + a.req.TTL
	}
	repeated, err = s.pool.run(ctx, sqlRelease, []any{a.req.Name, a.value, a.queued, refuse.Milliseconds(), keep.Milliseconds(), a.req.Kind == locker.KindShared}, &code)
	if err == nil {
		a.queued, a.unsure = false, false
	}
	return code, repeated, err
}

// sweep clears away all that dead processes have left, in the background, every
// sweepEvery at most while locks are asked for. Nothing depends on it.
func (s *store) sweep() {
	now, next := driver.Now(), s.sweeps.Load()
	if int64(now) < next || !s.sweeps.CompareAndSwap(next, int64(now.Add(sweepEvery))) {
		return
	}
	s.locks.Go(func() {
		for rows := int64(1); rows > 0; {
			err := driver.Caught(func() error {
				_, err := s.pool.run(s.locks.Closing(), `SELECT lockstile_sweep_`+schemaVersion+`()`, nil, &rows)
				return err
			})
			if err != nil {
				return
			}
		}
	})
}

func (s *store) Inspect(ctx context.Context, name string) (locker.Info, error) {
	return s.pool.lookAt(ctx, `SELECT * FROM lockstile_inspect_`+schemaVersion+`($1::pg_catalog.text)`, name)
}

func (s *store) List(ctx context.Context, prefix string) ([]locker.Info, error) {
	return s.pool.look(ctx, `SELECT * FROM lockstile_list_`+schemaVersion+`($1::pg_catalog.text)`, prefix)
}

// Break names the leases by their tokens, so it can be sent again without breaking the next
// ones. If it was, the first may have broken them.
func (s *store) Break(ctx context.Context, name string, number locker.Number) (broken bool, err error) {
	numbers := []locker.Number{number}
	if number == 0 {
		info, err := s.Inspect(ctx, name)
		if err != nil || !info.Held {
			return false, err
		}
		numbers[0] = locker.Number(info.Token)
		for _, h := range info.Holders {
			numbers = append(numbers, h.Number)
		}
	}
	repeated, err := s.pool.run(ctx, `SELECT lockstile_break_`+schemaVersion+`($1::pg_catalog.text, $2::bigint[], $3::bigint)`,
		[]any{name, bigints(numbers), (lateTime + locker.MaxTTL).Milliseconds()}, &broken)
	return broken || repeated, err
}
