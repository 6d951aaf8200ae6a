package redlock

import (
	"context"
	"time"

	"github.com/lockstile/locker/internal/chores"
)

const (
	// confirmTime is how long a caller whose attempt failed waits to hear
	// that what is left of it blocks nobody. The clean-up goes on behind its
	// back.
	confirmTime = 250 * time.Millisecond
)

// sweep ends a seat: whatever is left of it is removed. It reports whether that
// was confirmed.
func (l *Locker) sweep(i int, s *seat) bool {
	s.busy.Lock()
	defer s.busy.Unlock()
	l.end(i, s)
	if !s.left() {
		return true
	}
	node := l.peers[i].node
	ok := chores.Persist(l.closing, func(ctx context.Context) error { return node.Withdraw(ctx, &s.lease) })
	s.held.Store(!ok)
	return ok
}

// abandon removes what an attempt has left, on all nodes, and reports whether it
// is certain that no majority is blocked by it. It waits for nodes that answer,
// and for the others only if so many of them are missing that they could block.
func (l *Locker) abandon(seats []seat) bool {
	swept := make(chan bool, len(seats))
	prompt := 0
	for i := range seats {
		s := &seats[i]
		if s.busy.TryLock() { // no request is under way, so this is quick
			s.busy.Unlock()
			prompt++
		}
		l.chores.Go(func() { swept <- l.sweep(i, s) })
	}
	timer := time.NewTimer(confirmTime)
	defer timer.Stop()
	clean := 0
	for answers := 0; answers < len(seats); {
		select {
		case ok := <-swept:
			answers++
			if ok {
				clean++
			}
		case <-timer.C:
			for i := range seats {
				seats[i].giveUp()
			}
			return clean >= l.quorum
		}
		if answers >= prompt && clean >= l.quorum {
			return true
		}
	}
	return clean >= l.quorum
}

// returnTurn gives back a reservation that came for a waiter who has gone.
func (l *Locker) returnTurn(p *peer, value, key string) {
	l.chores.Go(func() {
		chores.Persist(l.closing, func(ctx context.Context) error { return p.node.ReturnTurn(ctx, value, key) })
	})
}
