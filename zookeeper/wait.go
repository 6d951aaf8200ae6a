package zookeeper

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/zkclient"
)

// look lists the queue.
//
// A list with our place in it and nobody ahead is a grant, whichever server it
// comes from and however old it is. It shows a state after the place was made,
// for the place is in it; places ahead can only go, never come; so from that
// state on the lock is ours for as long as the place is there. That is as long
// as the session, in which nobody believes for longer than the leader is sure to keep it.
// When the event came, and from which server, plays no part. A place that somebody
// deletes after the list was read is found missing by the next renewal, as any holder's.
func (s *store) look(ctx context.Context, a *attempt) (ahead string, err error) {
	a.since = driver.Now()
	children, err := s.children(ctx, a.queue)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return "", err
	}
	if !slices.Contains(children, a.node()) {
		a.zxid = 0 // should the list be wrong, the node goes before the next place is taken
		return "", errGone
	}
	_, _, ahead = inQueue(children, a.node())
	return ahead, nil
}

// children lists a queue.
func (s *store) children(ctx context.Context, queue string) ([]string, error) {
	return zkclient.Call(ctx, s.zk, func() ([]string, error) {
		children, _, err := s.zk.Children(queue)
		return children, err
	})
}

// latest lists a queue as it is now: the server catches up first. One that the
// client has changed to may lag behind the one that carried its last request out.
func (s *store) latest(ctx context.Context, queue string) ([]string, error) {
	err := zkclient.Act(ctx, s.zk, func() error { _, err := s.zk.Sync(queue); return err })
	if err != nil {
		return nil, err
	}
	return s.children(ctx, queue)
}

// waitFor returns when the node ahead has gone or changed, or when it is time to
// look without having been told: the zk client sets its watches again after a broken
// connection, and drops them if that fails.
func (s *store) waitFor(ctx context.Context, a *attempt, ahead string) error {
	gone, err := s.watch(ctx, ahead)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil
	case err != nil:
		return err
	}
	timer := time.NewTimer(max(a.session.timeout, time.Second))
	defer timer.Stop()
	select {
	case <-gone:
	case <-timer.C:
	case <-a.session.Context().Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// watch returns a channel that is closed when the node at path has gone or changed. The zk
// client cannot take a watch back. So the watch of a waiter that has left is kept for the
// next that waits for the same node: a hundred attempts that give up leave one watch, not
// a hundred.
func (s *store) watch(ctx context.Context, path string) (<-chan struct{}, error) {
	if gone, ok := s.watches.Load(path); ok {
		return gone.(chan struct{}), nil
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	return zkclient.Call(ctx, s.zk, func() (<-chan struct{}, error) {
		_, _, events, err := s.zk.GetW(path)
		if err != nil {
			return nil, err
		}
		gone := make(chan struct{})
		s.watches.Store(path, gone)
		go func() { // ends with the node, or with the zk client's session
			<-events
			s.watches.CompareAndDelete(path, gone)
			close(gone)
		}()
		return gone, nil
	})
}
