package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/line"
	"github.com/lockstile/locker/internal/redisnode"
)

// attempt is one call of Lock or TryLock, and the hold that comes of it.
type attempt struct {
	req   *locker.Request
	turn  *line.Turn[*attempt]
	seats []seat // one for each node

	// The predecessor in the line fills these in before it passes the turn.
	token  fencing.Token
	since  locker.Instant
	streak line.Streak

	mu sync.Mutex // one release at a time, and none while the turn is passed on
}

// seat is what an attempt has at one node.
type seat struct {
	lease   redisnode.Lease
	timeout time.Duration         // for each answer
	held    atomic.Bool           // the node has granted it, as far as we know
	asked   atomic.Bool           // the node was asked for it, and its answer has not come, or got lost
	now     atomic.Pointer[brief] // nil while no request is under way
	sent    atomic.Int64          // when its release got a connection ([locker.Instant]), or 0

	// busy is held while a request of this attempt is under way at this node:
	// what gives back must not be overtaken by what asks.
	busy      sync.Mutex
	over      bool // given back: nothing may be asked any more
	queued    bool // it may have a place in the node's queue
	listening bool // its mailbox is open
}

var errOver = errors.New("the attempt is over")

func (l *Locker) newSeats(terms *redisnode.Terms) []seat {
	timeout, seats := l.nodeTimeout(terms.TTL), make([]seat, len(l.peers))
	for i := range seats {
		seats[i].lease.Terms, seats[i].timeout = terms, timeout
	}
	return seats
}

// left reports whether the node may have anything of the attempt.
func (s *seat) left() bool { return s.held.Load() || s.queued || s.lease.Unsure() }

// mayHold reports whether the node may have the lock: it counts for a majority, and
// so it is asked to renew and to release, also where its grant was not heard.
func (s *seat) mayHold() bool { return s.held.Load() || s.asked.Load() }

// errSlow is why a request to a node is given up.
var errSlow = errors.New("no answer in time")

// brief is the context of one request to one node, which ends with the time that
// the node has, or when nobody needs the answer any more. One that has not ended is
// used again, by any seat: a lock that is held keeps none.
type brief struct {
	context.Context
	done  chan struct{}
	ended atomic.Bool
	timer *time.Timer
}

var briefs sync.Pool

// brief starts a request's time. Its busy is held.
func (s *seat) brief() *brief {
	b, ok := briefs.Get().(*brief)
	if ok {
		b.timer.Reset(s.timeout)
	} else {
		b = &brief{Context: context.Background(), done: make(chan struct{})}
		b.timer = time.AfterFunc(s.timeout, b.end)
	}
	s.now.Store(b)
	return b
}

func (b *brief) end() {
	if !b.ended.Swap(true) {
		close(b.done)
	}
}

// stop says that the request has its answer. If it did not come too late, nobody
// can end b any more: its timer is stopped, and giveUp does not find it.
func (s *seat) stop(b *brief) {
	mine := s.now.CompareAndSwap(b, nil)
	if b.timer.Stop() && mine {
		briefs.Put(b)
	}
}

func (b *brief) Done() <-chan struct{} { return b.done }

func (b *brief) Err() error {
	select {
	case <-b.done:
		return errSlow
	default:
		return nil
	}
}

// giveUp ends the request that is under way, so that what it may have left can be
// removed. Its answer is unknown then.
func (s *seat) giveUp() {
	if b := s.now.Swap(nil); b != nil {
		b.end()
	}
}

// ask asks a node for the lock. With letter set, a place in the node's queue is
// taken if the lock is not free, and letter gets the node's letters.
func (l *Locker) ask(s *seat, p *peer, offer, ticket int64, letter func(redisnode.Letter)) (standing redisnode.Standing, err error) {
	if err := p.enter(s.timeout, l.closing.Done()); err != nil {
		return standing, fmt.Errorf("%w: %w", locker.ErrUnavailable, err)
	}
	defer func() { p.leave(err == nil) }()
	s.busy.Lock()
	defer s.busy.Unlock()
	if s.over {
		return standing, errOver
	}
	ctx := s.brief()
	defer s.stop(ctx)
	if err := l.meet(ctx, p); err != nil {
		return standing, err
	}
	if letter != nil && !s.listening {
		if err := p.mail.Listen(ctx, s.lease.Value, letter); err != nil {
			return standing, err
		}
		s.listening = true
	}
	s.lease.Offer = offer
	s.queued = s.queued || letter != nil
	s.asked.Store(true)
	standing, err = p.node.Acquire(ctx, &s.lease, letter != nil, ticket)
	granted := err == nil && standing.Token != 0
	s.held.Store(granted)
	s.asked.Store(err != nil && s.lease.Unsure())
	s.queued = s.queued && !granted
	return standing, err
}

// raise writes the lock's token back to a node that drew a smaller one. A node
// that does not confirm has no vote; it may still have the lock.
func (l *Locker) raise(s *seat, p *peer, token fencing.Token) (err error) {
	if err := p.enter(s.timeout, l.closing.Done()); err != nil {
		return fmt.Errorf("%w: %w", locker.ErrUnavailable, err)
	}
	defer func() { p.leave(err == nil) }()
	s.busy.Lock()
	defer s.busy.Unlock()
	if s.over {
		return errOver
	}
	ctx := s.brief()
	defer s.stop(ctx)
	return p.node.Raise(ctx, &s.lease, token)
}

// giveBack returns what a node has granted, for another round, and reports
// whether the same value can be used there again: not if a request may arrive
// late, for then the node refuses the value from now on.
func (l *Locker) giveBack(s *seat, p *peer) bool {
	slot := p.enter(s.timeout, nil)
	s.busy.Lock()
	defer s.busy.Unlock()
	ctx := s.brief()
	defer s.stop(ctx)
	err := p.node.Withdraw(ctx, &s.lease)
	if slot == nil {
		p.leave(err == nil)
	}
	s.held.Store(err != nil)
	return err == nil && !s.lease.Unsure()
}

// end says that nothing more is asked for a seat. Its busy is held.
func (l *Locker) end(i int, s *seat) {
	s.over = true
	l.stopListening(i, s)
}

func (l *Locker) stopListening(i int, s *seat) {
	if s.listening {
		l.peers[i].mail.Drop(s.lease.Value)
		s.listening = false
	}
}
