package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/redlock"
)

// sameClock is how far clocks of nodes may be apart for all to draw the same
// token: further, and a node does not take the client's.
const sameClock = 100 * time.Millisecond

// Redlock looks at each of the nodes whose majority package redlock asks.
func Redlock(ctx context.Context, r *Report, nodes []redis.UniversalClient, opts redlock.Options) error {
	if opts.MaxTTL == 0 {
		opts.MaxTTL = time.Minute
	}
	all := r.at("the nodes together")
	if len(nodes)%2 == 0 {
		all.note(fmt.Sprintf("their number, %d, is even", len(nodes)),
			fmt.Sprintf("no more of them may fail than of %d, and there is one more that can", len(nodes)-1), "use an odd number of nodes")
	}
	var met []*redisNode
	var errs []error
	for _, rdb := range nodes {
		n, err := meet(ctx, r, rdb, addrOf(rdb))
		if err != nil {
			r.at(addrOf(rdb)).note("it does not answer: "+err.Error(), "a majority of the others must agree for every lock", "bring it back")
			errs = append(errs, err)
			continue
		}
		n.voter(ctx, opts)
		met = append(met, n)
	}
	if 2*len(met) <= len(nodes) {
		return errors.Join(errs...)
	}
	all.twins(met)
	all.clocks(met, opts)
	all.votes(met, len(nodes), opts)
	all.checked("%d nodes, %d of them answer", len(nodes), len(met))
	return nil
}

// voter looks at one node. What it forgets in a restart does not matter as long
// as it has no vote for a while.
func (n *redisNode) voter(ctx context.Context, opts redlock.Options) {
	n.server()
	n.foreignCluster()
	n.access(ctx, n.rdb, opts.Prefix)
	if len(n.info) == 0 {
		n.danger("the user may not call INFO, which says how long a node has been up", "without it the node has no vote", "ACL SETUSER … +info")
		return
	}
	if replicas := n.number("connected_slaves"); !n.isReplica() && replicas > 0 {
		n.danger(fmt.Sprintf("it has %d replicas", replicas),
			"a failover forgets locks and is not a restart: the replica has been up for long and votes at once", "no failover to replicas: nodes of redlock stand alone")
	}
	if opts.DurableNodes && n.info["aof_enabled"]+n.config["appendfsync"] != "1always" {
		n.danger("durable_nodes is set, and what it keeps on disk is: "+n.persistence(),
			"the node forgets locks in a crash and votes as soon as it is up: a second holder gets them", "appendonly yes and appendfsync always, or no durable_nodes")
	}
	n.checked("role %s, persistence (%s)", n.info["role"], n.persistence())
}

// twins: a server that is counted twice makes majorities that share no node.
func (a at) twins(nodes []*redisNode) {
	first := map[string]string{}
	for _, n := range nodes {
		id := n.info["run_id"]
		if other, ok := first[id]; ok && id != "" {
			a.danger(other+" and "+n.where+" are one server", "it counts as two votes: the loss of one node can then be the loss of the majority", "give each node once")
		}
		first[id] = n.where
	}
	a.checked("that no two nodes are one server")
}

// clocks: where a node has lost its data, its clock stands in for the counter of
// tokens.
func (a at) clocks(nodes []*redisNode, opts redlock.Options) {
	fast, slow := nodes[0], nodes[0]
	for _, n := range nodes {
		if n.ahead > fast.ahead {
			fast = n
		}
		if n.ahead < slow.ahead {
			slow = n
		}
	}
	apart := fast.ahead - slow.ahead - fast.error - slow.error // at least
	what := fmt.Sprintf("the clocks of %s and %s are %v apart", fast.where, slow.where, apart.Round(time.Millisecond))
	switch {
	case apart >= opts.MaxTTL/2 && !opts.DurableNodes:
		a.danger(what, fmt.Sprintf("tokens may go back when a node has lost its data: that is safe up to max_ttl, which is %v, less what clocks do until then", opts.MaxTTL),
			"keep the clocks of all nodes by NTP")
	case apart > sameClock:
		a.note(what, "nodes draw different tokens, which costs a round trip more, and waiters are not served in order of arrival",
			"keep the clocks of all nodes by NTP")
	}
	a.checked("clocks (%v apart)", max(0, apart).Round(time.Millisecond))
}

// votes counts the nodes that have been up for long enough, as the script that
// grants does.
func (a at) votes(nodes []*redisNode, of int, opts redlock.Options) {
	if opts.DurableNodes {
		return
	}
	var young []string
	for _, n := range nodes {
		if n.up-time.Second < opts.MaxTTL {
			young = append(young, n.where)
		}
	}
	means := "they may have forgotten locks and have no vote yet; the others are a majority"
	if 2*(len(nodes)-len(young)) <= of {
		means = "they may have forgotten locks and have no vote yet: until then, no lock is granted"
	}
	if len(young) > 0 {
		a.note(fmt.Sprintf("up for less than max_ttl, %v: %s", opts.MaxTTL, strings.Join(young, ", ")), means,
			"wait, or set a shorter max_ttl in all clients")
	}
	a.checked("uptime")
}
