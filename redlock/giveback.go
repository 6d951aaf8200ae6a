package redlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockstile/locker/internal/mailbox"
	"github.com/lockstile/locker/internal/redisnode"
)

// firstPause is about how long a waiter keeps out of the way after a split vote. It
// doubles every time, until the end of a lease comes first; and word from the nodes ends
// it.
const firstPause = 10 * time.Millisecond

// rest gives back what a round has won, which was no majority, keeps the places in the
// queues, and sets the timer for the next round. While a majority has no vote yet, that is
// when it has one: nobody else can win before.
func (c *contest) rest(ctx context.Context) {
	c.resting = true
	tooYoung := count(c.votes, young) > len(c.votes)-c.s.quorum
	if tooYoung {
		c.s.locks.NotYet(c.a.req().Name, c.a, c.failure())
	}
	split := count(c.votes, granted) > 0 && !tooYoung
	c.giveBack(ctx)
	pause := time.Until(c.majorityLook())
	if split {
		longest := firstPause << min(c.splits, 20)
		pause = min(max(pause, firstPause), longest/2+rand.N(longest/2)) //nolint:gosec // no secret
		c.splits++
	}
	if c.standBy {
		pause = min(pause, mailbox.ClaimTime+leeway)
	}
	c.timer.Reset(max(pause, leeway))
}

// majorityLook is when a majority of nodes is worth asking without a word of theirs.
func (c *contest) majorityLook() time.Time {
	now := time.Now()
	looks := make([]time.Time, len(c.votes))
	for i, v := range c.votes {
		switch v.state {
		case waiting, young:
			looks[i] = v.look
		case failed:
			looks[i] = now.Add(time.Second)
		default:
			looks[i] = now
		}
	}
	slices.SortFunc(looks, time.Time.Compare)
	return looks[c.s.quorum-1]
}

// giveBack gives back what was granted. Where a node may refuse our value from
// then on, the contest goes on with another.
func (c *contest) giveBack(ctx context.Context) {
	results := make(chan bool, len(c.votes))
	given := 0
	for i := range c.a.parts {
		p := &c.a.parts[i]
		if p.has.Load() != held || c.votes[i].state == asking { // its answer is still to be counted
			continue
		}
		given++
		c.votes[i].state = idle
		c.s.locks.Go(func() { results <- c.s.nodes[i].giveBack(p) })
	}
	usable := !c.refused()
	for range given {
		select {
		case ok := <-results:
			usable = ok && usable
		case <-ctx.Done():
			return // what is not given back is cleared away with the rest
		case <-c.s.locks.Closing().Done():
			return
		}
	}
	if !usable {
		c.changeValue()
	}
}

// refused reports whether a node does not take the attempt's value any more: it had
// granted the lock, the answer was lost, and somebody has broken the lock since.
func (c *contest) refused() bool {
	return slices.ContainsFunc(c.votes, func(v vote) bool { return errors.Is(v.err, redisnode.ErrWithdrawn) })
}

// changeValue goes on with a new value and the old places in the queues. Answers to
// requests that are still under way are for the old value: they go unread.
func (c *contest) changeValue() {
	fresh := c.s.newParts(c.a.parts[0].WithNewValue())
	for i := range c.a.parts {
		p := &c.a.parts[i]
		p.end()
		c.s.nodes[i].stopListening(p)
		c.votes[i] = vote{ticket: c.votes[i].ticket}
		c.s.locks.Go(func() { c.s.clear(i, p, 0) })
	}
	gone := func(parts []part) bool { return !anyLeft(parts) }
	c.a.former = append(slices.DeleteFunc(c.a.former, gone), c.a.parts)
	c.a.parts = fresh
	c.answers = make(chan answer, 2*len(fresh))
}
