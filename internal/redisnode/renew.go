package redisnode

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
)

// Renew starts another TTL for each attempt, many in one round trip. The masters of a
// Cluster are asked at the same time, each in a batch of its own: a batch is answered
// as a whole, so one silent master would lose the locks on all others.
func (n *Node) Renew(ctx context.Context, attempts []*Attempt) []error {
	cluster, ok := n.rdb.(*redis.ClusterClient)
	if !ok {
		return n.renewAll(ctx, attempts)
	}
	byMaster := make(map[*redis.Client][]int)
	for i, a := range attempts {
		m, _ := cluster.MasterForKey(ctx, a.Keys.Lock) // nil: those that have none known will hear of it from the renewal
		byMaster[m] = append(byMaster[m], i)
	}
	errs := make([]error, len(attempts))
	var wg sync.WaitGroup
	for _, mine := range byMaster {
		wg.Go(func() {
			part := make([]*Attempt, len(mine))
			for i, at := range mine {
				part[i] = attempts[at]
			}
			for i, err := range n.renewAll(ctx, part) {
				errs[mine[i]] = err
			}
		})
	}
	wg.Wait()
	return errs
}

func (n *Node) renewAll(ctx context.Context, attempts []*Attempt) (errs []error) {
	const most = 500 // keeps one batch from holding up the server
	for some := range slices.Chunk(attempts, most) {
		errs = append(errs, n.renewSome(ctx, some)...)
	}
	return errs
}

func (n *Node) renewSome(ctx context.Context, attempts []*Attempt) []error {
	errs := make([]error, len(attempts))
	_, isCluster := n.rdb.(*redis.ClusterClient)
	if len(attempts) == 1 || isCluster && n.replicas > 0 { // WAIT has no key: it needs the lock's own server
		for i, a := range attempts {
			errs[i] = n.renewOne(ctx, a)
		}
		return errs
	}
	cmds, all := bounded(ctx, func(ctx context.Context) ([]once, error) {
		cmds := make([]once, len(attempts))
		for i, a := range attempts {
			cmds[i] = n.renewal(a).command(ctx)
		}
		return cmds, n.pipeline(ctx, n.rdb, cmds...)
	})
	for i, a := range attempts {
		code, err := int64(0), all
		if err == nil {
			code, err = cmds[i].Int64()
		}
		if err != nil {
			a.kept.Store(0)
		}
		switch {
		case noScript(err): // the first of them loads it for the next round
			errs[i] = n.renewOne(ctx, a)
		case err != nil:
			errs[i] = classify(err)
		case code < 0:
			errs[i] = gone(code)
		}
	}
	return errs
}

func (n *Node) renewOne(ctx context.Context, a *Attempt) error {
	reply, _, err := n.send(ctx, n.renewal(a))
	if err != nil {
		a.kept.Store(0)
		return err
	}
	if code, _ := reply.(int64); code < 0 {
		return gone(code)
	}
	return nil
}

// KeepTime is the default of [Node].Keep.
const KeepTime = time.Hour

// KeepFor returns the [Node].Keep that a user's option stands for; 0 is the default.
func KeepFor(option time.Duration) (time.Duration, error) {
	if option == 0 {
		return KeepTime, nil
	}
	if option < time.Minute || option > 10*365*24*time.Hour {
		return 0, fmt.Errorf("counters must be kept for a minute to ten years, not %v (Options.KeepCounter)", option)
	}
	return option, nil
}

// keepMillis is how long scripts keep a counter after the end of its lease: for Keep,
// and for the time until the next renewal that extends it.
func (n *Node) keepMillis() int64 { return (n.Keep + n.Keep/3).Milliseconds() }

// renewal is the request for another TTL. Three times in the time that counters are
// kept it extends the lock's counter as well; if such a renewal fails, the next does.
func (n *Node) renewal(a *Attempt) request {
	keep, now := int64(0), locker.Now()
	if now.Sub(locker.Instant(a.kept.Load())) > n.Keep/3 {
		keep = n.keepMillis()
		a.kept.Store(int64(now))
	}
	return a.request(renew, &a.Value, a.TTL.Milliseconds(), keep)
}
