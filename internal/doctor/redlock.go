package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/internal/dial"
	"github.com/lockstile/locker/redlock"
)

// nodeTime bounds the look at each node.
const nodeTime = 2 * time.Second

// voter is one of the nodes, with what decides over its vote.
type voter struct {
	*redisNode
	clock clockReading
	age   time.Duration // at least
	voted time.Duration // the max_ttl for which it remembers that it may vote; 0: none
}

// redlock looks at each of the nodes whose majority package redlock asks.
func (r *Report) redlock(ctx context.Context, b *dial.Redlock) error {
	opts := b.Options
	if opts.MaxTTL == 0 {
		opts.MaxTTL = time.Minute
	}
	all := r.at("the nodes together")
	all.quorum(len(b.Nodes), len(b.Nodes))
	ctx, cancel := context.WithTimeoutCause(ctx, nodeTime, fmt.Errorf("no answer within %v", nodeTime))
	defer cancel()
	reports, voters, errs := make([]Report, len(b.Nodes)), make([]*voter, len(b.Nodes)), make([]error, len(b.Nodes))
	var looks sync.WaitGroup
	for i, rdb := range b.Nodes { // side by side: some may not answer
		looks.Go(func() { voters[i], errs[i] = reports[i].voter(ctx, rdb, opts) })
	}
	looks.Wait()
	for _, one := range reports {
		r.Findings = append(r.Findings, one.Findings...)
		r.Checked = append(r.Checked, one.Checked...)
	}
	voters = slices.DeleteFunc(voters, func(v *voter) bool { return v == nil })
	if 2*len(voters) <= len(b.Nodes) {
		return errors.Join(errs...)
	}
	all.clocks(voters, opts)
	all.votes(voters, len(b.Nodes), opts)
	all.checked("answers (%d of %d nodes)", len(voters), len(b.Nodes))
	return nil
}

// voter looks at one node. What it forgets in a restart does not matter as long
// as it has no vote for a while.
func (r *Report) voter(ctx context.Context, rdb redis.UniversalClient, opts redlock.Options) (*voter, error) {
	clock, err := readClock(ctx, rdb)
	var n *redisNode
	if err == nil || refused(err) {
		n, err = r.node(ctx, rdb)
	}
	if err != nil {
		if deadline, _ := ctx.Deadline(); !time.Now().Before(deadline) {
			<-ctx.Done() // the connection has the same deadline, and may be first
		}
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		r.at(addrOf(rdb)).found("redlock-silent", err)
		return nil, fmt.Errorf("%s: %w", addrOf(rdb), err)
	}
	v := &voter{redisNode: n, clock: clock}
	n.alone()
	n.access(ctx, opts.Prefix)
	if n.info == nil {
		n.found("redlock-info")
		return v, nil
	}
	v.age = time.Duration(n.number("uptime_in_seconds")-1) * time.Second // the last of whole seconds may not be over
	v.remembers(ctx, opts)
	if replicas := n.number("connected_slaves"); !n.replica() && replicas > 0 {
		n.found("redlock-failover", replicas)
	}
	if opts.DurableNodes && !n.durable() {
		n.found("redlock-durable", n.info["aof_enabled"], n.appendfsync)
	}
	n.checked("replicas, persistence")
	return v, nil
}

// remembers reads for which max_ttl the node was found old enough last, in a key of the
// locks' own. What an earlier process of the server has seen may be long over.
func (v *voter) remembers(ctx context.Context, opts redlock.Options) {
	var run string
	var millis int64
	text, err := v.rdb.Get(ctx, "lockstile:voter").Result() // nobody may have asked yet
	if err == nil {
		_, err = fmt.Sscanf(text, "%s %d", &run, &millis)
	}
	if err != nil || run != v.info["run_id"] {
		return
	}
	v.voted = time.Duration(millis) * time.Millisecond
	if v.voted != opts.MaxTTL && !opts.DurableNodes {
		v.found("redlock-max-ttl", opts.MaxTTL, v.voted)
	}
}

// clocks: where a node has lost its data, its clock stands in for the counter of
// tokens.
func (a at) clocks(voters []*voter, opts redlock.Options) {
	ahead := func(x, y *voter) int { return cmp.Compare(x.clock.ahead, y.clock.ahead) }
	fast, slow := slices.MaxFunc(voters, ahead), slices.MinFunc(voters, ahead)
	apart := fast.clock.apart(slow.clock)
	if apart >= opts.MaxTTL/2 && !opts.DurableNodes {
		a.found("redlock-clocks", fast.where, slow.where, apart.Round(time.Millisecond))
	}
	a.checked("clocks (%v apart)", apart.Round(time.Millisecond))
}

// votes counts the nodes that may vote, as the script that grants does: one that was
// old enough once keeps its vote.
func (a at) votes(voters []*voter, of int, opts redlock.Options) {
	if opts.DurableNodes {
		return
	}
	var young []string
	var waits []time.Duration
	for _, v := range voters {
		wait := max(0, opts.MaxTTL-v.age)
		if v.voted == opts.MaxTTL {
			wait = 0
		}
		waits = append(waits, wait)
		if wait > 0 {
			young = append(young, v.where)
		}
	}
	slices.Sort(waits)
	if wait := waits[of/2]; wait > 0 {
		a.found("redlock-young", opts.MaxTTL, strings.Join(young, ", "), wait)
	}
	a.checked("uptime")
}
