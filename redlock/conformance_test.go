package redlock_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/redlock"
)

// The suite takes locks for half a minute, so with the rule for restarted nodes
// its servers would have to be up for longer than that first. The tests of
// restarts hold that rule; here the nodes vote at once.
func TestConformance(t *testing.T) {
	t.Run("five nodes", func(t *testing.T) {
		for _, c := range conformance.Clauses() { // each on servers of its own, which know no scripts yet
			t.Run(c.Name, func(t *testing.T) { c.Run(t, five(t, 5*time.Second, func([]*testserver.RedisServer) {})) })
		}
	})
}

func TestConformanceWithNodesThatAreAway(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make proof: two of five nodes down, and one of five silent")
	}
	t.Run("two of five down", func(t *testing.T) {
		t.Parallel()
		runWhatHangsOnNodes(t, five(t, 5*time.Second, func(srvs []*testserver.RedisServer) {
			srvs[1].Kill()
			srvs[3].Kill()
		}))
	})
	// A waiter that gets half of the nodes hears the silent one out before it
	// gives them back, so its time must be short here, and not that of the suite's
	// slow replies: where some come too late, a second round may be won.
	t.Run("one of five silent", func(t *testing.T) {
		t.Parallel()
		h := five(t, 1800*time.Millisecond, func(srvs []*testserver.RedisServer) { srvs[2].Pause() })
		h.TTL = 3 * time.Second
		runWhatHangsOnNodes(t, h)
	})
}

// runWhatHangsOnNodes leaves out the clauses that are about names, options, the scripts'
// clocks and the driver, which are the same on three nodes as on five.
func runWhatHangsOnNodes(t *testing.T, h conformance.Harness) {
	same := []string{
		"odd-names", "bad-names", "many-names", "early", "bad-options", "longest-hold", "max-hold", "min-validity", "guarantees",
		"turns-options", "turns-validity", "turns-max-hold", "turns-renewal", "turns-given-up", "turns-loss",
		"context-over", "wait-cancelled-in-line", "many-waiters-one-client", "unlock-twice", "goroutines-held", "ticks",
	}
	t.Run("clause", func(t *testing.T) {
		for _, c := range conformance.Clauses() {
			if !slices.Contains(same, c.Name) {
				t.Run(c.Name, func(t *testing.T) { c.Run(t, h) })
			}
		}
	})
}

// five returns a harness on five nodes, after something has been done to them. They start
// when the first clause needs them: hundreds that wait for their turn keep a machine busy.
func five(t *testing.T, timeout time.Duration, do func([]*testserver.RedisServer)) conformance.Harness {
	start := sync.OnceValue(func() []*testserver.RedisServer {
		srvs := make([]*testserver.RedisServer, 5)
		for i := range srvs {
			srvs[i] = testserver.Redis(t)
		}
		do(srvs)
		return srvs
	})
	return conformance.Harness{
		New: func(t testing.TB) conformance.Process {
			srvs := start()
			nodes, ps := make([]redis.UniversalClient, len(srvs)), make(conformance.Proxies, len(srvs))
			for i, srv := range srvs {
				ps[i] = conformance.NewProxy(t, srv.Addr())
				nodes[i] = redis.NewClient(&redis.Options{Addr: ps[i].Addr(), PoolSize: poolSize})
			}
			l, err := redlock.New(nodes, redlock.Options{DurableNodes: true, NodeTimeout: timeout, MaxTTL: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = l.Close()
				for _, rdb := range nodes {
					_ = rdb.Close()
				}
			})
			return conformance.Process{Locker: l, Network: ps}
		},
	}
}

// poolSize bounds a client's connections to a node. Requests to a silent one hold
// theirs until the client's own timeout, whatever they are for.
const poolSize = 4
