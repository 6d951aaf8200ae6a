package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/redlock"
)

const (
	redisNodes = 5
	// votingAge is the MaxTTL of the subject whose nodes must be older than that to
	// vote. It is short, because the run waits until they are.
	votingAge = 3 * time.Second
)

func startRedlock(lab *matrix.Lab) *running {
	var srvs []*testserver.RedisServer
	for range redisNodes {
		srvs = append(srvs, testserver.Redis(lab))
	}
	awaitAge(srvs, votingAge)
	return &running{
		store: "redlock", addrs: addrsOf(srvs), names: 50_000, memory: redisMemory(srvs), forgets: countersLive,
		subjects: redlockSubjects(addrsOf(srvs), counterOn(srvs)),
	}
}

// redlockSubjects are the subjects on several servers.
func redlockSubjects(addrs []string, requests counter) []subject {
	rdbs := func() []*redis.Client {
		var all []*redis.Client
		for _, addr := range addrs {
			all = append(all, redis.NewClient(&redis.Options{Addr: addr, PoolSize: 128}))
		}
		return all
	}
	peers := func(opts ...redsync.Option) func() (client, error) {
		return func() (client, error) { return newRedsync(opts, rdbs()...), nil }
	}
	scripts := requests("evalsha", "eval", "subscribe", "unsubscribe")
	return []subject{
		{name: "bare SET NX and DEL, a majority awaited", kind: floor, requests: requests("set", "del"),
			open: func() (client, error) { return bareNodes{rdbs()}, nil }},
		// Durable is what the Locker is told: these servers keep nothing on disk.
		{name: "lockstile/redlock, durable nodes", kind: ours, scales: true, requests: scripts,
			open: func() (client, error) {
				return newRedlock(rdbs(), redlock.Options{DurableNodes: true, KeepCounter: keepCounter})
			}},
		{name: "lockstile/redlock, young nodes have no vote", kind: ours, requests: scripts,
			open: func() (client, error) {
				return newRedlock(rdbs(), redlock.Options{MaxTTL: votingAge, KeepCounter: keepCounter}, locker.WithTTL(votingAge))
			}},
		{name: "redsync, defaults", kind: peer, requests: requests("set", "evalsha", "eval"), open: peers()},
		{name: "redsync, fail fast", kind: peer, requests: requests("set", "evalsha", "eval"), open: peers(redsync.WithFailFast(true))},
		{name: "redsync, 1 ms retries", kind: peer, requests: requests("set", "evalsha", "eval"), open: peers(redsync.WithRetryDelay(time.Millisecond))},
	}
}

// awaitAge returns when all servers say that they have been up for longer than
// age. They count whole seconds.
func awaitAge(srvs []*testserver.RedisServer, age time.Duration) {
	for _, srv := range srvs {
		srv.Await("old enough to vote", func() bool {
			up := infoNumber(srv.Do("INFO", "server"), "uptime_in_seconds:")
			return time.Duration(up-1)*time.Second > age
		})
	}
}

func newRedlock(rdbs []*redis.Client, options redlock.Options, opts ...locker.Option) (client, error) {
	// The nodes share the machine with 64 goroutines that dial them at once: the
	// default is too short for that.
	options.NodeTimeout = time.Second
	nodes := make([]redis.UniversalClient, len(rdbs))
	for i, rdb := range rdbs {
		nodes[i] = rdb
	}
	l, err := redlock.New(nodes, options)
	if err != nil {
		return nil, err
	}
	return lockstile{l, opts, func() { _ = l.Close(); closeRedis(rdbs) }}, nil
}

func closeRedis(rdbs []*redis.Client) {
	for _, rdb := range rdbs {
		_ = rdb.Close()
	}
}

// bareNodes asks all nodes at once and waits for a majority, as a lock may. A node may get
// a deletion before the key that it is to delete, so a key that is there is no error.
type bareNodes struct{ rdbs []*redis.Client }

type bareNodesKey struct {
	nodes bareNodes
	name  string
}

func (b bareNodes) Lock(ctx context.Context, name string) (held, error) {
	return bareNodesKey{b, name}, b.most(func(rdb *redis.Client) error {
		return rdb.SetArgs(ctx, name, "v", redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
	})
}

func (b bareNodes) Close() { closeRedis(b.rdbs) }

func (b bareNodes) most(f func(*redis.Client) error) error {
	answers := make(chan error, len(b.rdbs))
	for _, rdb := range b.rdbs {
		go func() { answers <- f(rdb) }()
	}
	var errs []error
	for n := 0; n <= len(b.rdbs)/2; {
		switch err := <-answers; {
		case err == nil, errors.Is(err, redis.Nil):
			n++
		default:
			if errs = append(errs, err); len(errs) > (len(b.rdbs)-1)/2 {
				return errors.Join(errs...)
			}
		}
	}
	return nil
}

func (k bareNodesKey) Unlock(ctx context.Context) error {
	return k.nodes.most(func(rdb *redis.Client) error { return rdb.Del(ctx, k.name).Err() })
}

// redisMemory is what the servers use together.
func redisMemory(srvs []*testserver.RedisServer) func() int64 {
	return func() (n int64) {
		for _, srv := range srvs {
			n += infoNumber(srv.Do("INFO", "memory"), "used_memory:")
		}
		return n
	}
}

// counterOn counts the calls of some commands. A server also counts what scripts call, so
// each subject names the commands that it sends itself.
func counterOn(srvs []*testserver.RedisServer) counter {
	return func(names ...string) func() int64 {
		return func() (n int64) {
			for _, srv := range srvs {
				stats := srv.Do("INFO", "commandstats")
				for _, name := range names {
					n += infoNumber(stats, "cmdstat_"+name+":calls=")
				}
			}
			return n
		}
	}
}

func addrsOf(srvs []*testserver.RedisServer) []string {
	var addrs []string
	for _, srv := range srvs {
		addrs = append(addrs, srv.Addr())
	}
	return addrs
}
