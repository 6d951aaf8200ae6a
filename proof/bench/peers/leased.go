package peers

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/simplelock"
	"github.com/lockstile/locker/proof/matrix"
)

// lease is a lock with a time to live, in a library that leaves renewal to its
// user.
type lease interface {
	extend(ctx context.Context) error
	release(ctx context.Context) error
}

// leased is a lease in the hands of a careful user, who extends it at a third of
// its length and stops believing at its end.
type leased struct {
	*locker.Lock
	lease lease
}

var _ matrix.Holding = leased{}

// hold returns a lock for a lease of which so much was left at a moment.
func hold(req *driver.Request, at driver.Instant, left time.Duration, l lease) (matrix.Holding, error) {
	since := at.Add(left - req.TTL)
	if err := simplelock.Check(req, since); err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), enough)
		defer cancel()
		_ = l.release(ctx) // it has ended, or ends by itself
		return nil, fmt.Errorf("peers: lock %q: %w", req.Name, err)
	}
	return leased{simplelock.New(simplelock.Lease{Request: req, Since: since, Renew: l.extend, Release: l.release}), l}, nil
}

// Unlock calls the library also when the lock is lost, as a deferred call does: whether
// that harms the next holder is up to the library.
func (l leased) Unlock(ctx context.Context) error {
	lost := l.Err()
	if lost == nil {
		return l.Lock.Unlock(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, enough)
	defer cancel()
	_ = l.lease.release(ctx) // that it was lost is what counts
	return lost
}
