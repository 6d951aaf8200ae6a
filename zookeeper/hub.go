package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/zkclient"
)

// hub is a session of the zk client's, on which attempts hang. Its anchor is an ephemeral
// node of its own. Every request that makes a place in a queue checks that it is there.
// For the zk client keeps a request that it could not send, also until after the session
// has ended, and sends it in the next: a place would come of it that nobody
// knows of, in a session that lives on.
type hub struct {
	driver.Session
	id      int64 // of the zk client's session
	timeout time.Duration
	anchor  string // the path
}

// believable is what of the session timeout T can be relied on after a renewal
// that was answered.
//
// The leader ends a session no sooner than T after it has last heard of it. A
// client's signs of life, renewals included, go to the server that the client is
// connected to. That one passes them on when the leader asks it, twice a tick; if
// it stops in between, all signs since the leader has last asked are lost: those
// of half a tick. The sign before may be a ping, and pings come every T/3. So when
// the server stops right after the renewal,
//
//	the leader has last asked   tick/2 before the renewal, at most
//	and heard of a sign that is    T/3 older than that, at most
//	so the session lives for       T - T/3 - tick/2 after the renewal, at least
//
// Nobody tells a client what a tick is, but that servers grant no session under
// two of them, so tick/2 is T/4 at most, which leaves T*5/12.
func believable(t time.Duration) time.Duration { return (t * 5 / 12).Truncate(time.Millisecond) }

// lasts reports whether the session goes on, as far as the client knows, and can be
// believed in.
func (s *store) lasts(h *hub) bool {
	if h == nil || h.id != s.zk.SessionID() || !h.Join() {
		return false
	}
	h.Leave()
	return true
}

// join has a hang on the session that the client has now.
func (s *store) join(ctx context.Context, a *attempt) error {
	if s.lasts(a.hub) {
		return nil
	}
	if a.hub != nil {
		a.hub.Leave()
		a.hub = nil
	}
	h, err := s.session(ctx)
	switch {
	case err != nil:
		return err
	case !h.Join():
		return errAnchor
	}
	a.hub = h
	if err := fits(a.req, h.timeout); err != nil {
		return driver.Refused(err)
	}
	return nil
}

// session returns the client's session. One goroutine makes the anchor where there is
// none, the others wait for it.
func (s *store) session(ctx context.Context) (*hub, error) {
	if h := s.hub.Load(); s.lasts(h) {
		return h, nil
	}
	select {
	case s.making <- struct{}{}:
		defer func() { <-s.making }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	h := s.hub.Load()
	if s.lasts(h) {
		return h, nil
	}
	if h != nil {
		h.Lose(locker.SessionEnded, nil) // if it has not ended otherwise
	}
	h, err := s.newHub(ctx)
	if err == nil {
		s.hub.Store(h)
	}
	return h, err
}

// newHub makes an anchor. Its percent sign keeps it apart from every escaped
// name. One whose reply is lost is harmless, and ends with the session.
func (s *store) newHub(ctx context.Context) (*hub, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.locks.Closing(), func() { cancel(locker.ErrClosed) })() // the first connection may take long
	if s.zk.SessionID() == 0 {
		if err := zkclient.Act(ctx, s.zk, func() error { _, _, err := s.zk.Exists(s.opts.Base); return err }); err != nil {
			return nil, s.opts.Session.refused(err)
		}
	}
	h := &hub{anchor: s.opts.Base + "/%session-" + newGUID(), id: s.zk.SessionID(), timeout: s.opts.Session.Timeout()}
	if h.timeout == 0 {
		return nil, errors.New("the connection was not made with the Dial of Options.Session")
	}
	var since locker.Instant
	err := s.zk.WithParents(ctx, h.anchor, func() error {
		since = locker.Now()
		return zkclient.Act(ctx, s.zk, func() error {
			_, err := s.zk.Create(h.anchor, nil, zk.FlagEphemeral, s.opts.ACL)
			return err
		})
	})
	switch {
	case err != nil:
		return nil, s.opts.Session.refused(err)
	case h.id != s.zk.SessionID(): // it may be of either
		return nil, errAnchor
	}
	own := &attempt{hub: h, path: h.anchor, session: h.id, found: true}
	if h.Session, err = s.locks.NewSession(own, believable(h.timeout), since); err != nil {
		return nil, fmt.Errorf("a session timeout of %v: %w", h.timeout, err)
	}
	s.opts.Session.note(h)
	return h, nil
}
