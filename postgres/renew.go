package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
)

const (
	// batchSize bounds how many locks one statement renews.
	batchSize = 500

	// ownIdle is for how long a connection beside the pool is kept when it is not needed.
	// Locks with the default TTL are renewed every ten seconds.
	ownIdle = time.Minute

	// pingTime is what a connection that was idle has for a sign of life.
	pingTime = 2 * time.Second

	// busyTries and busyPause are for rows that somebody has locked: mostly another
	// renewal, which waits for the disk.
	busyTries = 5
	busyPause = 10 * time.Millisecond
)

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
	for try := 0; len(left) > 0 && try < busyTries; try++ { // once at least: what was not sent has failed
		if try > 0 {
			time.Sleep(busyPause)
		}
		codes, err := s.send(ctx, as, left)
		busy := []int(nil)
		for i, place := range left {
			switch {
			case err != nil:
				errs[place] = err
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

// answer is the loss that a code of lockstile_renew and lockstile_release stands for, or
// nil.
func answer(code int64) error {
	switch code {
	case -2:
		return &locker.LostError{Reason: locker.ReasonForced}
	case -1:
		return &locker.LostError{Reason: locker.ReasonTakenOver}
	}
	return nil
}

// newOwnPool returns a pool of one connection, with the settings and hooks of the
// application's pool, for renewals, which must not wait for the application's queries. The connection is opened
// when it is needed first, and closed when it has not been for a while. A renewal is a sign
// of life itself.
func newOwnPool(pool *pgxpool.Pool) (*pgxpool.Pool, error) {
	config := pool.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns = 1, 0, 0
	config.MaxConnIdleTime = ownIdle
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	return pgxpool.NewWithConfig(context.Background(), config)
}

// send renews some of the leases, and returns the server's codes in their order. What
// our own connection does not do in half of the time goes over the application's pool:
// the role may have no other connection, or the Locker was closed.
func (s *store) send(ctx context.Context, as []*attempt, places []int) (codes []int64, err error) {
	names, values, ttls := make([]string, len(places)), make([]string, len(places)), make([]int64, len(places))
	for i, place := range places {
		a := as[place]
		names[i], values[i], ttls[i] = a.req.Name, a.value, a.req.TTL.Milliseconds()
	}
	renew := func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, sqlRenew, s.pool.mode, names, values, ttls, s.opts.SyncStandby)
		if err != nil {
			return err
		}
		codes, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	}
	left := answerTime
	if end, ok := ctx.Deadline(); ok {
		left = time.Until(end)
	}
	first, cancel := context.WithTimeout(ctx, left/2)
	defer cancel()
	if _, err = s.own.repeat(first, renew); err != nil {
		_, err = s.pool.repeat(ctx, renew)
	}
	if err == nil && len(codes) != len(places) {
		err = fmt.Errorf("the server renewed %d locks of %d", len(codes), len(places))
	}
	return codes, err
}

const sqlRenew = `SELECT code FROM lockstile_renew_` + schemaVersion + `($1::pg_catalog.text[], $2::pg_catalog.text[], $3::bigint[], $4::boolean) ORDER BY place`
