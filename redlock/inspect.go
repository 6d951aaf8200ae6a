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

// Inspect implements [locker.Inspector]. The lock is held if a majority has it
// under one holder. The token of a lock that is free is the last holder's or greater:
// a node that was too late to count for that holder may have drawn another.
func (l *Locker) Inspect(ctx context.Context, name string) (locker.Info, error) {
	keys, err := l.keys(name)
	if err != nil {
		return locker.Info{}, err
	}
	views, err := gather(ctx, l, func(ctx context.Context, n *redisnode.Node) (view, error) {
		info, value, err := n.Look(ctx, keys)
		return view{info, value}, err
	}, l.decided)
	if err != nil {
		return locker.Info{}, fmt.Errorf("redlock: inspect %q: %w", name, err)
	}
	info := l.merge(views)
	info.Name = name
	return info, nil
}

// view is what one node says.
type view struct {
	locker.Info
	value string
}

// merge is what a majority says.
func (l *Locker) merge(views []view) locker.Info {
	var info locker.Info
	var waiters []int
	for _, v := range views {
		waiters = append(waiters, v.Waiters)
		info.Token = max(info.Token, v.Token)
	}
	slices.Sort(waiters)
	info.Waiters = waiters[len(waiters)-l.quorum] // a waiter is one whom a majority knows
	for _, v := range views {
		same := slices.DeleteFunc(slices.Clone(views), func(w view) bool { return !w.Held || w.value != v.value })
		if !v.Held || len(same) < l.quorum {
			continue
		}
		slices.SortFunc(same, func(a, b view) int { return cmp.Compare(b.TimeLeft, a.TimeLeft) })
		info.Held, info.Holder, info.Token = true, v.Holder, mostCommon(same)
		info.TimeLeft = same[l.quorum-1].TimeLeft // from then on it is no majority
		break
	}
	return info
}

// mostCommon is the holder's token: that of the majority, where a node that
// granted it too late to count may have drawn another.
func mostCommon(views []view) fencing.Token {
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

// Break implements [locker.Breaker]. It frees the lock on all nodes, and what
// an attempt without a majority may have left there.
func (l *Locker) Break(ctx context.Context, name string) (bool, error) {
	keys, err := l.keys(name)
	if err != nil {
		return false, err
	}
	broken, err := gather(ctx, l,
		func(ctx context.Context, n *redisnode.Node) (bool, error) { return n.Break(ctx, keys) },
		func([]bool) bool { return true }) // whoever holds a majority has lost it
	if err != nil {
		return false, fmt.Errorf("redlock: break %q: %w", name, err)
	}
	return slices.Contains(broken, true), nil
}

// gather asks all nodes, and returns the answers of a majority as soon as they are
// enough to know, so that a node that hangs is waited for only where it matters.
// The others are asked all the same.
func gather[T any](ctx context.Context, l *Locker, ask func(context.Context, *redisnode.Node) (T, error), enough func([]T) bool) ([]T, error) {
	type reply struct {
		node   int
		answer T
		err    error
	}
	replies := make(chan reply, len(l.peers))
	for i, p := range l.peers {
		l.chores.Go(func() {
			ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), lookTime, errSlow)
			defer cancel()
			answer, err := ask(ctx, p.node)
			replies <- reply{i, answer, err}
		})
	}
	var answers []T
	e := &QuorumError{Need: l.quorum, kind: locker.ErrUnavailable}
	for len(e.Nodes) < len(l.peers) && (len(answers) < l.quorum || !enough(answers)) {
		select {
		case r := <-replies:
			e.Nodes = append(e.Nodes, NodeOutcome{Node: l.peers[r.node].name, Granted: r.err == nil, Err: r.err})
			if r.err == nil {
				answers = append(answers, r.answer)
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", locker.ErrUnavailable, context.Cause(ctx))
		}
	}
	if len(answers) < l.quorum {
		return nil, e
	}
	return answers, nil
}

// decided reports whether the nodes that have not answered can change nothing:
// a majority has the lock under one holder and with one token, or none can have it
// under one holder.
func (l *Locker) decided(views []view) bool {
	left := len(l.peers) - len(views)
	holder, token := 0, 0
	for _, v := range views {
		same, alike := 0, 0
		for _, w := range views {
			if w.Held && w.value == v.value {
				same++
				if w.Token == v.Token {
					alike++
				}
			}
		}
		holder, token = max(holder, same), max(token, alike)
	}
	return token >= l.quorum || holder+left < l.quorum
}

func (l *Locker) keys(name string) (redisnode.Keys, error) {
	if err := locker.CheckName(name); err != nil {
		return redisnode.Keys{}, err
	}
	keys, err := redisnode.NewKeys(l.opts.Prefix + name)
	if err != nil {
		return redisnode.Keys{}, fmt.Errorf("redlock: lock %q: %w", name, err)
	}
	return keys, nil
}
