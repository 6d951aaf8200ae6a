package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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
	views, err := s.look(ctx, keys, s.decided)
	if err != nil {
		return locker.Info{}, err
	}
	return s.merge(views), nil
}

// look asks the nodes until those that have answered are enough.
func (s *store) look(ctx context.Context, keys redisnode.Keys, enough func([]redisnode.View) bool) ([]redisnode.View, error) {
	return gather(ctx, s, func(ctx context.Context, n *redisnode.Node) (redisnode.View, error) { return n.Look(ctx, keys) }, enough)
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
	for _, holds := range byHolder(views) {
		if len(holds) < s.quorum {
			continue
		}
		slices.SortFunc(holds, func(a, b redisnode.Hold) int { return cmp.Compare(b.TimeLeft, a.TimeLeft) })
		h := holds[0]
		number, alike := mostCommon(holds)
		h.Number = number
		if alike < s.quorum {
			h.Number = 0 // no majority says it
		}
		h.TimeLeft = holds[s.quorum-1].TimeLeft // from then on it is no majority
		info.Held, info.Kind, info.TimeLeft = true, h.Kind, max(info.TimeLeft, h.TimeLeft)
		if h.Kind == locker.KindExclusive {
			info.Holder, info.Kept = h.Text, h.Kept()
			if h.Number != 0 {
				info.Token = fencing.Token(h.Number)
			}
		} else {
			info.Holders = append(info.Holders, h.Holder)
		}
	}
	slices.SortFunc(info.Holders, func(a, b locker.Holder) int { return cmp.Compare(a.Number, b.Number) })
	return info
}

// byHolder returns what the nodes say of each holder, by value.
func byHolder(views []redisnode.View) map[string][]redisnode.Hold {
	holders := make(map[string][]redisnode.Hold)
	for _, v := range views {
		for _, h := range v.Holds {
			holders[h.Value] = append(holders[h.Value], h)
		}
	}
	return holders
}

// mostCommon is the number that most nodes have for a holder, and how many have it: that of
// the majority. A node that granted it too late to count may have drawn another.
func mostCommon(holds []redisnode.Hold) (most locker.Number, nodes int) {
	counts := make(map[locker.Number]int)
	for _, h := range holds {
		counts[h.Number]++
		if n := counts[h.Number]; n > nodes {
			most, nodes = h.Number, n
		}
	}
	return most, nodes
}

// Break implements [driver.Breaker].
func (s *store) Break(ctx context.Context, name string, number locker.Number) (bool, error) {
	keys, err := redisnode.NewKeys(s.opts.Prefix + name)
	if err != nil {
		return false, err
	}
	var those former
	if number != 0 {
		values, err := s.having(ctx, keys, number)
		if err != nil || len(values) == 0 {
			return false, err
		}
		those.values, those.known = values, true
	}
	broken, err := gather(ctx, s,
		func(ctx context.Context, n *redisnode.Node) (values []string, err error) {
			ok, err := n.Break(ctx, keys, func(h redisnode.Hold) bool {
				has := those.has(h)
				if has && !slices.Contains(values, h.Value) {
					values = append(values, h.Value)
				}
				return has
			})
			if !ok {
				values = nil
			}
			return values, err
		},
		s.none)
	those.end()
	return err == nil && slices.ContainsFunc(broken, func(values []string) bool { return len(values) > 0 }), err
}

// none reports whether no holder that was broken on some node can have a majority any more. A node that had
// nothing to break may be about to grant the lock to that holder, whose request to it is still under way. Where no node
// had anything, all are heard.
func (s *store) none(broken [][]string) bool {
	nodes := make(map[string]int)
	for _, values := range broken {
		for _, v := range values {
			nodes[v]++
		}
	}
	for _, n := range nodes {
		if len(s.nodes)-n >= s.quorum {
			return false
		}
	}
	return len(nodes) > 0
}

// former are the values that a Break takes the lock from: all that nodes show before it returns. A
// node that is asked later may show the next holder's, whom nobody wanted to break.
type former struct {
	mu     sync.Mutex
	values []string
	known  bool // no others count any more
}

func (f *former) has(h redisnode.Hold) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.known {
		f.values = append(f.values, h.Value)
	}
	return slices.Contains(f.values, h.Value)
}

func (f *former) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known = true
}

// having returns the values of the holders for whom a majority has the number. Single nodes may have another, or
// have it for somebody else. Where nodes that do not answer decide, it is an error.
func (s *store) having(ctx context.Context, keys redisnode.Keys, number locker.Number) (values []string, err error) {
	views, err := s.look(ctx, keys, func(views []redisnode.View) bool {
		values, _ := s.numbered(views, number)
		return len(values) > 0
	})
	values, open := s.numbered(views, number)
	if err == nil && len(values) == 0 && open {
		err = fmt.Errorf("%w: whether a holder has the number %d is up to nodes that do not answer: try again", locker.ErrUnavailable, number)
	}
	return values, err
}

// numbered returns the values for which a majority has the number, and whether the nodes that have not answered may
// add one.
func (s *store) numbered(views []redisnode.View, number locker.Number) (values []string, open bool) {
	for value, holds := range byHolder(views) {
		alike := len(slices.DeleteFunc(holds, func(h redisnode.Hold) bool { return h.Number != number }))
		if alike >= s.quorum {
			values = append(values, value)
		}
		open = open || alike > 0 && alike+len(s.nodes)-len(views) >= s.quorum
	}
	return values, open
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
			ctx, timer := endingAfter(ctx, lookTime)
			defer timer.Stop()
			answer, err := ask(ctx, n.redis)
			replies <- reply{i, answer, err}
		})
	}
	var answers []T
	noLock := 0 // nodes that have a key which a Break leaves alone
	e := &QuorumError{Need: s.quorum, kind: locker.ErrUnavailable}
	for len(e.Nodes) < len(s.nodes) && (len(answers) < s.quorum || !enough(answers)) {
		select {
		case r := <-replies:
			o := NodeOutcome{Node: s.nodes[r.node].name, Granted: r.err == nil, Err: r.err}
			if errors.Is(r.err, redisnode.ErrNoLock) {
				o.Err, o.Taken, o.NoLock = nil, true, true
				noLock++
			}
			e.Nodes = append(e.Nodes, o)
			if r.err == nil {
				answers = append(answers, r.answer)
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", locker.ErrUnavailable, context.Cause(ctx))
		}
	}
	if noLock > len(s.nodes)-s.quorum {
		e.kind = locker.ErrTaken
	}
	if len(answers) < s.quorum {
		return nil, e
	}
	return answers, nil
}

// decided reports whether the nodes that have not answered can change nothing: of each
// holder, a majority has the lock under one number, or none can have it.
func (s *store) decided(views []redisnode.View) bool {
	left := len(s.nodes) - len(views)
	for _, holds := range byHolder(views) {
		if _, alike := mostCommon(holds); alike < s.quorum && len(holds)+left >= s.quorum {
			return false
		}
	}
	return true
}
