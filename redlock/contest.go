package redlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/mailbox"
	"github.com/lockstile/locker/internal/redisnode"
)

// contest is an attempt on its way to a majority. One goroutine runs it; the
// requests to the nodes run in others and answer into a channel with room for
// all of them, so that a node that hangs holds up nobody.
type contest struct {
	s     *store
	a     *attempt
	queue bool        // and wait, or one look
	told  driver.Wait // nil for one look
	votes []vote

	answers chan answer // room for two of each node, which may be lifted and asked
	words   chan word

	since locker.Instant // validity counts from here
	offer int64          // our clock when the round began, for all nodes the same

	// A round begins by asking and ends with a majority, or without one: then
	// what was granted is given back and the contest rests until a node
	// sends word or the timer fires.
	situation
	timer   *time.Timer
	standBy bool
}

type answer struct {
	node     int
	raised   uint64 // of a raise, otherwise 0
	standing redisnode.Standing
	err      error
}

// word is what a node sends. It is a reason to ask, and no more than that: one that is
// for a value which the contest has given up costs a request.
type word struct {
	node int
	text mailbox.Word
}

// newContest returns a contest that waits if told is not nil, and queues for that if
// queue is set.
func (s *store) newContest(a *attempt, queue bool, told driver.Wait) *contest {
	n := len(s.nodes)
	c := &contest{s: s, a: a, queue: queue, told: told, votes: make([]vote, n), answers: make(chan answer, 2*n)}
	c.wait = queue
	if queue {
		c.words = make(chan word, 4*n)
	}
	c.timer = time.NewTimer(time.Hour)
	c.timer.Stop()
	return c
}

// run returns what a majority has granted, with one token.
func (c *contest) run(ctx context.Context) (driver.Grant, error) {
	defer c.timer.Stop()
	c.begin(true)
	for {
		if c.told != nil && saysTaken(c.votes) {
			c.told()
		}
		if err := c.s.twins(); err != nil {
			return driver.Grant{}, err
		}
		switch judge(c.votes, c.situation) {
		case won:
			return driver.Grant{First: common(c.votes), Count: redisnode.Tokens, Since: c.since}, nil
		case short:
			c.raise()
		case late:
			c.timer.Reset(c.lag())
		case split:
			c.rest(ctx)
		case lost:
			if !c.refused() {
				return driver.Grant{}, c.defeat()
			}
			c.rename()
			c.begin(true)
		}
		select {
		case ans := <-c.answers:
			c.note(ans)
		case w := <-c.words:
			c.read(w)
		case <-c.timer.C:
			c.wake()
		case <-ctx.Done():
			return driver.Grant{}, c.defeat()
		case <-c.s.locks.Closing().Done():
			return driver.Grant{}, locker.ErrClosed
		}
	}
}

// begin starts a round. Validity counts from here, for the node that answers
// last as for the first, or from the round before where a node has not answered
// that yet. Nodes in whose queue we wait are asked only if all is set: they send
// word.
func (c *contest) begin(all bool) {
	if count(c.votes, asking, raising) == 0 {
		c.since = locker.Now()
	}
	c.offer = time.Now().UnixMicro()
	c.resting, c.gathered, c.standBy = false, false, false
	c.timer.Stop()
	for i, v := range c.votes {
		if v.state != asking && (all || v.told || v.state != waiting) {
			c.ask(i)
		}
	}
}

// ask sends a node the request for the lock.
func (c *contest) ask(i int) {
	v := &c.votes[i]
	v.state, v.told, v.err = asking, false, nil
	seat, answers := &c.a.seats[i], c.answers
	how := redisnode.Ask{Queue: c.queue, Ticket: v.ticket, Offer: c.offer}
	var listener func(mailbox.Word)
	if c.queue {
		listener = func(text mailbox.Word) {
			select {
			case c.words <- word{i, text}:
			default: // never blocks: the timer makes up for it
			}
		}
	}
	seat.asking.Add(1) // before anybody can ask what is left of the attempt
	c.s.locks.Go(func() {
		standing, err := c.s.ask(seat, c.s.nodes[i], how, listener)
		seat.asking.Add(-1)
		answers <- answer{node: i, standing: standing, err: err}
	})
}

// note takes note of an answer.
func (c *contest) note(ans answer) {
	v := &c.votes[ans.node]
	switch {
	case ans.err != nil && c.wait && redisnode.Young(ans.err):
		v.state, v.err, v.look = young, ans.err, time.Now().Add(time.Second)
	case ans.err != nil:
		v.state, v.err = failed, ans.err
	case ans.raised != 0:
		v.state, v.token = granted, ans.raised
	case ans.standing.First != 0:
		v.state, v.token = granted, ans.standing.First
	case c.queue:
		v.state, v.ticket = waiting, ans.standing.Ticket
		v.look = time.Now().Add(ans.standing.NextLook() + leeway)
		if v.told {
			c.ask(ans.node)
		}
	default:
		v.state = taken
	}
}

// leeway lets the server's clock pass the millisecond that it spoke of.
const leeway = 2 * time.Millisecond

// read acts on a node's word.
func (c *contest) read(w word) {
	v := &c.votes[w.node]
	switch {
	case w.text == mailbox.StandBy:
		c.standBy = true
		if c.resting {
			c.timer.Reset(mailbox.ClaimTime + leeway)
		}
	case c.resting:
		v.told = true
		c.begin(false)
	case v.state == waiting:
		c.ask(w.node)
	default:
		v.told = true
	}
}

// wake acts on the timer.
func (c *contest) wake() {
	if c.resting {
		c.begin(true)
		return
	}
	c.gathered = true
	for i, v := range c.votes {
		if v.state == waiting || v.state == taken {
			c.ask(i)
		}
	}
}

const (
	// straggling is how much later than one node another may send word of the
	// same release.
	straggling = 50 * time.Millisecond

	// mostLooks is how often an attempt that does not wait looks again, where
	// some nodes have granted the lock and others have not.
	mostLooks = 3

	// firstPause is how long a waiter keeps out of the way after a split vote,
	// about. It doubles every time, until nothing but the end of a lease is
	// waited for: word from the nodes comes sooner.
	firstPause = 10 * time.Millisecond
)

// lag is how much longer than for the others a node is waited for.
func (c *contest) lag() time.Duration { return min(c.s.nodes[0].timeoutOf(c.a.req().TTL), straggling) }

// rest gives back what a round has won, which was not enough, keeps the places
// in the queues, and waits for word from the nodes.
func (c *contest) rest(ctx context.Context) {
	c.resting = true
	split := count(c.votes, granted) > 0
	c.retreat(ctx)
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

// majorityLook is when a majority must have come to us.
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

// retreat gives back what was granted. Where a node may refuse our value from
// then on, the contest goes on with another.
func (c *contest) retreat(ctx context.Context) {
	results := make(chan bool, len(c.votes))
	given := 0
	for i := range c.a.seats {
		t := &c.a.seats[i]
		if t.has.Load() != held || c.votes[i].state == asking { // its answer is still to be counted
			continue
		}
		given++
		c.votes[i].state = idle
		c.s.locks.Go(func() { results <- c.s.nodes[i].giveBack(t) })
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
		c.rename()
	}
}

// refused reports whether a node does not take the attempt's value any more: it had
// granted the lock, the answer was lost, and somebody has broken the lock since.
func (c *contest) refused() bool {
	return slices.ContainsFunc(c.votes, func(v vote) bool { return errors.Is(v.err, redisnode.ErrWithdrawn) })
}

// rename goes on with a new value and the old places in the queues. Answers to
// requests that are still under way are for the old value: they go unread.
func (c *contest) rename() {
	fresh := c.s.newSeats(c.a.seats[0].lease.Again())
	for i := range c.a.seats {
		t := &c.a.seats[i]
		t.end()
		c.s.nodes[i].stopListening(t)
		c.votes[i] = vote{ticket: c.votes[i].ticket}
		c.s.locks.Go(func() { c.s.clear(i, t) })
	}
	gone := func(seats []seat) bool { return !anyLeft(seats) }
	c.a.former = append(slices.DeleteFunc(c.a.former, gone), c.a.seats)
	c.a.seats = fresh
	c.answers = make(chan answer, 2*len(fresh))
}
