package redlock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/mailbox"
	"github.com/lockstile/locker/internal/redisnode"
)

// attempt is one attempt at a name, and the hold that comes of it.
type attempt struct {
	parts   []part        // one for each node
	former  [][]part      // under values that were given up, while the nodes may have anything of them
	tickets map[int]int64 // of its places in the queues, by node: it keeps them from one contest to the next
	cleanUp *cleanUp      // nil until it begins
	won     instant       // when a majority had granted the lock
}

// instant is a [driver.Instant] that is set once. Before, nothing is ago.
type instant struct{ at atomic.Int64 }

func (i *instant) set() { i.at.Store(int64(driver.Now())) }

func (i *instant) ago(d time.Duration) bool {
	at := i.at.Load()
	return at != 0 && driver.Now().Sub(driver.Instant(at)) > d
}

// keepTicket keeps the ticket of the attempt's place at a node.
func (a *attempt) keepTicket(node int, ticket int64) {
	if a.tickets == nil { // a lock that was free needs none
		a.tickets = make(map[int]int64)
	}
	a.tickets[node] = ticket
}

func (a *attempt) req() *driver.Request { return a.parts[0].Request }

// part is what an attempt has at one node.
type part struct {
	redisnode.Attempt
	has    atomic.Int32 // what the node has granted, or done with it
	asking atomic.Int32 // requests for the lock that have no answer yet, sent or not
	queued atomic.Bool  // it may have a place in the node's queue
	stage  atomic.Int32 // going, over, clearing or gone

	// busy is held while a request of this attempt is under way at this node:
	// what gives back must not be overtaken by what asks.
	busy sync.Mutex
}

// What a node has granted, by the last request for it that was sent, or done with it.
const (
	nothing int32 = iota
	unheard       // its answer got lost
	held          // we have heard it
	kept          // it keeps it taken: WithMinHold
	missing       // it has it no more
)

// The stages of a part.
const (
	going    int32 = iota
	over           // nothing may be asked any more
	clearing       // a release that has not worked is repeated in the background
	gone           // and nothing is left of it
)

func (s *store) newParts(terms *redisnode.Terms) []part {
	parts := make([]part, len(s.nodes))
	for i := range parts {
		parts[i].Terms = terms
	}
	return parts
}

// left reports whether the node may have anything of the attempt.
func (p *part) left() bool {
	return p.stage.Load() != gone && (p.mayHold() || p.queued.Load() || p.Unsure())
}

func anyLeft(parts []part) bool {
	for i := range parts {
		if parts[i].left() {
			return true
		}
	}
	return false
}

// mayHold reports whether the node may have the lock: it counts for a majority, and
// so it is asked to renew and to release, also where its grant was not heard.
func (p *part) mayHold() bool { return p.granted() || p.asking.Load() > 0 }

// granted reports whether the node has granted the lock, or may have.
func (p *part) granted() bool {
	has := p.has.Load()
	return has == unheard || has == held
}

// end says that nothing more is asked.
func (p *part) end() { p.stage.CompareAndSwap(going, over) }

func (p *part) ended() bool { return p.stage.Load() != going }

// ask asks a node for the lock. If it queues, listener gets the node's words.
func (s *store) ask(p *part, won *instant, n *node, ask redisnode.Ask, listener func(mailbox.Word)) (standing redisnode.Standing, err error) {
	err = n.do(p, won, func(ctx context.Context) error {
		if err := s.prepare(ctx, p, n, ask.Queue, listener); err != nil {
			return err // it was not sent: what the node has granted before it still has
		}
		standing, err = n.redis.Acquire(ctx, &p.Attempt, ask)
		switch {
		case err != nil && p.Unsure():
			p.has.Store(unheard)
		case err == nil && standing.First != 0:
			p.has.Store(held)
			p.queued.Store(false)
		case err == nil:
			p.has.Store(nothing)
		} // a refusal says nothing of what the node has granted before
		return err
	})
	return standing, err
}

// prepare does what must come before a node is asked.
func (s *store) prepare(ctx context.Context, p *part, n *node, queue bool, listener func(mailbox.Word)) error {
	if p.ended() {
		return errOver
	}
	if err := s.identify(ctx, n); err != nil {
		return err
	}
	if queue { // another contest of the attempt has a listener of its own
		if err := n.redis.Mail().Open(ctx, p.Value, listener); err != nil {
			return err
		}
		p.queued.Store(true)
	}
	return nil
}

// raise raises a node's counter to the end of the lock's range, and returns the first of it.
// A node that does not confirm that has no vote; it may still have the lock.
func (n *node) raise(p *part, first uint64) (raised uint64, err error) {
	err = n.do(p, new(instant), func(ctx context.Context) error {
		raised, err = n.redis.Raise(ctx, &p.Attempt, first)
		return err
	})
	return raised, err
}

// giveBack returns what a node has granted, and reports whether the next round can use
// the same value there: not if a request may arrive late, for then the node refuses the
// value from now on.
func (n *node) giveBack(p *part) bool {
	err := n.do(p, new(instant), func(ctx context.Context) error {
		err := n.redis.Withdraw(ctx, &p.Attempt)
		if err == nil {
			p.has.Store(nothing)
		}
		return err
	})
	return err == nil && !p.Unsure()
}

// releaseTime is what a node has to answer a release. A majority decides when its
// caller goes on, so it can be long.
const releaseTime = 2 * time.Second

// release gives the lock back, if the node may have it, or has it kept taken until then. A
// request of ours that is still under way there is waited for: a late grant is given back
// with the rest.
func (n *node) release(p *part, until driver.Instant) error {
	if err := n.awaitConn(cleanUpTime); err != nil { // the caller waits for less, and the release goes on
		return err
	}
	return n.send(p, releaseTime, func(ctx context.Context) error { return n.releaseHeld(ctx, p, until) })
}

// releaseHeld releases a part whose busy is held. Called again, it says the same of a node
// that has answered.
func (n *node) releaseHeld(ctx context.Context, p *part, until driver.Instant) error {
	n.end(p)
	switch has := p.has.Load(); {
	case has == kept:
		return nil
	case has == missing:
		return &locker.LostError{Reason: locker.ReasonTakenOver}
	case !p.mayHold():
		return errAbsent
	}
	keep := max(until.Sub(driver.Now()), 0)
	err := n.redis.Release(ctx, &p.Attempt, keep)
	switch {
	case err == nil && keep > 0:
		p.has.Store(kept)
	case err == nil:
		p.has.Store(nothing)
	case asLost(err) != nil:
		p.has.Store(missing)
	default:
		return err
	}
	if !p.queued.Load() {
		p.stage.Store(gone)
	}
	return err
}

// withdraw ends a part: whatever is left of it is removed, once. What is to be kept until a
// time that has not come is not.
func (n *node) withdraw(ctx context.Context, p *part, until driver.Instant) error {
	p.busy.Lock()
	defer p.busy.Unlock()
	n.end(p)
	if p.mayHold() && driver.Now() < until {
		if err := n.releaseHeld(ctx, p, until); err != nil && asLost(err) == nil {
			return err
		}
	}
	if !p.left() {
		return nil
	}
	err := n.redis.Withdraw(ctx, &p.Attempt)
	if err == nil {
		if p.granted() {
			p.has.Store(nothing)
		}
		p.stage.Store(gone)
	}
	return err
}

// end says that nothing more is asked for a part. Its busy is held.
func (n *node) end(p *part) {
	p.end()
	n.stopListening(p)
}

func (n *node) stopListening(p *part) { n.redis.Mail().Drop(p.Value) }
