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

// session is one session of the zk client, on which attempts hang. ([Session] follows the
// client from one to the next.) It has an ephemeral node of its own, and every request
// that makes a place in a queue checks that this node is there. For the zk client keeps a
// request that it could not send, also until after the session has ended, and sends it in
// the next one: a place would come of it that nobody knows of, in a session that lives on.
type session struct {
	driver.Session
	id      int64 // of the zk client's session
	timeout time.Duration
	path    string // of its node

	opened chan struct{} // closed when the node is there, or err says why not
	err    error
}

// believable is how much of the session timeout T can be relied on after a renewal that
// was answered, counted from before it was sent.
//
// The leader ends a session no sooner than T after it has last heard of it. A
// client's signs of life, renewals included, go to the server that the client is
// connected to. That one passes them on when the leader asks it, twice a tick. If
// it stops in between, all signs since the leader last asked are lost: those
// of half a tick. The sign before may be a ping, and pings come every T/3. So when
// the server stops right after the renewal,
//
//	the leader has last asked   tick/2 before the renewal, at most
//	and heard of a sign that is    T/3 older than that, at most
//	so the session lives for       T - T/3 - tick/2 after the renewal, at least
//
// Nobody tells a client what a tick is. But servers grant no session under two ticks, so
// tick/2 is T/4 at most, which leaves T*5/12.
func believable(t time.Duration) time.Duration { return (t * 5 / 12).Truncate(time.Millisecond) }

// lasts reports whether the session can be believed in. That the servers have ended it
// is found by the next request on it, which checks its node.
func (n *session) lasts() bool {
	if n == nil || !n.Join() {
		return false
	}
	n.Leave()
	return true
}

// join has a hang on the session that the client has now.
func (s *store) join(ctx context.Context, a *attempt) error {
	if a.session.lasts() {
		return nil
	}
	a.session = nil // it is over, and counts nobody any more
	n := s.current()
	select {
	case <-n.opened:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	switch {
	case n.err != nil:
		return n.err
	case !n.Join():
		return errEnded
	}
	a.session = n
	if err := fits(a.req, n.timeout); err != nil {
		return driver.Unfit(err)
	}
	return nil
}

// current returns the session for new attempts. It may just be opening: that is nobody's
// request, for callers with little patience would else get none, and each leave a node
// that nobody knows of.
func (s *store) current() *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest == nil || s.newest.spent() {
		n := &session{opened: make(chan struct{})}
		s.newest = n
		s.locks.Go(func() {
			defer close(n.opened)
			ctx, cancel := s.bounded(context.Background())
			defer cancel()
			n.err = s.open(ctx, n)
		})
	}
	return s.newest
}

// spent reports whether new attempts need another session.
func (n *session) spent() bool {
	select {
	case <-n.opened:
		return n.err != nil || !n.lasts()
	default:
		return false
	}
}

// open makes the session's node. A percent sign keeps that apart from every escaped name.
// One whose reply is lost is harmless, and ends with the session.
func (s *store) open(ctx context.Context, n *session) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.locks.Closing(), func() { cancel(locker.ErrClosed) })() // the first connection may take long
	if s.zk.SessionID() == 0 {
		if err := zkclient.Act(ctx, s.zk, func() error { _, _, err := s.zk.Exists(s.opts.Base); return err }); err != nil {
			return err
		}
	}
	n.path, n.id, n.timeout = s.opts.Base+"/%session-"+newGUID(), s.zk.SessionID(), s.opts.Session.Timeout()
	if n.timeout == 0 {
		return errors.New("the connection was not made with the Dial of Options.Session")
	}
	var since driver.Instant
	put := func() error {
		since = driver.Now()
		return zkclient.Act(ctx, s.zk, func() error {
			_, err := s.zk.Create(n.path, nil, zk.FlagEphemeral, s.opts.ACL)
			return err
		})
	}
	err := put()
	if errors.Is(err, zk.ErrNoNode) {
		if err = s.makeBase(ctx); err == nil {
			err = put()
		}
	}
	switch {
	case err != nil:
		return err
	case n.id != s.zk.SessionID(): // the node may be in either
		return errEnded
	}
	own := &attempt{session: n, path: n.path, madeIn: n.id, found: true}
	if n.Session, err = s.locks.NewSession(own, believable(n.timeout), since); err != nil {
		return fmt.Errorf("a session timeout of %v: %w", n.timeout, err)
	}
	s.opts.Session.note(n)
	return nil
}

// makeBase makes a base that stays, unlike the nodes of names: its ACL says who may make
// locks below it, also when nobody has locked for a while.
func (s *store) makeBase(ctx context.Context) error {
	err := s.zk.WithParents(ctx, s.opts.Base, func() error {
		return zkclient.Act(ctx, s.zk, func() error {
			_, err := s.zk.Create(s.opts.Base, nil, 0, s.opts.ACL)
			return err
		})
	})
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return fmt.Errorf("making %q: %w", s.opts.Base, err)
	}
	return nil
}
