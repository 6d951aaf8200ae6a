package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/redlock"
)

// sameClock is how far clocks of nodes may be apart for all to draw the same
// token: further, and a node does not take the client's.
const sameClock = 100 * time.Millisecond

// nodeTime bounds the look at each node.
const nodeTime = 2 * time.Second

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
	for _, v := range visitAll(ctx, nodes, opts) {
		r.Findings = append(r.Findings, v.report.Findings...)
		r.Checked = append(r.Checked, v.report.Checked...)
		if v.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", v.where, v.err))
			continue
		}
		met = append(met, v.node)
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

// visit is what has come of a look at one node.
type visit struct {
	where  string
	report Report
	node   *redisNode // nil with err
	err    error
}

// visitAll looks at all nodes at the same time: some may not answer.
func visitAll(ctx context.Context, nodes []redis.UniversalClient, opts redlock.Options) []*visit {
	ctx, cancel := context.WithTimeoutCause(ctx, nodeTime, fmt.Errorf("no answer within %v", nodeTime))
	defer cancel()
	visits := make([]*visit, len(nodes))
	var all sync.WaitGroup
	for i, rdb := range nodes {
		v := &visit{where: addrOf(rdb)}
		visits[i] = v
		all.Go(func() { v.look(ctx, rdb, opts) })
	}
	all.Wait()
	return visits
}

func (v *visit) look(ctx context.Context, rdb redis.UniversalClient, opts redlock.Options) {
	n, err := meet(ctx, &v.report, rdb, v.where)
	if err == nil {
		n.voter(ctx, opts)
		v.node = n
		return
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	v.err = err
	if refused(err) {
		v.report.at(v.where).danger("it refuses this client: "+err.Error(), "locks cannot be opened: a node that refuses never comes back by itself",
			"the same user and password on all nodes")
		return
	}
	v.report.at(v.where).note("it does not answer: "+err.Error(), "a majority of the others must agree for every lock", "bring it back")
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
	n.lastVoter(ctx, opts)
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

// votes counts the nodes that may vote, as the script that grants does.
func (a at) votes(nodes []*redisNode, of int, opts redlock.Options) {
	if opts.DurableNodes {
		return
	}
	const mend = "wait, or set a shorter max_ttl in all clients; what keeps grants on disk needs no wait (durable_nodes)"
	var young []string
	var waits []time.Duration
	for _, n := range nodes {
		wait := n.youth(opts.MaxTTL)
		waits = append(waits, wait)
		if wait > 0 {
			young = append(young, n.where)
		}
	}
	slices.Sort(waits)
	what := fmt.Sprintf("up for less than max_ttl, %v: %s", opts.MaxTTL, strings.Join(young, ", "))
	switch until := waits[of/2]; {
	case until > 0:
		a.danger(what, fmt.Sprintf("they may have forgotten locks and have no vote yet: no lock is granted for another %v", until), mend)
	case len(young) > 0:
		a.note(what, fmt.Sprintf("they may have forgotten locks and have no vote for up to another %v; the others are a majority", waits[len(waits)-1]), mend)
	}
	a.checked("uptime")
}

// youth is how long a node has no vote yet. The last of its whole seconds may not
// be over, and one that was old enough once keeps its vote.
func (n *redisNode) youth(quarantine time.Duration) time.Duration {
	if n.voted == quarantine && n.votedRun == n.info["run_id"] {
		return 0
	}
	return max(0, quarantine+time.Second-n.up)
}

// lastVoter: a node remembers for which max_ttl it was found old enough
// last, and by which server process.
func (n *redisNode) lastVoter(ctx context.Context, opts redlock.Options) {
	text, err := n.rdb.Get(ctx, "lockstile:voter").Result()
	if err != nil {
		return // nobody has asked yet, or not with these rights, of which access tells
	}
	run, millis, _ := strings.Cut(text, " ")
	ms, err := strconv.ParseInt(millis, 10, 64)
	if err != nil {
		return
	}
	n.votedRun, n.voted = run, time.Duration(ms)*time.Millisecond
	if n.voted == opts.MaxTTL && !opts.DurableNodes || run != n.info["run_id"] {
		return // what an earlier process has seen may be long over
	}
	if opts.DurableNodes {
		n.note(fmt.Sprintf("durable_nodes is set here, and a client without it, of max_ttl %v, has had locks", n.voted),
			"that client gets no votes of a node that was restarted; it is this one that leans on its disk", "the same options in all clients")
		return
	}
	n.danger(fmt.Sprintf("max_ttl is %v, and a client has had locks whose max_ttl is %v", opts.MaxTTL, n.voted),
		fmt.Sprintf("once restarted, a node votes for one client after %v, though it may have forgotten a lock of the other that lasts up to %v: a second holder gets it",
			min(opts.MaxTTL, n.voted), max(opts.MaxTTL, n.voted)),
		"the same max_ttl in all clients; where it was changed, the next lock that is granted ends this finding")
}
