package redlock

import "time"

// linger goes on for a short while after the contest was won, for the nodes that the last
// holder gave back a moment later than the others: the more nodes have the lock, the more
// of them may fail. Then our places in the queues are given up.
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
	for i := range c.a.parts {
		p := &c.a.parts[i]
		c.s.locks.Go(func() { c.s.leaveQueue(i, p) })
	}
}

// leaveQueue gives up a place in a queue that nobody needs any more.
func (s *store) leaveQueue(node int, p *part) {
	p.busy.Lock()
	holds := p.has.Load() == held
	if holds {
		s.nodes[node].stopListening(p)
	}
	ended := p.ended()
	p.busy.Unlock()
	if !holds && !ended {
		s.clear(node, p, 0)
	}
}
