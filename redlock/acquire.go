package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/mailbox"
	"github.com/lockstile/locker/internal/redisnode"
)

// Acquire implements [driver.Store]. While the Locker does not listen yet, it asks
// without queueing first: most locks are free, and a subscription costs a connection to
// each node.
func (s *store) Acquire(ctx context.Context, a *attempt, wait driver.Wait) (driver.Grant, driver.Left, error) {
	grant, err := s.acquire(ctx, a, wait)
	return grant, driver.UnsureIf(a.left()), err
}

func (s *store) acquire(ctx context.Context, a *attempt, wait driver.Wait) (driver.Grant, error) {
	if wait == nil || !s.listening() {
		grant, err := s.newContest(a, false, wait).run(ctx)
		if err == nil || wait == nil || ctx.Err() != nil || !worthWaiting(err) {
			return grant, err
		}
	}
	c := s.newContest(a, true, wait)
	grant, err := c.run(ctx)
	if err == nil && count(c.votes, waiting, asking) > 0 {
		s.locks.Go(c.linger)
	}
	return grant, err
}

// worthWaiting reports whether enough nodes have answered a look that failed: others have
// the lock, or nodes have no vote yet.
func worthWaiting(err error) bool {
	var e *QuorumError
	if !errors.As(err, &e) {
		return false
	}
	down := 0
	for _, o := range e.Nodes {
		if o.Err != nil && redisnode.Young(o.Err) == 0 {
			down++
		}
	}
	return down <= len(e.Nodes)-e.Need
}

// contest is an attempt on its way to a majority. One goroutine runs it; the
// requests to the nodes run in others and answer into a channel with room for
// all of them, so that a node that hangs holds up nobody.
//
// A round begins by asking and ends with a majority, or without one: then what was
// granted is given back, and the contest rests until a node sends word or the timer
// fires.
type contest struct {
	s     *store
	a     *attempt
	told  driver.Wait // nil: nobody is to be told that it is taken
	votes []vote
	situation

	answers chan answer // room for two of each node, which may be raised and asked
	words   chan word

	since driver.Instant // validity counts from here
	offer int64          // our wall clock in µs when the round began, for all nodes the same

	timer    *time.Timer
	admitted bool
	standBy  bool // a node has told us to look when its claim may have lapsed
}

type answer struct {
	node     int
	raised   uint64 // what a raise came to, otherwise 0
	standing redisnode.Standing
	err      error
}

// word is what a node sends. It is a reason to ask, and no more than that: one for a
// value that the contest has given up costs a request.
type word struct {
	node int
	text mailbox.Word
}

// newContest returns a contest that queues and waits, or is one look.
func (s *store) newContest(a *attempt, wait bool, told driver.Wait) *contest {
	n := len(s.nodes)
	c := &contest{s: s, a: a, told: told, votes: make([]vote, n), answers: make(chan answer, 2*n)}
	for node, ticket := range a.tickets {
		c.votes[node].ticket = ticket
	}
	c.wait = wait
	if wait {
		c.words = make(chan word, 4*n)
	}
	c.timer = time.NewTimer(time.Hour)
	c.timer.Stop()
	return c
}

// run returns what a majority has granted, with one token.
func (c *contest) run(ctx context.Context) (driver.Grant, error) {
	defer c.timer.Stop()
	if err := c.enter(ctx); err != nil {
		return driver.Grant{}, err
	}
	defer c.leave()
	c.begin(true)
	for {
		if count(c.votes, asking, raising) <= len(c.votes)-c.s.quorum {
			c.leave() // a majority has answered
		}
		if c.told != nil && saysTaken(c.votes) {
			c.told()
		}
		if err := c.s.sameServer.Load(); err != nil {
			return driver.Grant{}, *err
		}
		switch judge(c.votes, c.situation) {
		case won:
			c.a.won.set()
			return driver.Grant{First: common(c.votes), Count: c.a.req().Tokens(redisnode.Tokens), Since: c.since}, nil
		case short:
			c.raise()
		case late:
			c.timer.Reset(c.lag())
		case split:
			c.rest(ctx)
		case lost:
			if !c.refused() {
				return driver.Grant{}, c.failure()
			}
			c.changeValue()
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
			return driver.Grant{}, c.failure()
		case <-c.s.locks.Closing().Done():
			return driver.Grant{}, locker.ErrClosed
		}
	}
}

// enter waits until the nodes have connections for the contest. Without that, the requests
// of a thousand attempts would wait for each node's in another order: many would have some
// nodes early and the others late, and none a majority before its lease ends.
func (c *contest) enter(ctx context.Context) error {
	select {
	case c.s.contests <- struct{}{}:
		c.admitted = true
		return nil
	case <-ctx.Done():
		return c.failure()
	case <-c.s.locks.Closing().Done():
		return locker.ErrClosed
	}
}

func (c *contest) leave() {
	if c.admitted {
		<-c.s.contests
		c.admitted = false
	}
}

// begin starts a round. Validity counts from here, whenever a node answers; or from the
// round before, if a node has not answered that yet. Nodes in whose queue we wait send
// word: they are asked only if all is set.
func (c *contest) begin(all bool) {
	if count(c.votes, asking, raising) == 0 {
		c.since = driver.Now()
	}
	c.offer = time.Now().UnixMicro()
	c.resting, c.gathered, c.standBy = false, false, false
	c.timer.Stop()
	for i, v := range c.votes {
		if v.state != asking && (all || v.word || v.state != waiting) {
			c.ask(i)
		}
	}
}

// ask sends a node the request for the lock.
func (c *contest) ask(i int) {
	v := &c.votes[i]
	v.state, v.word = asking, false // its last error stays until it answers: it may be why the contest ends
	part, answers := &c.a.parts[i], c.answers
	how := redisnode.Ask{Queue: c.wait, Ticket: v.ticket, Since: c.since, Offer: c.offer}
	var listener func(mailbox.Word)
	if c.wait {
		listener = func(text mailbox.Word) {
			select {
			case c.words <- word{i, text}:
			default: // never blocks: the timer makes up for it
			}
		}
	}
	part.asking.Add(1) // before anybody can ask what is left of the attempt
	c.s.locks.Go(func() {
		standing, err := c.s.ask(part, &c.a.won, c.s.nodes[i], how, listener)
		part.asking.Add(-1)
		answers <- answer{node: i, standing: standing, err: err}
	})
}

// note takes note of an answer.
func (c *contest) note(ans answer) {
	v := &c.votes[ans.node]
	v.err, v.noLock = ans.err, ans.standing.NoLock
	wait := redisnode.Young(ans.err)
	switch {
	case wait > 0 && c.wait:
		v.state, v.look = young, time.Now().Add(min(wait, youngLook))
	case ans.err != nil:
		v.state = failed
	case ans.raised != 0:
		v.state, v.token = granted, ans.raised
	case ans.standing.First != 0:
		v.state, v.token = granted, ans.standing.First
	case c.wait:
		v.state, v.ticket = waiting, ans.standing.Ticket
		c.a.keepTicket(ans.node, v.ticket)
		v.look = time.Now().Add(ans.standing.NextLook() + leeway)
		if v.word {
			c.ask(ans.node)
		}
	default:
		v.state = taken
	}
}

// youngLook is when a node that has no vote yet is asked again, at the latest: it counts by
// a clock that may step forward.
const youngLook = 5 * time.Second

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
	case c.resting && w.text == mailbox.Look: // of a node that is down, perhaps: no reason to ask all before the pause is over
	case c.resting:
		v.word = true
		c.begin(false)
	case v.state == waiting:
		c.ask(w.node)
	default:
		v.word = true
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

// raise raises the nodes of a majority that drew a smaller token than the greatest. Their
// counters stand below the end of the range that begins with that. Where a node has given a
// reader's number to another reader, the answer is greater, and the others are raised again.
func (c *contest) raise() {
	var token uint64
	for _, v := range c.votes {
		if v.state == granted {
			token = max(token, v.token)
		}
	}
	for i := range c.votes {
		v := &c.votes[i]
		if v.state != granted || v.token == token {
			continue
		}
		v.state = raising
		part, answers := &c.a.parts[i], c.answers
		c.s.locks.Go(func() {
			raised, err := c.s.nodes[i].raise(part, token)
			answers <- answer{node: i, raised: raised, err: err}
		})
	}
}

// lag is how much longer than for the others a node is waited for.
func (c *contest) lag() time.Duration { return c.s.nodes[0].lag(c.a.req().TTL) }
