package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/zkclient"
)

// approach reports who comes right before a, "" if nobody does: then the lock is a's.
// It takes a place if a has none, and if it is to ask only once, leaves the place again
// where somebody is ahead.
func (s *store) approach(ctx context.Context, a *attempt, once bool) (ahead string, err error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if ahead, err := s.enter(ctx, a); ahead != "" || err != nil || a.alone {
		return ahead, err
	}
	ahead, err = s.look(ctx, a)
	if once && ahead != "" {
		_ = s.Withdraw(ctx, a) // else the Locker does it
	}
	if errors.Is(err, errGone) { // in case that this was an error: an orphan would block the queue
		err = cmp.Or(s.Withdraw(ctx, a), errGone)
	}
	return ahead, err
}

// bounded returns a context that ends when the servers have been silent for as long as a
// session may be.
func (s *store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	patience := s.opts.Session.Timeout()
	if patience == 0 {
		patience = firstAnswer
	}
	return context.WithTimeoutCause(ctx, patience, errSilent)
}

// firstAnswer is how long the first connection may take.
const firstAnswer = 10 * time.Second

var errSilent = errors.New("the servers have not answered for as long as a session lasts")

// look lists the queue.
//
// A list with our place in it and nobody ahead is a grant, whichever server it
// comes from and however old it is. It shows a state after the place was made,
// for the place is in it; places ahead can only go, never come; so from that
// state on the lock is ours for as long as the place is there. That is as long
// as the session, in which nobody believes for longer than the leader is sure to keep it.
// When the event came, and from whom, plays no part. A
// place that somebody deletes after the list was read is found missing by the
// next renewal, as any holder's is.
func (s *store) look(ctx context.Context, a *attempt) (ahead string, err error) {
	a.since = locker.Now()
	children, err := s.children(ctx, a.queue)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return "", err
	}
	if !slices.Contains(children, a.node()) {
		return "", errGone
	}
	_, _, ahead = inLine(children, a.node())
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
	events, err := s.watch(ctx, ahead)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil
	case err != nil:
		return err
	}
	timer := time.NewTimer(max(a.hub.timeout, time.Second))
	defer timer.Stop()
	select {
	case <-events:
		s.watches.drop(ahead)
	case <-timer.C:
	case <-a.hub.Context().Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

func (s *store) watch(ctx context.Context, path string) (<-chan zk.Event, error) {
	if events := s.watches.of(path); events != nil {
		return events, nil
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	return zkclient.Call(ctx, s.zk, func() (<-chan zk.Event, error) {
		_, _, events, err := s.zk.GetW(path)
		if err == nil {
			s.watches.keep(path, events)
		}
		return events, err
	})
}

// watches are those of the zk client. It cannot take one back, so one that a waiter has
// left is kept for the next who waits for the same node: a hundred attempts with a
// short patience leave one watch, not a hundred. A channel has one event, and is closed.
type watches struct {
	mu   sync.Mutex
	live map[string]<-chan zk.Event
	most int // when to look for those that have fired while nobody waited
}

func (w *watches) of(path string) <-chan zk.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.live[path]
}

func (w *watches) drop(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.live, path)
}

func (w *watches) keep(path string, events <-chan zk.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.live) >= w.most {
		for path, events := range w.live {
			select {
			case <-events:
				delete(w.live, path)
			default:
			}
		}
		w.most = 2*len(w.live) + 16
	}
	w.live[path] = events
}
