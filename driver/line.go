package driver

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/contract"
)

// line is the calls of one process for one name, in order of arrival. The one in
// front asks the store, or has a turn with the lease. A shared lease, or a slot, is beside
// the line: the next call comes to the front when it was granted.
type line[H any] struct {
	name   string
	front  *call[H]    // nil if all that is there is beside
	lease  *lease[H]   // front has a turn with it; or nil
	beside []*lease[H] // in order of their grants
	behind list.List   // of *call[H]; a TryLock waits for the answer to the request under way
	taken  bool        // the store has told front so, and has not been silent since
	notYet error       // why the store grants nothing for now; front waits
}

// calls are those behind. The loop may take each out of the line.
func (n *line[H]) calls(yield func(*call[H]) bool) {
	for e := n.behind.Front(); e != nil; {
		c := e.Value.(*call[H])
		if e = e.Next(); !yield(c) {
			return
		}
	}
}

// known reports whether the lock is known to be taken for req: the call in front has it, or
// waits for it, or was told so when it asked the same, or this process shares it and req is
// for all of it. The Locker's mutex is held.
func (n *line[H]) known(req *request) bool {
	waits := n.taken && (!n.front.once || n.front.req.Kind == req.Kind && n.front.req.Slots == req.Slots)
	return n.lease != nil || waits || req.Kind == locker.KindExclusive && n.sharedLease() != nil
}

// holder is the text of this process's lease, or "". The Locker's mutex is held.
func (n *line[H]) holder() string {
	if a := cmp.Or(n.lease, n.sharedLease()); a != nil {
		return a.req.Holder
	}
	return ""
}

// errShares says why a lock that is taken will not come by waiting alone.
var errShares = fmt.Errorf("%w: this process shares it, and a shared lock cannot become exclusive: unlock it first", locker.ErrTaken)

// takenError is the error of a TryLock of a lock that is known to be taken. The Locker's mutex
// is held.
func (n *line[H]) takenError(req *request) error {
	if n.front == nil && n.sharedLease() != nil && req.Kind == locker.KindExclusive {
		return errShares
	}
	return locker.ErrTaken
}

// mismatch returns an error if what this process has of the lock, or waits for in the
// store, does not go with req. The Locker's mutex is held.
func (n *line[H]) mismatch(req *request) error {
	have := req
	switch {
	case len(n.beside) > 0:
		have = n.beside[0].req
	case n.lease != nil || n.taken:
		have = n.front.req
	}
	if have.Slots == req.Slots {
		return nil
	}
	return Mismatch(&req.Request, have.Kind, have.Slots)
}

// call is one call of Lock or TryLock.
type call[H any] struct {
	req  *request
	h    H
	once bool
	line *line[H]
	told bool              // it knows that the lock is taken: from the store, or from the line
	lost *locker.LostError // what the store said before its grant arrived

	handle *contract.Detached // that it resumes a lock with, or nil

	doubt // until it has a lease

	began Instant // if it is observed
	waits bool    // its observers know that it waits

	place   *list.Element // behind others; nil if it is not there
	decided chan struct{} // closed when what follows is set; nil for the first in line
	turn    *turn[H]      // that has begun; if it and err are nil, the call is in front
	err     error
}

// waitInLine returns the turn of c, if another goroutine has passed the lease on to it,
// or nil if c is in front now. After an error the store knows nothing of c.
func (l *Locker[H]) waitInLine(ctx context.Context, c *call[H]) (*turn[H], error) {
	if l.enter(c) {
		return nil, nil
	}
	select {
	case <-c.decided:
	case <-ctx.Done():
		l.leaveLine(c, ended(ctx).why())
	case <-l.closing.Done():
		l.leaveLine(c, nil)
	}
	return c.turn, c.err
}

// enter puts c in its line, and reports whether it is in front of it, alone.
func (l *Locker[H]) enter(c *call[H]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.lineOf(c.req.Name)
	if c.line = n; n.front == nil && len(n.beside) == 0 {
		n.front = c
		return true
	}
	c.decided = make(chan struct{})
	known := n.known(c.req)
	switch err := n.mismatch(c.req); {
	case err != nil:
		c.decide(nil, err)
	case c.once && known:
		c.decide(nil, n.takenError(c.req))
	case c.once && n.notYet != nil:
		c.decide(nil, n.notYet)
	default:
		c.told = known
		c.place = n.behind.PushBack(c)
		l.reportWaiting(c, n.holder())
	}
	if n.front == nil && c.err == nil {
		l.advance(n)
	}
	return false
}

// lineOf returns the line of a name. The Locker's mutex is held.
func (l *Locker[H]) lineOf(name string) *line[H] {
	n := l.lines[name]
	if n == nil {
		n = &line[H]{name: name}
		l.lines[name] = n
	}
	return n
}

// leaveLine takes c out of the line, unless c was decided already. why is how its context has
// ended, or nil if the Locker was closed.
func (l *Locker[H]) leaveLine(c *call[H], why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-c.decided:
		return
	default:
	}
	err := locker.ErrClosed
	if why != nil {
		err = c.endedBy(why)
	}
	c.decide(nil, err)
}

// endedBy is the error of a call that ends with its context, because of why. It says "taken"
// only if somebody has told the call so. The Locker's mutex is held.
func (c *call[H]) endedBy(why error) error {
	known := cmp.Or(c.line.notYet, locker.ErrUnavailable)
	if c.told {
		known = locker.ErrTaken
	}
	return fmt.Errorf("%w: %w", known, why)
}

// decide lets a call go on, out of those behind. The Locker's mutex is held.
func (c *call[H]) decide(t *turn[H], err error) {
	if c.place != nil {
		c.line.behind.Remove(c.place)
	}
	c.turn, c.err, c.place = t, err, nil
	close(c.decided)
}

// heard notes that the store has said "taken" to c, which is in front. The Locker's
// mutex is held.
func (l *Locker[H]) heard(c *call[H]) {
	c.told, c.line.taken, c.line.notYet = true, true, nil
	l.tell(c.line)
}

// tell tells everybody in the line for whom the lock is known to be taken. A reader is not
// told what a writer's try has heard: that may have met other readers. The Locker's mutex is
// held.
func (l *Locker[H]) tell(n *line[H]) {
	for c := range n.calls {
		switch known := n.known(c.req); {
		case known && c.once:
			c.decide(nil, locker.ErrTaken)
		case known:
			c.told = true
			l.reportWaiting(c, n.holder())
		}
	}
}

// fail ends the calls behind one whose request the store has failed, so that they do not
// ask one after another. Who was told "taken" waits on through the silence of a store. The
// Locker's mutex is held.
func (n *line[H]) fail(err error) {
	for c := range n.calls {
		if !c.told || errors.Is(err, locker.ErrRefused) {
			c.decide(nil, err)
		}
	}
}

// failOnce ends the TryLocks that wait for the answer to a request, which has failed. The
// Locker's mutex is held.
func (n *line[H]) failOnce(err error) {
	for c := range n.calls {
		if c.once {
			c.decide(nil, err)
		}
	}
}

// NotYet says that the store grants nothing for now, because of why, and that h waits until
// it does. TryLocks that stand behind h get why at once, and so do others when their
// contexts end. It is for a Store whose servers say when they will serve.
func (l *Locker[H]) NotYet(name string, h H, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.lines[name]
	if n == nil || n.front == nil || n.known(n.front.req) || any(n.front.h) != any(h) {
		return
	}
	n.notYet = unavailable(why)
	n.failOnce(n.notYet)
}

// advance lets the next call come to the front after the one there has left. Readers that
// can join a shared lease need not. The Locker's mutex is held.
func (l *Locker[H]) advance(n *line[H]) {
	n.front, n.taken, n.notYet = nil, false, nil
	for c := range n.calls {
		if t := l.join(n, c); t != nil {
			l.reportGrant(c, t, locker.EventPassed)
			c.decide(t, nil)
			continue
		}
		known := n.known(c.req)
		if known && c.once {
			c.decide(nil, n.takenError(c.req))
			continue
		}
		n.front = c
		if known {
			l.heard(c)
			l.reportWaiting(c, n.holder())
		}
		c.decide(nil, nil)
		return
	}
	l.forget(n)
}

// forget drops a line in which nobody is. The Locker's mutex is held.
func (l *Locker[H]) forget(n *line[H]) {
	if n.front == nil && len(n.beside) == 0 {
		delete(l.lines, n.name)
	}
}
