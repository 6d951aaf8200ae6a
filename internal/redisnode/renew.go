package redisnode

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// Renew starts another TTL for each attempt, many in one round trip. The masters of a
// Cluster are asked at the same time, each in a batch of its own: a batch is answered
// as a whole, so one silent master would lose the locks on all others.
func (n *Node) Renew(ctx context.Context, attempts []*Attempt) []error {
	if n.cluster == nil {
		return n.renewAll(ctx, attempts)
	}
	byMaster := make(map[*redis.Client][]int)
	for i, a := range attempts {
		m, _ := n.cluster.MasterForKey(ctx, a.Keys.Lock) // nil: those that have none known will hear of it from the renewal
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
			var answers []error
			if err := driver.Caught(func() error { answers = n.renewAll(ctx, part); return nil }); err != nil {
				answers = slices.Repeat([]error{err}, len(mine))
			}
			for i, err := range answers {
				errs[mine[i]] = err
			}
		})
	}
	wg.Wait()
	return errs
}

// target returns the client for a batch of renewals that begins with a: the Cluster's,
// which follows redirects, or where WAIT ends the batch the master's own.
func (n *Node) target(ctx context.Context, a *Attempt) redis.Cmdable {
	if n.cluster != nil && n.replicas > 0 {
		if master, err := n.cluster.MasterForKey(ctx, a.Keys.Lock); err == nil {
			return master
		}
	}
	return n.rdb
}

func (n *Node) renewAll(ctx context.Context, attempts []*Attempt) (errs []error) {
	const most = 500 // keeps one batch from holding up the server
	for some := range slices.Chunk(attempts, most) {
		target := n.target(ctx, some[0]) // the batch before may have found another master
		errs = append(errs, n.renewSome(ctx, target, some)...)
	}
	return errs
}

// renewSome renews attempts in one round trip. Another follows where locks are lost, or
// counters must be kept.
func (n *Node) renewSome(ctx context.Context, rdb redis.Cmdable, attempts []*Attempt) []error {
	answers := n.sendAll(ctx, rdb, n.replicas, requests(attempts, (*Attempt).renewal))
	errs := make([]error, len(attempts))
	var notOurs, keeping []*Attempt
	for i, a := range attempts {
		switch errs[i] = answers[i].err; {
		case errs[i] != nil:
		case answers[i].reply != int64(1):
			errs[i] = gone(-1)
			notOurs = append(notOurs, a)
		case n.toBeKept(a):
			keeping = append(keeping, a)
		}
	}
	if len(notOurs)+len(keeping) > 0 {
		ctx, cancel := context.WithTimeout(ctx, afterTime)
		defer cancel()
		n.explain(ctx, notOurs, attempts, errs)
		n.keepCounters(ctx, keeping)
	}
	return errs
}

// afterTime bounds what follows a renewal. Its answers are known by then, and wait.
const afterTime = time.Second

// renewal names the keys that it needs and no others. An exclusive lock's is one key.
func (a *Attempt) renewal() request {
	if a.Kind == locker.KindExclusive {
		return requestOf(renew, a.Keys.all[:lastKey], &a.Value, a.TTL.Milliseconds())
	}
	return requestOf(renewEntry, []any{a.Keys.Lock, a.Keys.all[endsKey], a.Keys.all[factsKey]}, &a.Value, a.TTL.Milliseconds())
}

// explain finds out why locks were lost, and passes on those that are gone. Lost they are,
// whatever comes of this.
func (n *Node) explain(ctx context.Context, lost, of []*Attempt, errs []error) {
	asked := requests(lost, func(a *Attempt) request { return a.request(whyLost, claim, n.counts) })
	answers := n.sendAll(ctx, n.rdb, 0, asked)
	for i, a := range lost {
		code, more := part(answers[i].reply)
		if more {
			_, _, _ = n.sendOn(ctx, asked[i])
		}
		if code, ok := code.(int64); ok {
			errs[slices.Index(of, a)] = gone(code)
		}
	}
}

// answer is one of a batch.
type answer struct {
	reply any
	err   error
}

// requests returns one for each of all.
func requests[T any](all []T, of func(T) request) []request {
	reqs := make([]request, len(all))
	for i, one := range all {
		reqs[i] = of(one)
	}
	return reqs
}

// sendAll sends requests for one script in one round trip over rdb, and has as many replicas confirm
// them. What has to go elsewhere, or is a script that the server does not know, is sent again alone.
func (n *Node) sendAll(ctx context.Context, rdb redis.Cmdable, replicas int, reqs []request) []answer {
	answers := make([]answer, len(reqs))
	if len(reqs) < 2 {
		for i, req := range reqs {
			answers[i].reply, _, answers[i].err = n.send(ctx, req)
		}
		return answers
	}
	cmds, confirmed := call(ctx, n.endsItself(ctx, reqs[0].script), func() ([]once, error) {
		cmds := make([]once, len(reqs))
		for i, req := range reqs {
			cmds[i] = req.command(ctx)
		}
		return cmds, n.pipeline(ctx, rdb, replicas, cmds...)
	})
	for i, req := range reqs {
		a := &answers[i]
		a.err = confirmed
		if cmds != nil {
			if r, err := cmds[i].Result(); confirmed == nil || err != nil || r == int64(0) { // what was not done needs no confirmation
				a.reply, a.err = r, err
			}
		}
		if noScript(a.err) || elsewhere(a.err) { // the first of them loads it for the next round
			a.reply, _, a.err = n.send(ctx, req)
		} else {
			a.err = n.learn(a.err)
		}
	}
	return answers
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

// toBeKept reports whether it is time to extend a lock's counter with its lease: three
// times in the time that counters are kept, or at once if this process has not done so yet.
func (n *Node) toBeKept(a *Attempt) bool {
	kept := driver.Instant(a.kept.Load())
	return kept == 0 || driver.Now().Sub(kept) > n.Keep/3
}

// keepCounters extends counters. If that fails, the next renewal does it.
func (n *Node) keepCounters(ctx context.Context, attempts []*Attempt) {
	now := driver.Now()
	answers := n.sendAll(ctx, n.rdb, 0, requests(attempts, n.keeping))
	for i, a := range attempts {
		if answers[i].err == nil {
			a.kept.Store(int64(now))
		}
	}
}

func (n *Node) keeping(a *Attempt) request {
	return requestOf(keepCounter, a.Keys.all[lastKey:queueKey], a.TTL.Milliseconds(), n.keepMillis())
}
