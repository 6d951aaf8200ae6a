package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	goredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/singlenode"
)

const (
	ttl = 30 * time.Second

	// keepCounter is shorter than the default: a run waits until counters are gone.
	keepCounter = time.Minute

	// countersLive is how long after its last token a counter is gone from the servers: a
	// TTL, the time that it is kept and a third of that, and a little more, because the
	// servers remove a few expired keys at a time.
	countersLive = ttl + keepCounter*4/3 + 15*time.Second
)

func startRedis(lab *matrix.Lab) *running {
	srvs := []*testserver.RedisServer{testserver.Redis(lab)}
	return &running{
		store: "redis", addrs: addrsOf(srvs), names: 1_000_000, memory: redisMemory(srvs), forgets: countersLive,
		subjects: redisSubjects(addrsOf(srvs), counterOn(srvs)),
	}
}

// redisSubjects are the subjects on one server. Requests counts some of its commands.
func redisSubjects(addrs []string, requests counter) []subject {
	rdb := func() *redis.Client { return redis.NewClient(&redis.Options{Addr: addrs[0], PoolSize: 128}) }
	heedful := func() *redis.Client {
		return redis.NewClient(&redis.Options{Addr: addrs[0], PoolSize: 128, ContextTimeoutEnabled: true})
	}
	retry := func(d time.Duration) func() (client, error) {
		return func() (client, error) { return newRedislock(rdb(), d), nil }
	}
	sync := func(opts ...redsync.Option) func() (client, error) {
		return func() (client, error) { return newRedsync(opts, rdb()), nil }
	}
	scripts := requests("evalsha", "eval", "subscribe", "unsubscribe")
	return []subject{
		{name: "bare SET NX and DEL", kind: floor, requests: requests("set", "del"),
			open: func() (client, error) { return bareRedis{rdb()}, nil }},
		{name: "lockstile/singlenode", kind: ours, scales: true, requests: scripts,
			open: func() (client, error) { return newSinglenode(rdb()) }},
		{name: "lockstile/singlenode, ContextTimeoutEnabled", kind: ours, alone: true, requests: scripts,
			open: func() (client, error) { return newSinglenode(heedful()) }},
		{name: "redislock, 100 ms retries", kind: peer, requests: requests("evalsha", "eval"), open: retry(100 * time.Millisecond)},
		{name: "redislock, 1 ms retries", kind: peer, requests: requests("evalsha", "eval"), open: retry(time.Millisecond)},
		{name: "redsync, defaults", kind: peer, requests: requests("set", "evalsha", "eval"), open: sync()},
		{name: "redsync, 1 ms retries", kind: peer, requests: requests("set", "evalsha", "eval"), open: sync(redsync.WithRetryDelay(time.Millisecond))},
	}
}

// infoNumber reads the number after a label in what INFO says.
func infoNumber(info, label string) int64 {
	_, rest, _ := strings.Cut(info, label)
	end := strings.IndexFunc(rest, func(c rune) bool { return c < '0' || c > '9' })
	if end >= 0 {
		rest = rest[:end]
	}
	n, _ := strconv.ParseInt(rest, 10, 64) // 0 where the label is not there
	return n
}

func newSinglenode(rdb *redis.Client) (client, error) {
	l, err := singlenode.New(rdb, singlenode.Options{KeepCounter: keepCounter})
	if err != nil {
		return nil, err
	}
	return lockstile{l, nil, func() { _ = l.Close(); _ = rdb.Close() }}, nil
}

type bareRedis struct{ rdb *redis.Client }

type bareKey struct {
	rdb  *redis.Client
	name string
}

func (b bareRedis) Lock(ctx context.Context, name string) (held, error) {
	err := b.rdb.SetArgs(ctx, name, "v", redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
	return bareKey{b.rdb, name}, err
}

func (b bareRedis) Close() { _ = b.rdb.Close() }

func (k bareKey) Unlock(ctx context.Context) error { return k.rdb.Del(ctx, k.name).Err() }

type redislockClient struct {
	rdb   *redis.Client
	locks *redislock.Client
	retry time.Duration
}

type redislockHeld struct{ lock *redislock.Lock }

func newRedislock(rdb *redis.Client, retry time.Duration) client {
	return redislockClient{rdb, redislock.New(rdb), retry}
}

func (c redislockClient) Lock(ctx context.Context, name string) (held, error) {
	lock, err := c.locks.Obtain(ctx, name, ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(c.retry)})
	return redislockHeld{lock}, err
}

func (c redislockClient) Close() { _ = c.rdb.Close() }

func (h redislockHeld) Unlock(ctx context.Context) error { return h.lock.Release(ctx) }

type redsyncClient struct {
	rdbs  []*redis.Client
	locks *redsync.Redsync
	opts  []redsync.Option
}

type redsyncHeld struct{ mutex *redsync.Mutex }

func newRedsync(opts []redsync.Option, rdbs ...*redis.Client) client {
	opts = append(opts, redsync.WithExpiry(ttl), redsync.WithTries(1<<30))
	return redsyncClient{rdbs, redsync.New(pools(rdbs)...), opts}
}

func pools(rdbs []*redis.Client) []redsyncredis.Pool {
	all := make([]redsyncredis.Pool, len(rdbs))
	for i, rdb := range rdbs {
		all[i] = goredis.NewPool(rdb)
	}
	return all
}

func (c redsyncClient) Lock(ctx context.Context, name string) (held, error) {
	m := c.locks.NewMutex(name, c.opts...)
	return redsyncHeld{m}, m.LockContext(ctx)
}

func (c redsyncClient) Close() { closeRedis(c.rdbs) }

func (h redsyncHeld) Unlock(ctx context.Context) error {
	_, err := h.mutex.UnlockContext(ctx)
	return err
}
