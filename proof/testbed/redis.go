package testbed

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/singlenode"
)

func redisSubjects() []matrix.Subject {
	return []matrix.Subject{
		{
			Name: "singlenode", About: "one Redis that keeps nothing on disk",
			Guarantees: singlenodeGuarantees(0), Start: oneRedis(),
		},
		{
			Name: "singlenode+AOF", About: "one Redis with appendfsync always",
			Guarantees: singlenodeGuarantees(0), Start: oneRedis("--appendonly", "yes", "--appendfsync", "always"),
		},
		{
			Name: "singlenode+replica", About: "one Redis with a replica that may take over",
			Guarantees: singlenodeGuarantees(0), Start: redisWithReplica(""),
		},
		{
			Name: "singlenode+WAIT", About: "the same, with Replicas: 1",
			Guarantees: singlenodeGuarantees(1), Start: redisWithReplica("?replicas=1"),
		},
		redisClusterSubject(),
	}
}

// singlenodeGuarantees asks the backend for its declaration. The client is not used, so it
// does not connect.
func singlenodeGuarantees(replicas int) locker.Guarantees {
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	l, err := singlenode.New(rdb, singlenode.Options{Replicas: replicas})
	if err != nil {
		panic(err) // a client and valid options: nothing that could be wrong
	}
	defer l.Close()
	return l.Guarantees()
}

func oneRedis(args ...string) func(*matrix.Lab) (*matrix.System, error) {
	return func(lab *matrix.Lab) (*matrix.System, error) {
		clock := newClock(lab)
		srv := testserver.RedisWithEnv(lab, clock.env(), args...)
		sys := &matrix.System{
			Client:       clients(lab, "redis://", srv.Addr()),
			CrashKeeping: try(lab, srv.Kill, srv.Start),
			CrashEmpty:   try(lab, srv.Kill, srv.Wipe, srv.Start),
			Pause:        try(lab, srv.Pause),
			Resume:       try(lab, srv.Resume),
			StepClock:    clock.stepping(srv),
			Stored:       storedOnRedis(srv),
			Stranger:     redisStranger(srv),
		}
		if len(args) == 0 { // with an append-only file there are no snapshots to go back to
			sys.Snapshot = try(lab, func() { srv.Do("SAVE") })
			sys.CrashOld = sys.CrashKeeping
		}
		return sys, nil
	}
}

// timeOf asks a server for the time.
func timeOf(srv *testserver.RedisServer) func() (time.Time, error) {
	return func() (time.Time, error) {
		said, err := srv.TryDo("EVAL", "return redis.call('TIME')[1]", "0")
		if err != nil {
			return time.Time{}, err
		}
		seconds, err := strconv.ParseInt(said, 10, 64)
		return time.Unix(seconds, 0), err
	}
}

// clients returns a matrix.System's Client. Its URL is before and the servers, separated by
// commas.
func clients(lab *matrix.Lab, before string, targets ...string) func() (string, conformance.Network, error) {
	return func() (string, conformance.Network, error) {
		ps, err := lab.Proxy(targets...)
		if err != nil {
			return "", nil, err
		}
		return before + ps.Addrs(), ps, nil
	}
}

func redisWithReplica(query string) func(*matrix.Lab) (*matrix.System, error) {
	return func(lab *matrix.Lab) (*matrix.System, error) {
		clock := newClock(lab) // of the replica
		primary := testserver.Redis(lab, "--repl-diskless-sync-delay", "0")
		replica := follower(lab, primary, nil)
		current := primary.Addr()
		var all []conformance.Proxies
		return &matrix.System{
			Client: func() (string, conformance.Network, error) {
				ps, err := lab.Proxy(current)
				if err != nil {
					return "", nil, err
				}
				all = append(all, ps)
				return "redis://" + ps.Addrs() + query, ps, nil
			},
			// Nobody listens on that port, so the replica keeps what it has.
			Lag: try(lab, func() { replica.Do("REPLICAOF", "127.0.0.1", "1") }),
			ClockAhead: clock.hourAhead(lab, func() func() (time.Time, error) {
				replica.Kill()
				replica = follower(lab, primary, clock.env())
				return timeOf(replica)
			}),
			CatchUp:  try(lab, func() { awaitReplica(primary) }),
			Stored:   storedOnRedis(primary),
			Stranger: redisStranger(primary),
			FailOver: try(lab, primary.Kill, func() {
				replica.Do("REPLICAOF", "NO", "ONE")
				follower(lab, replica, nil)
				current = replica.Addr()
				for _, ps := range all {
					ps[0].Retarget(current)
				}
			}),
		}, nil
	}
}

// follower starts a replica and waits until it follows.
func follower(lab *matrix.Lab, primary *testserver.RedisServer, env []string) *testserver.RedisServer {
	host, port, _ := strings.Cut(primary.Addr(), ":")
	replica := testserver.RedisWithEnv(lab, env, "--repl-diskless-sync-delay", "0", "--replicaof", host+" "+port)
	awaitReplica(primary)
	return replica
}

// awaitReplica waits until the replica has everything that the primary has now.
func awaitReplica(primary *testserver.RedisServer) {
	rdb := redis.NewClient(&redis.Options{Addr: primary.Addr()})
	defer rdb.Close()
	primary.Await("a write that the replica has confirmed", func() bool { return confirmed(rdb) })
}

// redisStranger is a client that follows the Redlock page, on all of these servers.
func redisStranger(servers ...*testserver.RedisServer) func(name string) (func() error, error) {
	return func(name string) (func() error, error) {
		release := func(servers []*testserver.RedisServer) error {
			var errs []error
			for _, srv := range servers {
				errs = append(errs, wants(srv, "1", "DEL", name))
			}
			return errors.Join(errs...)
		}
		for i, srv := range servers {
			if err := wants(srv, "OK", "SET", name, "a stranger's", "NX", "PX", "600000"); err != nil {
				return nil, errors.Join(err, release(servers[:i]))
			}
		}
		return func() error { return release(servers) }, nil
	}
}

// wants sends a command and wants this answer.
func wants(srv *testserver.RedisServer, want string, args ...string) error {
	got, err := srv.TryDo(args...)
	if err == nil && got != want {
		err = fmt.Errorf("the answer is %q, not %q", got, want)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return nil
}

// confirmed reports whether a write has reached the replica. WAIT counts the
// writes of its own connection, so the two go in one pipeline.
func confirmed(rdb *redis.Client) bool {
	ctx := context.Background()
	pipe := rdb.Pipeline()
	pipe.Set(ctx, "replica", "there", time.Minute)
	acks := pipe.Do(ctx, "wait", 1, 100)
	_, _ = pipe.Exec(ctx) // the error is the command's
	n, err := acks.Int()
	return err == nil && n == 1
}
