package redlock

import "time"

// linger goes on for a short while after the contest was won. The nodes that
// the last holder gave back a moment later than the others are claimed too: the
// more nodes hold the lock, the more of them may fail. Then our places in the
// queues are given up.
func (c *contest) linger() {
	timer := time.NewTimer(c.lag())
	defer timer.Stop()
	for more := true; more && count(c.votes, waiting, asking) > 0; {
		select {
		case ans := <-c.answers:
			c.note(ans)
		case w := <-c.words:
			c.read(w)
		case <-timer.C:
			more = false
		case <-c.s.locks.Closing().Done():
			more = false
		}
	}
	for i := range c.a.seats {
		t := &c.a.seats[i]
		c.s.locks.Go(func() { c.s.leaveQueue(i, t) })
	}
}

// leaveQueue gives up a place in a queue that nobody needs any more.
func (s *store) leaveQueue(node int, t *seat) {
	t.busy.Lock()
	holds := t.has.Load() == held
	if holds {
		s.nodes[node].stopListening(t)
	}
	ended := t.ended()
	t.busy.Unlock()
	if !holds && !ended {
		s.clear(node, t)
	}
}
