package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker"
)

const (
	// batchSize keeps one renewal from holding up the server.
	batchSize = 500

	// renewerIdle is for how long the connection for renewals is kept when there are
	// none. Locks with the default TTL have one every ten seconds.
	renewerIdle = time.Minute

	// busyTries and busyPause are for rows that somebody has locked: another renewal,
	// for as long as the disk takes.
	busyTries = 5
	busyPause = 10 * time.Millisecond
)

// Renew implements [driver.Store].
func (s *store) Renew(ctx context.Context, as []*attempt) []error {
	errs := make([]error, len(as))
	for start := 0; start < len(as); start += batchSize {
		end := min(start+batchSize, len(as))
		s.renewBatch(ctx, as[start:end], errs[start:end])
	}
	return errs
}

var errBusy = errors.New("somebody has locked its row in the database")

func (s *store) renewBatch(ctx context.Context, as []*attempt, errs []error) {
	left := make([]int, len(as))
	for i := range left {
		left[i] = i
	}
	for try := 0; len(left) > 0 && try < busyTries && ctx.Err() == nil; try++ {
		if try > 0 {
			time.Sleep(busyPause)
		}
		codes, err := s.renewer.send(ctx, as, left)
		busy := []int(nil)
		for i, place := range left {
			switch {
			case err != nil:
				errs[place] = classify(err)
			case codes[i] == 0:
				errs[place] = errBusy
				busy = append(busy, place)
			default:
				errs[place] = answer(codes[i])
			}
		}
		left = busy
	}
}

// answer is what a code of the schema's functions says of a lock.
func answer(code int64) error {
	switch code {
	case -2:
		return &locker.LostError{Reason: locker.Forced}
	case -1:
		return &locker.LostError{Reason: locker.TakenOver}
	}
	return nil
}

// renewer sends renewals over a connection of its own, so that the application's
// queries, which may take all connections of the pool, lose no lock. It is opened for
// the first renewal. What cannot be sent there goes over the pool.
type renewer struct {
	pool *poolRunner
	slot chan *pgx.Conn // holds the connection, or nil, while nobody uses it
	idle *time.Timer    // closes the connection; it belongs to whoever has taken the slot
}

func newRenewer(pool *poolRunner) *renewer {
	r := &renewer{pool: pool, slot: make(chan *pgx.Conn, 1)}
	r.slot <- nil
	return r
}

// send renews some of the leases, and returns the server's codes in their order.
func (r *renewer) send(ctx context.Context, as []*attempt, places []int) (codes []int64, err error) {
	names, values, ttls := make([]string, len(places)), make([]string, len(places)), make([]int64, len(places))
	for i, place := range places {
		a := as[place]
		names[i], values[i], ttls[i] = a.req.Name, a.value, a.req.TTL.Milliseconds()
	}
	codes = make([]int64, len(places))
	err = r.do(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		clear(codes)
		rows, err := conn.Query(ctx, sqlRenew, r.pool.mode, names, values, ttls)
		if err != nil {
			return err
		}
		var place, code int64
		_, err = pgx.ForEachRow(rows, []any{&place, &code}, func() error {
			if place < 1 || place > int64(len(codes)) {
				return fmt.Errorf("the server renewed lock %d of %d", place, len(codes))
			}
			codes[place-1] = code
			return nil
		})
		return err
	})
	return codes, r.pool.explain(ctx, err)
}

const sqlRenew = `SELECT place, code FROM lockstile_renew_` + schemaVersion + `($1::text[], $2::text[], $3::bigint[])`

// do calls f with the connection, or if that is in use or of no use, with one of the
// pool, which may have hooks that make more of a connection before it lends it.
func (r *renewer) do(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
	if r.own(ctx, f) == nil {
		return nil
	}
	_, err := r.pool.repeat(ctx, f)
	return err
}

// errInUse means that another renewal is under way on the connection, and may be slow.
var errInUse = errors.New("the connection is in use")

// own calls f with our connection, which it opens if need be.
func (r *renewer) own(ctx context.Context, f func(context.Context, *pgx.Conn) error) (err error) {
	var conn *pgx.Conn
	select {
	case conn = <-r.slot:
	default:
		return errInUse
	}
	defer func() { r.keep(conn) }() // also if a hook of the caller's panics
	ctx, cancel := half(ctx)
	defer cancel()
	if conn == nil {
		if conn, err = dial(ctx, r.pool.pool); err != nil {
			conn = nil
			return err
		}
	}
	err = f(ctx, conn)
	if conn.IsClosed() || broken(ctx, err) {
		hangUp(conn)
		conn = nil
	}
	return err
}

// half leaves the other half of the time for another try.
func half(ctx context.Context) (context.Context, context.CancelFunc) {
	left := answerTime
	if end, ok := ctx.Deadline(); ok {
		left = time.Until(end)
	}
	return context.WithTimeout(ctx, left/2)
}

func (r *renewer) keep(conn *pgx.Conn) {
	if r.idle != nil {
		r.idle.Stop()
	}
	if conn != nil {
		r.idle = time.AfterFunc(renewerIdle, r.close)
	}
	r.slot <- conn
}

// close closes the connection, unless it is in use. The next renewal opens another.
func (r *renewer) close() {
	select {
	case conn := <-r.slot:
		if conn != nil {
			hangUp(conn)
		}
		r.slot <- nil
	default:
	}
}
