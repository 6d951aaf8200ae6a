package driver

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lockstile/locker"
)

// line is the calls of one process for one name, in order of arrival. The one in
// front deals with the store, or has a turn with what it was granted.
type line[H any] struct {
	name   string
	front  *call[H]
	lease  *lease[H]  // which front has a turn with, or nil
	behind list.List  // of *call[H]
	once   []*call[H] // TryLocks, which wait for the answer to the question under way

	// known says that somebody in the line has the lock, or was told that it is
	// taken. Whoever stands in it then knows as much.
	known bool
}

// call is one call of Lock or TryLock.
type call[H any] struct {
	req  *locker.Request
	h    H
	once bool
	line *line[H]

	place   *list.Element // behind others; nil if it is not there
	decided chan struct{} // closed when what follows is set; nil for the first in line
	turn    *turn[H]      // handed over; if err is nil too, the call is in front
	err     error
}

// stand waits in line. It returns the turn that c was handed, or nil if c is in
// front now. After an error the store knows nothing of c.
func (l *Locker[H]) stand(ctx context.Context, c *call[H]) (*turn[H], error) {
	if l.enter(c) {
		return nil, nil
	}
	select {
	case <-c.decided:
	case <-ctx.Done():
		l.walkAway(c, cause(ctx))
	case <-l.closing.Done():
		l.walkAway(c, locker.ErrClosed)
	}
	return c.turn, c.err
}

// enter puts c in its line, and reports whether it is in front.
func (l *Locker[H]) enter(c *call[H]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.lines[c.req.Name]
	if n == nil {
		c.line = &line[H]{name: c.req.Name, front: c}
		l.lines[c.req.Name] = c.line
		return true
	}
	c.line, c.decided = n, make(chan struct{})
	switch {
	case !c.once:
		c.place = n.behind.PushBack(c)
	case n.known:
		c.decide(nil, locker.ErrTaken)
	default:
		n.once = append(n.once, c)
	}
	return false
}

// walkAway takes c out of the line, because of why, unless it was decided by then.
func (l *Locker[H]) walkAway(c *call[H], why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-c.decided:
		return
	default:
	}
	if c.place != nil {
		c.line.behind.Remove(c.place)
	}
	c.line.once = slices.DeleteFunc(c.line.once, func(other *call[H]) bool { return other == c })
	c.decide(nil, c.line.inVain(why))
}

// inVain is the error of a call that has ended because of why. Silence is never
// called taken. The Locker's mutex is held.
func (n *line[H]) inVain(why error) error {
	if n.known && !errors.Is(why, locker.ErrClosed) {
		return fmt.Errorf("%w: %w", locker.ErrTaken, why)
	}
	return unavailable(why)
}

// decide lets a call go on. The Locker's mutex is held.
func (c *call[H]) decide(t *turn[H], err error) {
	c.turn, c.err, c.place = t, err, nil
	close(c.decided)
}

// tell notes that the lock is taken. The Locker's mutex is held.
func (n *line[H]) tell() {
	n.known = true
	for _, c := range n.once {
		c.decide(nil, locker.ErrTaken)
	}
	n.once = nil
}

// fail ends all calls that stand behind a question which the store has failed: they
// need not ask one after another. The Locker's mutex is held.
func (n *line[H]) fail(err error) {
	for e := n.behind.Front(); e != nil; e = n.behind.Front() {
		n.behind.Remove(e).(*call[H]).decide(nil, err)
	}
	for _, c := range n.once {
		c.decide(nil, err)
	}
	n.once = nil
}

// advance lets the next call come to the front, when the one there has left. The
// Locker's mutex is held.
func (l *Locker[H]) advance(n *line[H]) {
	switch e := n.behind.Front(); {
	case e != nil:
		n.front = n.behind.Remove(e).(*call[H])
	case len(n.once) > 0:
		n.front, n.once = n.once[0], n.once[1:]
	default:
		delete(l.lines, n.name)
		return
	}
	n.front.decide(nil, nil)
}
