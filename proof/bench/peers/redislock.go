package peers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bsm/redislock"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/proof/matrix"
)

type redislockPeer struct {
	locks *redislock.Client
}

func openRedislock(_ context.Context, url string) (matrix.Peer, error) {
	return redislockPeer{redislock.New(redisClients(url)[0])}, nil
}

// Lock retries as the library's examples do.
func (p redislockPeer) Lock(ctx context.Context, req *driver.Request) (matrix.Holding, error) {
	return p.obtain(ctx, req, redislock.LinearBackoff(100*time.Millisecond))
}

func (p redislockPeer) TryLock(ctx context.Context, req *driver.Request) (matrix.Holding, error) {
	return p.obtain(ctx, req, redislock.NoRetry())
}

// obtain asks for the time that is left after a grant: the library does not say
// when the request that was granted was sent.
func (p redislockPeer) obtain(ctx context.Context, req *driver.Request, retry redislock.RetryStrategy) (matrix.Holding, error) {
	lock, err := p.locks.Obtain(ctx, req.Name, req.TTL, &redislock.Options{RetryStrategy: retry})
	if errors.Is(err, redislock.ErrNotObtained) {
		err = fmt.Errorf("%w: %w", locker.ErrTaken, err)
	}
	if err != nil {
		return nil, fmt.Errorf("redislock: lock %q: %w", req.Name, err)
	}
	at := driver.Now()
	left, err := lock.TTL(ctx)
	if err != nil {
		left = 0 // hold gives it back
	}
	return hold(req, at, left, redislockLease{lock, req.TTL})
}

type redislockLease struct {
	lock *redislock.Lock
	ttl  time.Duration
}

func (l redislockLease) extend(ctx context.Context) error {
	return l.lost(l.lock.Refresh(ctx, l.ttl, nil), redislock.ErrNotObtained)
}

func (l redislockLease) release(ctx context.Context) error {
	return l.lost(l.lock.Release(ctx), redislock.ErrLockNotHeld)
}

// lost returns a LostError for the error by which the library says that the store no
// longer has the lock.
func (l redislockLease) lost(err, gone error) error {
	if errors.Is(err, gone) {
		return &locker.LostError{Name: l.lock.Key(), Reason: locker.ReasonTakenOver, Cause: err}
	}
	return err
}
