package redlock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/mailbox"
	"github.com/lockstile/locker/internal/redisnode"
)

// attempt is one attempt at a name, and the hold that comes of it.
type attempt struct {
	seats   []seat   // one for each node
	former  [][]seat // under values that were given up, while the nodes may have anything of them
	cleanUp *cleanUp // nil until it begins
}

func (a *attempt) req() *locker.Request { return a.seats[0].lease.Request }

// seat is what an attempt has at one node.
type seat struct {
	lease  redisnode.Lease
	has    atomic.Int32 // what the node has granted: nothing, unheard or held
	asking atomic.Int32 // requests for it that have no answer yet, sent or not
	queued atomic.Bool  // it may have a place in the node's queue
	stage  atomic.Int32 // going, over or gone

	// busy is held while a request of this attempt is under way at this node:
	// what gives back must not be overtaken by what asks.
	busy sync.Mutex
}

// What a node has granted, by the last request for it that was sent.
const (
	nothing int32 = iota
	unheard       // its answer got lost
	held          // as far as we know
)

// The stages of a seat.
const (
	going int32 = iota
	over        // nothing may be asked any more
	gone        // and nothing is left of it
)

// releaseTime is what a node has to answer a release. A majority decides when its
// caller goes on, so it can be long.
const releaseTime = 2 * time.Second

// sweepTime is for how long a clean-up waits for a connection.
const sweepTime = 10 * time.Second

// slotLook is how soon a request that waits for a connection notices that its attempt is
// over.
const slotLook = 100 * time.Millisecond

var (
	errOver = errors.New("the attempt is over")
	// errBusy is why a request was not sent.
	errBusy = errors.New("all connections of the client are busy")
	// errSlow is why a request to a node is given up.
	errSlow = errors.New("no answer in time")
)

func (s *store) newSeats(terms *redisnode.Terms) []seat {
	seats := make([]seat, len(s.nodes))
	for i := range seats {
		seats[i].lease.Terms = terms
	}
	return seats
}

// left reports whether the node may have anything of the attempt.
func (t *seat) left() bool {
	return t.stage.Load() != gone && (t.mayHold() || t.queued.Load() || t.lease.Unsure())
}

func anyLeft(seats []seat) bool {
	for i := range seats {
		if seats[i].left() {
			return true
		}
	}
	return false
}

// mayHold reports whether the node may have the lock: it counts for a majority, and
// so it is asked to renew and to release, also where its grant was not heard.
func (t *seat) mayHold() bool { return t.has.Load() != nothing || t.asking.Load() > 0 }

// end says that nothing more is asked.
func (t *seat) end() { t.stage.CompareAndSwap(going, over) }

func (t *seat) ended() bool { return t.stage.Load() != going }

// do sends one request for a seat. It waits for a connection for as long as the answer
// may be of use: the time that the node has begins then, for before that it is this
// process that is busy.
func (n *node) do(t *seat, f func(context.Context) error) error {
	if err := n.enterFor(t); err != nil {
		return err
	}
	return n.send(t, n.timeoutOf(t.lease.TTL), f)
}

// enter waits for a connection, for most at most. Behind a node that hangs none may come
// free.
func (n *node) enter(most time.Duration) error {
	select {
	case n.slots <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case n.slots <- struct{}{}:
		return nil
	case <-timer.C:
		return errBusy
	}
}

// enterFor is enter for a request that is of use only while its attempt lasts.
func (n *node) enterFor(t *seat) error {
	for end := time.Now().Add(t.lease.TTL); time.Now().Before(end); {
		if err := n.enter(slotLook); err == nil {
			return nil
		}
		if t.ended() {
			return errOver
		}
	}
	return errBusy
}

// send calls f over the connection that enter has waited for.
func (n *node) send(t *seat, timeout time.Duration, f func(context.Context) error) error {
	defer func() { <-n.slots }()
	t.busy.Lock()
	defer t.busy.Unlock()
	ctx, cancel := context.WithTimeoutCause(context.Background(), timeout, errSlow)
	defer cancel()
	return f(ctx)
}

// ask asks a node for the lock. If it queues, listener gets the node's words.
func (s *store) ask(t *seat, n *node, ask redisnode.Ask, listener func(mailbox.Word)) (standing redisnode.Standing, err error) {
	err = n.do(t, func(ctx context.Context) error {
		if err := s.prepare(ctx, t, n, ask.Queue, listener); err != nil {
			return err // it was not sent: what the node has granted before it still has
		}
		standing, err = n.redis.Acquire(ctx, &t.lease, ask)
		switch {
		case err != nil && t.lease.Unsure():
			t.has.Store(unheard)
		case err == nil && standing.First != 0:
			t.has.Store(held)
			t.queued.Store(false)
		case err == nil:
			t.has.Store(nothing)
		} // a refusal says nothing of what the node has granted before
		return err
	})
	return standing, err
}

// prepare does what must come before a node is asked.
func (s *store) prepare(ctx context.Context, t *seat, n *node, queue bool, listener func(mailbox.Word)) error {
	if t.ended() {
		return errOver
	}
	if err := s.meet(ctx, n); err != nil {
		return err
	}
	if queue { // another contest of the attempt has a listener of its own
		if err := n.redis.Mail().Open(ctx, t.lease.Value, listener); err != nil {
			return err
		}
		t.queued.Store(true)
	}
	return nil
}

// raise lifts a node's counter to the end of the lock's range. A node that does not
// confirm has no vote; it may still have the lock.
func (n *node) raise(t *seat, first uint64) error {
	return n.do(t, func(ctx context.Context) error { return n.redis.Raise(ctx, &t.lease, first) })
}

// giveBack returns what a node has granted, for another round, and reports
// whether the same value can be used there again: not if a request may arrive
// late, for then the node refuses the value from now on.
func (n *node) giveBack(t *seat) bool {
	err := n.do(t, func(ctx context.Context) error {
		err := n.redis.Withdraw(ctx, &t.lease)
		if err == nil {
			t.has.Store(nothing)
		}
		return err
	})
	return err == nil && !t.lease.Unsure()
}

// release gives the lock back, if the node may have it. A request of ours that is
// still under way there is waited for: a late grant is given back with the rest.
func (n *node) release(t *seat) error {
	if err := n.enter(releaseTime); err != nil {
		return err
	}
	return n.send(t, releaseTime, func(ctx context.Context) error {
		n.end(t)
		if !t.mayHold() {
			return errAbsent
		}
		err := n.redis.Release(ctx, &t.lease)
		if err == nil || asLost(err) != nil {
			t.has.Store(nothing)
			if !t.queued.Load() {
				t.stage.Store(gone)
			}
		}
		return err
	})
}

// sweep ends a seat: whatever is left of it is removed, once.
func (n *node) sweep(ctx context.Context, t *seat) error {
	t.busy.Lock()
	defer t.busy.Unlock()
	n.end(t)
	if !t.left() {
		return nil
	}
	err := n.redis.Withdraw(ctx, &t.lease)
	if err == nil {
		t.has.Store(nothing)
		t.stage.Store(gone)
	}
	return err
}

// end says that nothing more is asked for a seat. Its busy is held.
func (n *node) end(t *seat) {
	t.end()
	n.stopListening(t)
}

func (n *node) stopListening(t *seat) { n.redis.Mail().Drop(t.lease.Value) }
