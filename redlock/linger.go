package redlock

import (
	"context"
	"time"

	"github.com/lockstile/locker/internal/chores"
)

// linger goes on for a short while after the contest was won. The nodes that
// the last holder gave back a moment later than the others are claimed too: the
// more nodes hold the lock, the more of them may fail. Then our places in the
// queues are given up.
func (c *contest) linger() {
	timer := time.NewTimer(min(c.a.seats[0].timeout, straggling))
	defer timer.Stop()
	for more := true; more && c.count(waiting, asking) > 0; {
		select {
		case ans := <-c.answers:
			c.note(ans)
		case let := <-c.letters:
			c.read(let)
		case <-timer.C:
			more = false
		case <-c.l.closing.Done():
			more = false
		}
	}
	for i := range c.a.seats {
		s := &c.a.seats[i]
		c.l.chores.Go(func() { c.l.leaveQueue(i, s) })
	}
}

// leaveQueue gives up a place in a queue that nobody needs any more.
func (l *Locker) leaveQueue(i int, s *seat) {
	s.busy.Lock()
	defer s.busy.Unlock()
	if s.over {
		return
	}
	if s.held.Load() {
		l.stopListening(i, s)
		return
	}
	l.end(i, s)
	if s.left() {
		node := l.peers[i].node
		chores.Persist(l.closing, func(ctx context.Context) error { return node.Withdraw(ctx, &s.lease) })
	}
}
