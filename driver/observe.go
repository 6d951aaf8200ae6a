package driver

import (
	"context"
	"errors"
	"time"

	"github.com/lockstile/locker"
)

// report has the observers of a request hear of an event. It calls none of them, so the
// Locker's mutex may be held: then the order of events is that in which they happened.
func (l *Locker[H]) report(req *request, e locker.Event) {
	if req.observed() {
		req.tell(l.background.begin, e)
	}
}

// reportWaiting reports once that a call waits for holder. The Locker's mutex is held.
func (l *Locker[H]) reportWaiting(c *call[H], holder string) {
	if c.told && !c.once && !c.waits {
		c.waits = true
		l.report(c.req, locker.Event{Type: locker.EventWaiting, Slot: -1, Holder: holder})
	}
}

// whom asks the store whom a call waits for. The call may have ended when the answer comes,
// but does not end the question: a client would close the connection.
func (l *Locker[H]) whom(ctx context.Context, c *call[H]) {
	l.background.run(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
		defer cancel()
		defer context.AfterFunc(l.closing, cancel)()
		holder := ""
		_ = Caught(func() error { // who cannot be asked, or does not answer, names nobody
			info, err := l.Inspect(ctx, c.req.Name)
			if holder = info.Holder; holder == "" && len(info.Holders) > 0 {
				holder = info.Holders[0].Text
			}
			return err
		})
		l.mu.Lock()
		defer l.mu.Unlock()
		l.reportWaiting(c, holder)
	})
}

// reportGrant reports that a call has got a turn. The Locker's mutex is held.
func (l *Locker[H]) reportGrant(c *call[H], t *turn[H], what locker.EventType) {
	if c.req.observed() {
		l.reportWaiting(c, "")
		t.began = l.now()
		l.report(c.req, t.event(what, t.began.Sub(c.began)))
	}
}

// reportFailed reports that a call has got no lock, also when a hook of the client's panics.
func (l *Locker[H]) reportFailed(c *call[H], err error) {
	if err == nil {
		err = errPanicked
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reportWaiting(c, "")
	l.report(c.req, locker.Event{Type: locker.EventFailed, Slot: -1, Took: l.now().Sub(c.began), Err: err})
}

var errPanicked = errors.New("the client has panicked")

// reportEnd reports that a turn has ended. An err that says that the lock was lost is what the
// store has answered to the release.
func (l *Locker[H]) reportEnd(t *turn[H], err error) {
	if !t.req.observed() {
		return
	}
	e := t.event(locker.EventReleased, l.now().Sub(t.began))
	if t.detached {
		e.Type = locker.EventDetached
	}
	if lost, ok := errors.AsType[*locker.LostError](err); ok {
		e.Type, e.Reason = locker.EventLost, lost.Reason
	}
	e.Err = err
	l.report(t.req, e)
}

// reportRenewal reports a renewal that failed because of err, or came late, to all who hold
// the lease. The Locker's mutex is held.
func (l *Locker[H]) reportRenewal(a *renewed[H], what locker.EventType, now Instant, err error) {
	for _, t := range a.what.turns() {
		e := t.event(what, now.Sub(a.since))
		e.Left, e.Err = t.lease.left(now), err
		l.report(t.req, e)
	}
}

// reportCleanUp reports how a clean-up has ended.
func (l *Locker[H]) reportCleanUp(req *request, began Instant, confirmed bool) {
	e := locker.Event{Type: locker.EventCleanedUp, Slot: -1, Took: l.now().Sub(began)}
	if !confirmed {
		e.Err = locker.ErrOutcomeUnknown
	}
	l.report(req, e)
}

// event is one about a turn.
func (t *turn[H]) event(what locker.EventType, took time.Duration) locker.Event {
	return locker.Event{Type: what, Token: t.Token(), SharedToken: t.SharedToken(), Slot: t.Slot(), Took: took}
}
