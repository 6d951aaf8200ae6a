package redlock

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/redisnode"
)

// peer is one node.
type peer struct {
	name string
	node *redisnode.Node
	mail *redisnode.Mailbox
	met  atomic.Bool

	slots chan struct{} // a request under way has one
	heard atomic.Int64  // answers so far

	run string // identifies the server process it was when we met; under Locker.mu
}

// newPeer returns a peer with as many slots as its client has connections.
func (l *Locker) newPeer(name string, rdb redis.UniversalClient, quarantine time.Duration) *peer {
	p := &peer{name: name, slots: make(chan struct{}, rdb.(*redis.Client).Options().PoolSize)}
	p.mail = redisnode.NewMailbox(rdb, func(value, key string) { l.returnTurn(p, value, key) })
	p.node = redisnode.NewOfQuorum(rdb, p.mail, quarantine)
	return p
}

// enter waits for a slot. Requests that find no connection free would wait for
// one: here they do so before their time counts, for it is this process that is
// busy and not the node that is silent. It fails if the node answers nobody for
// as long as patience, or at the end of giveUp.
func (p *peer) enter(patience time.Duration, giveUp <-chan struct{}) error {
	select {
	case p.slots <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		heard := p.heard.Load()
		select {
		case p.slots <- struct{}{}:
			return nil
		case <-giveUp:
			return locker.ErrClosed
		case <-timer.C:
			if p.heard.Load() == heard {
				return errSlow
			}
			timer.Reset(patience)
		}
	}
}

// leave gives the slot back. An answer is a sign of life.
func (p *peer) leave(answered bool) {
	if answered {
		p.heard.Add(1)
	}
	<-p.slots
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
func (l *Locker) meet(ctx context.Context, p *peer) error {
	if p.met.Load() {
		return nil
	}
	run, err := p.node.Run(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, other := range l.peers {
		if other != p && other.run == run {
			err := fmt.Errorf("nodes %s and %s are one server, which has one vote", p.name, other.name)
			l.twin.Store(&err)
			return err
		}
	}
	p.run = run
	p.met.Store(true)
	return nil
}

// twins returns an error once two nodes have turned out to be one server.
func (l *Locker) twins() error {
	if err := l.twin.Load(); err != nil {
		return *err
	}
	return nil
}

// listening reports whether letters can arrive from a majority.
func (l *Locker) listening() bool {
	n := 0
	for _, p := range l.peers {
		if p.mail.Listening() {
			n++
		}
	}
	return n >= l.quorum
}
