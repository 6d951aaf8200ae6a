package peers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	goredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/testbed"
)

// redisClients returns a client of each server, or one of a Cluster. Contexts count for
// them. By default they do not, and the time limits of redsync would do nothing.
func redisClients(url string) (all []redis.UniversalClient) {
	if nodes, ok := strings.CutPrefix(url, "cluster:"); ok {
		return append(all, testbed.ClusterClient(nodes))
	}
	for _, addr := range servers(url) {
		all = append(all, redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true}))
	}
	return all
}

type redsyncPeer struct {
	locks *redsync.Redsync
}

func openRedsync(_ context.Context, url string) (matrix.Peer, error) {
	var pools []redsyncredis.Pool
	for _, client := range redisClients(url) {
		pools = append(pools, goredis.NewPool(client))
	}
	return redsyncPeer{redsync.New(pools...)}, nil
}

func (p redsyncPeer) Lock(ctx context.Context, req *driver.Request) (matrix.Holding, error) {
	m := p.mutex(req)
	return p.hold(req, m, m.LockContext(ctx))
}

func (p redsyncPeer) TryLock(ctx context.Context, req *driver.Request) (matrix.Holding, error) {
	m := p.mutex(req)
	return p.hold(req, m, m.TryLockContext(ctx))
}

// mutex has redsync's defaults, except for the length of the lease and the number of
// attempts, which the context bounds.
func (p redsyncPeer) mutex(req *driver.Request) *redsync.Mutex {
	return p.locks.NewMutex(req.Name, redsync.WithExpiry(req.TTL), redsync.WithTries(math.MaxInt32))
}

// hold takes the end of validity from redsync: its Until already leaves an allowance for
// drift.
func (p redsyncPeer) hold(req *driver.Request, m *redsync.Mutex, err error) (matrix.Holding, error) {
	if err != nil {
		if isTaken(err) {
			err = fmt.Errorf("%w: %w", locker.ErrTaken, err)
		}
		return nil, fmt.Errorf("redsync: lock %q: %w", req.Name, err)
	}
	left := time.Until(m.Until()) + req.TTL/100
	return hold(req, driver.Now(), left, &redsyncLease{name: req.Name, mutex: m})
}

func isTaken(err error) bool {
	var taken *redsync.ErrTaken
	return errors.As(err, &taken)
}

// redsyncLease is used by one goroutine at a time, as a redsync.Mutex has to be.
type redsyncLease struct {
	name  string
	mu    sync.Mutex
	mutex *redsync.Mutex
}

func (l *redsyncLease) extend(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch ok, err := l.mutex.ExtendContext(ctx); {
	case ok:
		return nil
	case isTaken(err):
		return &locker.LostError{Name: l.name, Reason: locker.ReasonTakenOver, Cause: err}
	case err != nil:
		return err
	}
	return errors.New("redsync: not extended")
}

func (l *redsyncLease) release(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch ok, err := l.mutex.UnlockContext(ctx); {
	case ok:
		return nil
	case isTaken(err) || errors.Is(err, redsync.ErrLockAlreadyExpired):
		return &locker.LostError{Name: l.name, Reason: locker.ReasonTakenOver, Cause: err}
	case err != nil:
		return err
	}
	return errors.New("redsync: not unlocked")
}
