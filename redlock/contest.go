package redlock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/redisnode"
)

// contest is an attempt on its way to a majority. One goroutine runs it; the
// requests to the nodes run in others and answer into a channel with room for
// all of them, so that a node that hangs holds up nobody.
type contest struct {
	l     *Locker
	a     *attempt
	wait  bool // queue and wait, or one look
	votes []vote

	answers  chan answer // room for one of each node
	letters  chan letter
	underWay int // requests whose answer has not been read

	offer int64 // our clock when the round began, for all nodes the same

	// A round begins by asking and ends with a majority, or without one: then
	// what was granted is given back and the contest rests until a node
	// sends word or the timer fires.
	resting  bool
	gathered bool // nodes that kept us waiting were asked once more
	timer    *time.Timer
	standBy  bool
	splits   int
	life     int // of the value, which changes when a node may refuse it
}

// vote is how a node stands.
type vote struct {
	state  state
	token  fencing.Token
	err    error
	look   time.Time // when it makes sense to ask again without a letter
	ticket int64
	told   bool // a letter came that no request has followed yet
}

type state uint8

const (
	idle    state = iota // not asked, or given back
	asking               // a request is under way
	granted              //
	raising              // granted, and its token is being written back
	waiting              // taken by somebody else, and we are in the queue
	taken                // taken by somebody else
	failed               //
)

type answer struct {
	node     int
	raised   fencing.Token // of a raise, otherwise 0
	standing redisnode.Standing
	err      error
}

type letter struct {
	node, life int
	text       redisnode.Letter
}

func (l *Locker) newContest(a *attempt, wait bool) *contest {
	n := len(l.peers)
	c := &contest{l: l, a: a, wait: wait, votes: make([]vote, n), answers: make(chan answer, n)}
	if wait {
		c.letters = make(chan letter, 4*n)
	}
	c.timer = time.NewTimer(time.Hour)
	c.timer.Stop()
	return c
}

// run returns nil when the attempt has a majority with one token.
func (c *contest) run(ctx context.Context) error {
	defer c.timer.Stop()
	c.begin(true)
	for {
		if over, err := c.judge(); over {
			return err
		}
		select {
		case ans := <-c.answers:
			c.note(ans)
		case let := <-c.letters:
			c.read(let)
		case <-c.timer.C:
			c.wake()
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", c.kindAtEnd(), context.Cause(ctx))
		case <-c.l.closing.Done():
			return locker.ErrClosed
		}
	}
}

func (c *contest) kindAtEnd() error {
	if c.wait {
		return locker.ErrTaken
	}
	return locker.ErrUnavailable
}

// begin starts a round. Validity counts from here, for the node that answers
// last as for the first, or from the round before where a node has not answered
// that yet. Nodes in whose queue we wait are asked only if all is set: they send
// word.
func (c *contest) begin(all bool) {
	if c.underWay == 0 {
		c.a.since = locker.Now()
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
	s, answers, offer, ticket := &c.a.seats[i], c.answers, c.offer, v.ticket
	var write func(redisnode.Letter)
	if c.wait {
		life := c.life
		write = func(text redisnode.Letter) {
			select {
			case c.letters <- letter{i, life, text}:
			default: // never blocks: the timer makes up for it
			}
		}
	}
	c.underWay++
	c.l.chores.Go(func() {
		standing, err := c.l.ask(s, c.l.peers[i], offer, ticket, write)
		answers <- answer{node: i, standing: standing, err: err}
	})
}

// note takes note of an answer.
func (c *contest) note(ans answer) {
	c.underWay--
	v := &c.votes[ans.node]
	switch {
	case ans.err != nil:
		v.state, v.err = failed, ans.err
	case ans.raised != 0:
		v.state, v.token = granted, ans.raised
	case ans.standing.Token != 0:
		v.state, v.token = granted, ans.standing.Token
	case c.wait:
		v.state, v.ticket = waiting, ans.standing.Ticket
		v.look = time.Now().Add(nextLook(ans.standing))
		if v.told {
			c.ask(ans.node)
		}
	default:
		v.state = taken
	}
}

// nextLook is when a node must have come to us, if everybody before us in its
// queue has died without a word: when the lease ends, and one claim time later
// for each of them.
func nextLook(s redisnode.Standing) time.Duration {
	if s.Left < 0 {
		return time.Second // somebody's key without an expiry: nothing will tell us that it was deleted
	}
	return s.Left + time.Duration(s.Ahead)*redisnode.ClaimTime + leeway
}

// leeway lets the server's clock pass the millisecond that it spoke of.
const leeway = 2 * time.Millisecond

// read acts on a letter.
func (c *contest) read(let letter) {
	v := &c.votes[let.node]
	switch {
	case let.life != c.life:
	case let.text == redisnode.StandBy:
		c.standBy = true
		if c.resting {
			c.timer.Reset(redisnode.ClaimTime + leeway)
		}
	case c.resting:
		v.told = true
		c.begin(false)
	case v.state == waiting:
		c.ask(let.node)
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

// rest gives back what a round has won, which was not enough, keeps the places
// in the queues, and waits for word from the nodes.
func (c *contest) rest() {
	c.resting = true
	split := c.count(granted) > 0
	c.retreat()
	pause := time.Until(c.majorityLook())
	if split {
		longest := firstPause << min(c.splits, 20)
		pause = min(max(pause, firstPause), longest/2+rand.N(longest/2)) //nolint:gosec // no secret
		c.splits++
	}
	if c.standBy {
		pause = min(pause, redisnode.ClaimTime+leeway)
	}
	c.timer.Reset(max(pause, leeway))
}

// majorityLook is when a majority must have come to us.
func (c *contest) majorityLook() time.Time {
	now := time.Now()
	looks := make([]time.Time, len(c.votes))
	for i, v := range c.votes {
		switch v.state {
		case waiting:
			looks[i] = v.look
		case failed:
			looks[i] = now.Add(time.Second)
		default:
			looks[i] = now
		}
	}
	slices.SortFunc(looks, time.Time.Compare)
	return looks[c.l.quorum-1]
}

// retreat gives back what was granted. Where a node may refuse our value from
// then on, the contest goes on with another.
func (c *contest) retreat() {
	results := make(chan bool, len(c.votes))
	given := 0
	for i := range c.a.seats {
		s := &c.a.seats[i]
		if !s.held.Load() || c.votes[i].state == asking { // its answer is still to be counted
			continue
		}
		given++
		c.votes[i].state = idle
		c.l.chores.Go(func() { results <- c.l.giveBack(s, c.l.peers[i]) })
	}
	usable := true
	for range given {
		usable = <-results && usable
	}
	if !usable {
		c.rename()
	}
}

// rename goes on with a new value and the old places in the queues. Answers to
// requests that are still under way are for the old value: they go unread.
func (c *contest) rename() {
	old := c.a.seats
	terms := new(redisnode.Terms)
	if err := terms.Init(c.a.req, c.l.opts.Prefix); err != nil {
		return // it was made once before, of the same
	}
	c.a.seats = c.l.newSeats(terms)
	c.life++
	c.answers, c.underWay = make(chan answer, len(old)), 0
	for i := range c.votes {
		c.votes[i] = vote{ticket: c.votes[i].ticket}
		c.l.chores.Go(func() { c.l.sweep(i, &old[i]) })
	}
}
