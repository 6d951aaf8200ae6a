package testbed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/open"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/redlock"
)

// redlockNodeTimeout is longer than the default, for a busy machine.
const redlockNodeTimeout = 150 * time.Millisecond

func redlockSubjects() []matrix.Subject {
	return []matrix.Subject{
		{
			Name: "redlock", About: "five Redis that keep nothing on disk",
			Guarantees: redlockGuarantees(redlock.Options{}), Start: fiveRedis(""),
		},
		{
			Name: "redlock-rule", About: "the same without the rule for restarted nodes (DurableNodes, which is not true)",
			Guarantees: redlockGuarantees(redlock.Options{DurableNodes: true}), Start: fiveRedis("&durable_nodes=true"),
		},
	}
}

func redlockGuarantees(opts redlock.Options) locker.Guarantees {
	var nodes []redis.UniversalClient
	for i := range 5 {
		rdb := redis.NewClient(&redis.Options{Addr: fmt.Sprint("node", i)}) // not used, so it does not connect
		defer rdb.Close()
		nodes = append(nodes, rdb)
	}
	l, err := redlock.New(nodes, opts)
	if err != nil {
		panic(err) // five clients and valid options
	}
	defer l.Close()
	return l.Guarantees()
}

// fiveRedis starts five nodes. The one that crashes is one of the three that granted the
// lock: the other two are cut off meanwhile.
func fiveRedis(query string) func(*matrix.Lab) (*matrix.System, error) {
	return func(lab *matrix.Lab) (*matrix.System, error) {
		clocks := newClocks(lab, 5)
		var srvs []*testserver.RedisServer
		var addrs []string
		for _, clock := range clocks {
			srv := testserver.RedisWithEnv(lab, clock.env())
			srvs, addrs = append(srvs, srv), append(addrs, srv.Addr())
		}
		maxTTL := 6 * lab.TTL // the longest lease in the scenarios that it plays: for so long a restarted node has no vote
		query := fmt.Sprintf("?max_ttl=%v&node_timeout=%v", maxTTL, redlockNodeTimeout) + query
		var all []conformance.Proxies
		lastTwo := func(f func(ps conformance.Proxies)) {
			for _, ps := range all {
				f(ps[3:])
			}
		}
		back := func() {
			time.Sleep(2 * redlockNodeTimeout) // clients that asked them have given up
			lastTwo(conformance.Proxies.Heal)
		}
		sys := &matrix.System{
			Client: func() (string, conformance.Network, error) {
				ps, err := lab.Proxy(addrs...)
				all = append(all, ps)
				return "redlock://" + ps.Addrs() + query, ps, err
			},
			Prepare:      try(lab, func() { lastTwo(conformance.Proxies.Cut) }),
			CrashKeeping: try(lab, back, srvs[2].Kill, srvs[2].Start),
			CrashEmpty:   try(lab, back, srvs[2].Kill, srvs[2].Wipe, srvs[2].Start),
			Pause:        try(lab, each(srvs, (*testserver.RedisServer).Pause)),
			Resume:       try(lab, each(srvs, (*testserver.RedisServer).Resume)),
			Part: func(bool) (matrix.Part, error) {
				ps, err := lab.Proxy(addrs...)
				return matrix.Part{
					URL: "redlock://" + ps.Addrs() + query, Net: ps,
					Stop:   try(lab, each(srvs[3:], (*testserver.RedisServer).Pause)),
					Resume: try(lab, each(srvs[3:], (*testserver.RedisServer).Resume)),
				}, err
			},
			KillMinority: try(lab, each(srvs[:2], (*testserver.RedisServer).Kill)),
			KillMajority: try(lab, each(srvs[:3], (*testserver.RedisServer).Kill)),
			Restore:      try(lab, each(srvs[:3], (*testserver.RedisServer).Start)),
			Narrow:       narrow,
			Stored:       storedOnRedis(srvs...),
			Stranger:     redisStranger(srvs...),
		}
		if clocks[0].step != nil {
			sys.StepClock = stepAll(clocks, srvs)
			sys.SkewClocks = func() error { return stepAll(clocks[:2], srvs[:2])(time.Hour) }
		}
		return sys, awaitVotes(srvs, "redlock://"+strings.Join(addrs, ",")+query)
	}
}

func each[S any](srvs []S, f func(S)) func() {
	return func() {
		for _, srv := range srvs {
			f(srv)
		}
	}
}

// narrow cuts a worker off from all nodes outside the nth majority.
func narrow(net conformance.Network, n int) error {
	ps, ok := net.(conformance.Proxies)
	if !ok {
		return errors.New("this worker has no network")
	}
	for _, i := range outside(n, len(ps)) {
		ps[i].Cut()
	}
	return nil
}

// outside returns which of the nodes are not in the nth majority. A majority begins with
// the last node of the one before it.
func outside(n, nodes int) (out []int) {
	majority := nodes/2 + 1
	for i := majority; i < nodes; i++ {
		out = append(out, (n*(majority-1)+i)%nodes)
	}
	return out
}

func stepAll(clocks []*clock, srvs []*testserver.RedisServer) func(time.Duration) error {
	return func(d time.Duration) error {
		var errs []error
		for i, c := range clocks {
			errs = append(errs, c.stepping(srvs[i])(d))
		}
		return errors.Join(errs...)
	}
}

// awaitVotes waits until all nodes have been up for long enough to vote.
func awaitVotes(srvs []*testserver.RedisServer, url string) error {
	b, err := open.URL(context.Background(), url)
	if err != nil {
		return err
	}
	defer b.Close()
	srvs[0].Await("votes of all nodes", func() bool {
		lock, err := b.TryLock(context.Background(), "ready?", locker.WithTTL(time.Second))
		if err != nil || lock.Unlock(context.Background()) != nil {
			return false
		}
		return !slices.ContainsFunc(srvs, func(srv *testserver.RedisServer) bool {
			return srv.Do("EXISTS", "lockstile:t:{ready?}") == "0" // it has drawn no token yet
		})
	})
	return nil
}
