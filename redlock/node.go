package redlock

import (
	"context"
	"errors"
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
	conns   chan struct{} // a request under way has one: as many as the client has connections
	known   atomic.Bool   // run is
	run     string        // which server process it is; under store.mu
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
		conns:   make(chan struct{}, rdb.(*redis.Client).Options().PoolSize),
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

// straggling is how much later than one node another may send word of the same release.
const straggling = 50 * time.Millisecond

// lag is how much longer than for the others the node is waited for.
func (n *node) lag(ttl time.Duration) time.Duration { return min(n.timeoutOf(ttl), straggling) }

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

// do sends one request for a part. It waits for a connection for as long as the answer
// may be of use: the time that the node has begins then, for before that it is this
// process that is busy.
func (n *node) do(p *part, won *instant, f func(context.Context) error) error {
	if err := n.awaitConnFor(p, won); err != nil {
		return err
	}
	return n.send(p, n.timeoutOf(p.TTL), f)
}

var (
	errOver = errors.New("the attempt is over")
	// errBusy is why a request was not sent.
	errBusy = errors.New("all connections of the client are busy")
	// errSlow is why a request to a node is given up.
	errSlow = errors.New("no answer in time")
)

// awaitConn waits for a connection, for most at most: while a node hangs, none may come
// free.
func (n *node) awaitConn(most time.Duration) error {
	select {
	case n.conns <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case n.conns <- struct{}{}:
		return nil
	case <-timer.C:
		return errBusy
	}
}

// awaitConnFor is awaitConn for a request that is of use only while its attempt lasts. If
// the others have decided it for a while, a node that is so busy counts as slow.
func (n *node) awaitConnFor(p *part, won *instant) error {
	err := n.awaitConn(p.TTL)
	switch {
	case err != nil:
		return err
	case p.ended():
		err = errOver
	case won.ago(n.lag(p.TTL)):
		err = errBusy
	default:
		return nil
	}
	<-n.conns
	return err
}

// send calls f on the connection that awaitConn has waited for.
func (n *node) send(p *part, timeout time.Duration, f func(context.Context) error) error {
	defer func() { <-n.conns }()
	p.busy.Lock()
	defer p.busy.Unlock()
	ctx, timer := endingAfter(context.Background(), timeout)
	defer timer.Stop()
	return f(ctx)
}

// endingAfter returns a context that ends after d because a node is slow, and has the values of ctx alone.
// Stop its timer when it is not needed any more.
func endingAfter(ctx context.Context, d time.Duration) (context.Context, *time.Timer) {
	c := &ending{Context: context.WithoutCancel(ctx), deadline: time.Now().Add(d + connTime), done: make(chan struct{})}
	return c, time.AfterFunc(d, func() {
		c.over.Store(true)
		close(c.done)
	})
}

// ending is a context that ends before its deadline. A client that heeds deadlines
// (ContextTimeoutEnabled) ends the connection at that. A connection takes several round trips to make. Where
// these take longer than a node has for an answer, and a request that is given up cost its connection, no
// request would be answered.
type ending struct {
	context.Context
	deadline time.Time
	done     chan struct{}
	over     atomic.Bool
}

func (c *ending) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *ending) Done() <-chan struct{}       { return c.done }

func (c *ending) Err() error {
	if c.over.Load() {
		return errSlow
	}
	return nil
}

// connTime is how much longer than a request its connection is kept, in which nothing may ever arrive
// again: go-redis gives a new connection as much by default.
const connTime = 5 * time.Second

// identify asks a node, once, which server process it is: two nodes may be one server
// under two addresses.
func (s *store) identify(ctx context.Context, n *node) error {
	if n.known.Load() {
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
			s.sameServer.Store(&err)
			return err
		}
	}
	n.run = run
	n.known.Store(true)
	return nil
}

// listening reports whether words can arrive from a majority.
func (s *store) listening() bool {
	listen := 0
	for _, n := range s.nodes {
		if n.redis.Mail().Channel() != "" {
			listen++
		}
	}
	return listen >= s.quorum
}
