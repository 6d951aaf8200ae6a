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

// join has a hang on the session that the client has now. That the servers have ended one that is
// believed in is found by the next request on it, which checks its node.
func (s *store) join(ctx context.Context, a *attempt) error {
	if a.session != nil && a.session.Lasts() {
		return nil
	}
	n, err := s.sessions.Join(ctx, a.req, struct{}{})
	if err != nil {
		return err
	}
	a.session = n
	if err := fits(a.req, n.timeout); err != nil {
		return driver.Unfit(err)
	}
	return nil
}

// open makes the session's node. A percent sign keeps that apart from every escaped name.
// One whose reply is lost is harmless, and ends with the session.
func (s *store) open(_ struct{}, own driver.Session) (*session, time.Duration, driver.Instant, error) {
	ctx, stop := s.bounded(context.Background())
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.locks.Closing(), func() { cancel(locker.ErrClosed) })() // the first connection may take long
	if s.zk.SessionID() == 0 {
		if err := zkclient.Act(ctx, s.zk, func() error { _, _, err := s.zk.Exists(s.opts.Base); return err }); err != nil {
			return nil, 0, 0, err
		}
	}
	n := &session{Session: own, path: s.opts.Base + "/%session-" + newGUID(), id: s.zk.SessionID(), timeout: s.opts.Session.Timeout()}
	if n.timeout == 0 {
		return nil, 0, 0, errors.New("the connection was not made with the Dial of Options.Session")
	}
	var since driver.Instant
	put := func() error { // the call in it may go on for longer than open, and reads n
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
	if err == nil && n.id != s.zk.SessionID() { // the node may be in either
		err = errEnded
	}
	if err != nil {
		return nil, 0, 0, err
	}
	s.opts.Session.note(n)
	return n, believable(n.timeout), since, nil
}

// renewSession looks whether the session's node is there, which is a sign of life.
func (s *store) renewSession(ctx context.Context, n *session) error {
	if n.id != s.zk.SessionID() {
		return &locker.LostError{Reason: locker.ReasonSessionEnded}
	}
	_, _, err := s.renewal.Multi(ctx, &zk.CheckVersionRequest{Path: n.path, Version: -1})
	if errors.Is(err, zk.ErrNoNode) {
		return &locker.LostError{Reason: locker.ReasonSessionEnded}
	}
	return err
}

// endSession removes the session's node, so that what is on its way makes no place any more.
func (s *store) endSession(ctx context.Context, n *session) error {
	if n.id != s.zk.SessionID() {
		return nil
	}
	if err := s.zk.Remove(ctx, n.path); !errors.Is(err, zk.ErrNoNode) {
		return err
	}
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
