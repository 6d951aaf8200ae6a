package redlock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/redisnode"
)

// lookTime bounds what a node may take for Inspect and Break.
const lookTime = time.Second

// Inspect implements [locker.Inspector].
func (s *store) Inspect(ctx context.Context, name string) (locker.Info, error) {
	keys, err := redisnode.NewKeys(s.opts.Prefix + name)
	if err != nil {
		return locker.Info{}, err
	}
	views, err := gather(ctx, s, func(ctx context.Context, n *redisnode.Node) (redisnode.View, error) { return n.Look(ctx, keys) }, s.decided)
	if err != nil {
		return locker.Info{}, err
	}
	return s.merge(views), nil
}

// merge is what a majority says.
func (s *store) merge(views []redisnode.View) locker.Info {
	var info locker.Info
	var waiters []int
	for _, v := range views {
		waiters = append(waiters, v.Waiters)
		info.Token = max(info.Token, v.Token)
	}
	slices.Sort(waiters)
	info.Waiters = waiters[len(waiters)-s.quorum] // a waiter is one whom a majority knows
	for _, v := range views {
		same := slices.DeleteFunc(slices.Clone(views), func(w redisnode.View) bool { return !w.Held || w.Value != v.Value })
		if !v.Held || len(same) < s.quorum {
			continue
		}
		slices.SortFunc(same, func(a, b redisnode.View) int { return cmp.Compare(b.TimeLeft, a.TimeLeft) })
		info.Held, info.Holder, info.Token = true, v.Holder, mostCommon(same)
		info.TimeLeft = same[s.quorum-1].TimeLeft // from then on it is no majority
		break
	}
	return info
}

// mostCommon is the holder's token: that of the majority. A node that granted it too late
// to count may have drawn another.
func mostCommon(views []redisnode.View) fencing.Token {
	counts := make(map[fencing.Token]int)
	var most fencing.Token
	for _, v := range views {
		counts[v.Token]++
		if counts[v.Token] > counts[most] {
			most = v.Token
		}
	}
	return most
}

// Break implements [locker.Breaker].
func (s *store) Break(ctx context.Context, name string, tokens ...uint64) (bool, error) {
	keys, err := redisnode.NewKeys(s.opts.Prefix + name)
	if err != nil {
		return false, err
	}
	broken, err := gather(ctx, s,
		func(ctx context.Context, n *redisnode.Node) (bool, error) { return n.Break(ctx, keys, redisnode.Anybody) },
		func([]bool) bool { return true }) // no holder has a majority left
	return err == nil && slices.Contains(broken, true), err
}

// gather asks all nodes, and returns the answers of a majority as soon as they are
// enough to know, so that a node that hangs is waited for only where it matters.
// The others are asked all the same.
func gather[T any](ctx context.Context, s *store, ask func(context.Context, *redisnode.Node) (T, error), enough func([]T) bool) ([]T, error) {
	type reply struct {
		node   int
		answer T
		err    error
	}
	replies := make(chan reply, len(s.nodes))
	for i, n := range s.nodes {
		s.locks.Go(func() {
			ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), lookTime, errSlow)
			defer cancel()
			answer, err := ask(ctx, n.redis)
			replies <- reply{i, answer, err}
		})
	}
	var answers []T
	e := &QuorumError{Need: s.quorum, kind: locker.ErrUnavailable}
	for len(e.Nodes) < len(s.nodes) && (len(answers) < s.quorum || !enough(answers)) {
		select {
		case r := <-replies:
			e.Nodes = append(e.Nodes, NodeOutcome{Node: s.nodes[r.node].name, Granted: r.err == nil, Err: r.err})
			if r.err == nil {
				answers = append(answers, r.answer)
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", locker.ErrUnavailable, context.Cause(ctx))
		}
	}
	if len(answers) < s.quorum {
		return nil, e
	}
	return answers, nil
}

// decided reports whether the nodes that have not answered can change nothing:
// a majority has the lock under one holder and with one token, or none can have it
// under one holder.
func (s *store) decided(views []redisnode.View) bool {
	left := len(s.nodes) - len(views)
	holder, token := 0, 0
	for _, v := range views {
		same, alike := 0, 0
		for _, w := range views {
			if w.Held && w.Value == v.Value {
				same++
				if w.Token == v.Token {
					alike++
				}
			}
		}
		holder, token = max(holder, same), max(token, alike)
	}
	return token >= s.quorum || holder+left < s.quorum
}
