package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/contract"
)

const (
	// firstPause and longestPause are the pauses between requests to a store that is
	// silent.
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
	// confirmTime is how long a call that failed waits to hear that nothing of it is
	// left in the store. The clean-up goes on in the background.
	confirmTime = 250 * time.Millisecond
)

// acquire returns the turn of c, on a lease that another goroutine has passed on or that
// c has asked the store for.
func (l *Locker[H]) acquire(ctx context.Context, c *call[H]) (*turn[H], error) {
	t, err := l.waitInLine(ctx, c)
	if t != nil || err != nil {
		l.endOf(c.h) // nothing was sent for it
		return t, err
	}
	grant, received, err := l.askOrLeave(ctx, c)
	if err != nil {
		return nil, l.giveUp(ctx, c, err)
	}
	t, err = l.beginLease(c, grant, received)
	if err != nil {
		return nil, l.abandon(c, err) // others may do with less validity: those behind go on
	}
	return t, nil
}

// askOrLeave calls ask, and lets the next in line ask if that panics: a hook of the
// client's may panic, and the caller recover, while others wait behind it.
func (l *Locker[H]) askOrLeave(ctx context.Context, c *call[H]) (grant Grant, received Instant, err error) {
	returned := false
	defer func() {
		if !returned {
			_ = l.abandon(c, nil)
		}
	}()
	grant, err = l.ask(ctx, c)
	received = l.now()
	if err == nil {
		l.renewShortSession(ctx, c, grant)
	}
	returned = true
	return grant, received, err
}

// renewShortSession renews the session that a grant depends on, if the session is older
// than the request and has less validity left than is wanted.
func (l *Locker[H]) renewShortSession(ctx context.Context, c *call[H], g Grant) {
	s := l.sessionOf(c.req)
	if s == nil {
		return
	}
	l.mu.Lock()
	short := s.lasts() && s.since < g.Since && s.left(l.now()) < l.least(c.req)
	if short {
		s.uses++
	}
	l.mu.Unlock()
	if short {
		ctx, cancel := context.WithTimeout(causeless(ctx), s.interval())
		defer cancel()
		l.renew(ctx, []*renewed[H]{&s.renewed}, func(*renewed[H]) {})
	}
}

// ask asks the store until it grants the lock or the call has to end.
func (l *Locker[H]) ask(ctx context.Context, c *call[H]) (Grant, error) {
	switch { // what has happened while c stood in line
	case l.closing.Err() != nil:
		return Grant{}, locker.ErrClosed
	case ctx.Err() != nil:
		return Grant{}, ctx.Err() // giveUp says why
	case c.once:
		return l.askStore(causeless(ctx), c, nil)
	}
	w := &waiting[H]{locker: l, call: c, ctx: causeless(ctx)}
	defer w.stop()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		grant, err := l.askStore(w.ctx, c, w.wait)
		over := err == nil || contract.IsAny(err, locker.ErrRefused, locker.ErrMismatch) || ended(w.ctx).err != nil || l.closing.Err() != nil
		if over || !l.goesOn(c, err) {
			return grant, err
		}
		select {
		case <-time.After(pause):
		case <-w.context().Done():
		}
	}
}

var errNoGrant = errors.New("the backend returned neither a grant nor an error")

// askStore calls Acquire, and adds up what that has left. It forgets the loss of an earlier grant
// that never arrived.
func (l *Locker[H]) askStore(ctx context.Context, c *call[H], wait Wait) (Grant, error) {
	l.mu.Lock()
	c.lost = nil
	l.mu.Unlock()
	unsure := c.unsure
	c.unsure = true // also if a hook of the client's panics
	grant, left, err := l.store.Acquire(ctx, c.h, wait)
	c.unsure, c.there = unsure || left != Nothing, c.there || grant.Count > 0
	switch {
	case err != nil || grant.Count > 0:
	case wait == nil:
		err = locker.ErrTaken
	default:
		err = errNoGrant
	}
	return grant, err
}

// waiting is a call of Lock while it asks the store.
type waiting[H any] struct {
	locker *Locker[H]
	call   *call[H]
	ctx    context.Context // the caller's, causeless; from the first wait on it ends with the Locker too
	cancel context.CancelCauseFunc
	unhook func() bool
}

// wait is the Wait of the call's Acquire.
func (w *waiting[H]) wait() context.Context {
	l := w.locker
	l.mu.Lock()
	ask := w.cancel == nil && w.call.req.observed() && !w.call.waits
	if c := w.call; c.line.front == c && (!c.told || !c.line.taken) {
		l.heard(c)
	}
	l.mu.Unlock()
	ctx := w.context()
	if ask {
		l.whom(ctx, w.call)
	}
	return ctx
}

// context is what the call waits in.
func (w *waiting[H]) context() context.Context {
	if w.cancel == nil {
		w.ctx, w.cancel = context.WithCancelCause(w.ctx)
		w.unhook = context.AfterFunc(w.locker.closing, func() { w.cancel(locker.ErrClosed) })
	}
	return w.ctx
}

func (w *waiting[H]) stop() {
	if w.cancel != nil {
		w.unhook()
		w.cancel(nil)
	}
}

// goesOn reports whether c, whose request has failed because of err, was told "taken", and so
// waits on through the silence of the store. A call that comes now is not told so, for the holder
// may have gone since.
func (l *Locker[H]) goesOn(c *call[H], err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.told {
		c.line.taken = false
		c.line.failOnce(unavailable(err))
	}
	return c.told
}

// giveUp ends a call that got no grant, because of err, and returns the caller's error.
// If it was the store that failed, and not ctx that ended, those behind fail with it.
func (l *Locker[H]) giveUp(ctx context.Context, c *call[H], err error) error {
	n := c.line
	taken, end := errors.Is(err, locker.ErrTaken), ended(ctx)
	l.mu.Lock()
	if taken {
		l.heard(c)
	}
	switch {
	case l.closing.Err() != nil:
		err = locker.ErrClosed
	case errors.Is(err, locker.ErrMismatch): // those behind may want what there is
	case taken && end.err == nil:
	case taken: // and what keeps it so
		err = fmt.Errorf("%w: %w", err, end.why())
	case end.err != nil && c.told:
		err = c.endedBy(end.why())
	case end.err != nil:
		err = end.unavailable(err)
	default:
		err = unavailable(err)
		if r, ok := errors.AsType[*refusal](err); !ok || !r.unfit {
			n.fail(err)
		}
	}
	l.mu.Unlock()
	return l.abandon(c, err)
}

// abandon removes what c has left in the store, and lets the next call come to the
// front. It returns err, which is an ErrOutcomeUnknown too if the removal was not
// confirmed in time. The clean-up does not end with the caller's context: it is needed
// most when that has ended.
func (l *Locker[H]) abandon(c *call[H], err error) error {
	defer l.leaveFront(c.line)
	if !c.any() {
		l.finish(c.h, c.req, 0, nil)
		return err
	}
	confirmed := make(chan struct{})
	l.background.run(func() {
		began := l.now()
		ok := l.withdraw(c.h)
		l.reportCleanUp(c.req, began, ok)
		if ok {
			close(confirmed)
			l.finish(c.h, c.req, 0, nil)
			return
		}
		l.finish(c.h, c.req, 0, func() bool { return l.withdraw(c.h) })
	})
	select {
	case <-confirmed: // only then: after a pause of the process a clean-up may have been given up by now
		return err
	case <-time.After(confirmTime):
	}
	return fmt.Errorf("%w: %w", locker.ErrOutcomeUnknown, err)
}

func (l *Locker[H]) leaveFront(n *line[H]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance(n)
}
