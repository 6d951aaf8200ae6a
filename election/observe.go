package election

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
)

// lookEvery is the time between two looks of an observer at who leads.
const lookEvery = time.Second

// Leader is who leads. The zero Leader stands for nobody.
type Leader struct {
	// Token is the term's. If candidates of one process hand over to each other in
	// memory, others see the first token of that process's lease.
	Token fencing.Token
	// Holder is what the leader has given with [locker.WithHolder]. The default names its
	// process and host.
	Holder string
}

// nobody is the Leader while nobody leads.
var nobody Leader

// Leader says who leads: it asks the store, unless the Candidate leads. A leader that has
// died is named until its lease ends. An error says that it is not known: the store
// did not answer, or the Locker is no [locker.Inspector] ([errors.ErrUnsupported]).
func (c *Candidate) Leader(ctx context.Context) (Leader, error) {
	if lock := c.Term(); lock != nil {
		return Leader{lock.Token(), c.holder}, nil
	}
	inspector, ok := c.locks.(locker.Inspector)
	if !ok {
		return nobody, fmt.Errorf("election: %q: %w: the Locker cannot say who leads", c.name, errors.ErrUnsupported)
	}
	info, err := inspector.Inspect(ctx, c.name)
	switch own := c.term.Load(); {
	case err != nil || !info.Held:
		return nobody, err
	case own != nil && driver.LeaseOver(own.Lock) && uint64(info.Token) == driver.LeaseOf(own.Lock):
		return nobody, nil // the store does not know yet that this term is over
	}
	return Leader{info.Token, info.Holder}, nil
}

// Observe tells who leads, now and at each change, until ctx ends. An error says that it is
// not known who leads: after a term of this Candidate's it says why that has ended, otherwise
// it is the one of Leader. It comes once.
//
// If the Candidate got the lock and its term did not begin, because the claim of
// [locker.WithGuard] failed, the error is the claim's. The Candidate stands again, also where
// a guard refuses for good, and Observe yields it each time that it has yielded something else
// in between.
//
// The terms of this Candidate are yielded when they begin and end. Of others, Observe learns by
// asking the store once a second; a term that begins and ends in between is not seen. What was
// seen is yielded in order, and nothing of it is left out if the loop is slow.
func (c *Candidate) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		at, told := c.latest(), (*change)(nil)
		tell := func(x *change) bool {
			if told != nil && told.leader == x.leader && (told.err == nil) == (x.err == nil) {
				return true
			}
			told = x
			return yield(x.leader, x.err)
		}
		look := time.NewTicker(lookEvery)
		defer look.Stop()
		for ctx.Err() == nil {
			seen := new(change)
			seen.leader, seen.err = c.Leader(ctx)
			if ctx.Err() != nil || !at.isFollowed() && !tell(seen) {
				return
			}
			if !at.isFollowed() {
				select {
				case <-at.followed:
				case <-look.C:
				case <-ctx.Done():
				}
			}
			for at.isFollowed() { // what was seen before is out of date
				if at = at.next; !tell(at) {
					return
				}
			}
		}
	}
}

// change is one in the chain of changes that a Candidate has told of itself. Each observer
// walks along the chain; what all have passed is garbage.
type change struct {
	leader   Leader
	err      error
	next     *change
	followed chan struct{} // closed when next is there
}

func (x *change) isFollowed() bool {
	select {
	case <-x.followed:
		return true
	default:
		return false
	}
}

// tell adds a change to the chain. The mutex is held.
func (c *Candidate) tell(leader Leader, err error) {
	next := &change{leader: leader, err: err, followed: make(chan struct{})}
	c.last.next = next
	close(c.last.followed)
	c.last = next
}

func (c *Candidate) latest() *change {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}
