package redlock

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/redisnode"
)

// node is one of the masters.
type node struct {
	name    string
	redis   *redisnode.Node
	timeout time.Duration // Options.NodeTimeout
	slots   chan struct{} // a request under way has one: as many as the client has connections
	met     atomic.Bool
	run     string // identifies the server process it was when we met; under store.mu
}

func newNode(name string, rdb redis.UniversalClient, opts Options) *node {
	quarantine := opts.MaxTTL
	if opts.DurableNodes {
		quarantine = 0
	}
	n := &node{
		name:    name,
		redis:   redisnode.NewOfQuorum(rdb, quarantine),
		timeout: opts.NodeTimeout,
		slots:   make(chan struct{}, rdb.(*redis.Client).Options().PoolSize),
	}
	n.redis.Keep = opts.KeepCounter
	return n
}

// timeoutOf is how long the node may take for an answer about a lock with this TTL.
func (n *node) timeoutOf(ttl time.Duration) time.Duration {
	if n.timeout > 0 {
		return n.timeout
	}
	return min(max(ttl/50, 10*time.Millisecond), 100*time.Millisecond)
}

// nameNodes names nodes by their addresses and refuses what cannot be one.
func nameNodes(nodes []redis.UniversalClient) ([]string, error) {
	names := make([]string, len(nodes))
	known := make(map[string]int)
	for i, rdb := range nodes {
		client, ok := rdb.(*redis.Client)
		switch {
		case rdb == nil || ok && client == nil:
			return nil, fmt.Errorf("redlock: the client of node %d is nil", i+1)
		case !ok:
			return nil, fmt.Errorf("redlock: node %d is a %T: a node is one master, with a client of its own", i+1, rdb)
		}
		names[i] = client.Options().Addr
		if names[i] == sentinel {
			return nil, fmt.Errorf("redlock: node %d is behind Sentinel: a failover forgets locks, and the new master would vote at once; give the masters themselves", i+1)
		}
		if other, ok := known[names[i]]; ok {
			return nil, fmt.Errorf("redlock: nodes %d and %d are both %s: a server has one vote", other+1, i+1, names[i])
		}
		known[names[i]] = i
	}
	return names, nil
}

// sentinel is what go-redis gives for the address of a client that follows
// failovers.
const sentinel = "FailoverClient"

// meet makes sure, once for each node, that no two of them are one server that
// goes by two addresses.
func (s *store) meet(ctx context.Context, n *node) error {
	if n.met.Load() {
		return nil
	}
	run, err := n.redis.Run(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.nodes {
		if other != n && other.run == run {
			err := driver.Refused(fmt.Errorf("nodes %s and %s are one server, which has one vote", n.name, other.name))
			s.twin.Store(&err)
			return err
		}
	}
	n.run = run
	n.met.Store(true)
	return nil
}

// twins returns an error once two nodes have turned out to be one server.
func (s *store) twins() error {
	if err := s.twin.Load(); err != nil {
		return *err
	}
	return nil
}

// listening reports whether words can arrive from a majority.
func (s *store) listening() bool {
	n := 0
	for _, p := range s.nodes {
		if p.redis.Mail().Channel() != "" {
			n++
		}
	}
	return n >= s.quorum
}
