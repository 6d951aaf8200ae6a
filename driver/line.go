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
	taken  bool       // the store has told whoever is in front
	calls  uint64     // that have come
}

// known reports whether the lock is known to be taken: somebody in the line has it, or
// is in front and was told by the store. The Locker's mutex is held.
func (n *line[H]) known() bool { return n.lease != nil || n.taken }

// call is one call of Lock or TryLock.
type call[H any] struct {
	req  *locker.Request
	h    H
	once bool
	line *line[H]
	came uint64
	told bool              // that the lock is taken: by the store, or by the line while that was known
	lost *locker.LostError // as the store said before we saw its grant

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
	n.calls++
	c.line, c.decided, c.came = n, make(chan struct{}), n.calls
	switch {
	case !c.once:
		c.told = n.known()
		c.place = n.behind.PushBack(c)
	case n.known():
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
	c.decide(nil, c.inVain(why))
}

// inVain is the error of a call that has ended because of why. Silence is never
// called taken. The Locker's mutex is held.
func (c *call[H]) inVain(why error) error {
	if c.told && !errors.Is(why, locker.ErrClosed) {
		return fmt.Errorf("%w: %w", locker.ErrTaken, why)
	}
	return unavailable(why)
}

// decide lets a call go on. The Locker's mutex is held.
func (c *call[H]) decide(t *turn[H], err error) {
	c.turn, c.err, c.place = t, err, nil
	close(c.decided)
}

// heard notes that the store has told c, which is in front, that the lock is taken. The
// Locker's mutex is held.
func (c *call[H]) heard() {
	c.told, c.line.taken = true, true
	c.line.tell()
}

// tell notes that everybody in the line knows that the lock is taken. The Locker's mutex
// is held.
func (n *line[H]) tell() {
	for e := n.behind.Front(); e != nil; e = e.Next() {
		e.Value.(*call[H]).told = true
	}
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
	n.taken = false
	switch e := n.behind.Front(); {
	case len(n.once) > 0 && (e == nil || n.once[0].came < e.Value.(*call[H]).came):
		n.front, n.once = n.once[0], n.once[1:]
	case e != nil:
		n.front = n.behind.Remove(e).(*call[H])
	default:
		delete(l.lines, n.name)
		return
	}
	n.front.decide(nil, nil)
}
