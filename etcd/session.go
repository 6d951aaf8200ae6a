package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker/driver"
)

const (
	// mostSessions bounds the sessions that one call goes through because they end before
	// it can use them.
	mostSessions = 3

	// mostMarks is how many marks of clean-ups a session may have and still get new
	// attempts: marks end with their session.
	mostMarks = 100
)

// session is a lease of etcd's, which all locks and waiters of a Locker share that
// have the same TTL.
type session struct {
	driver.Session
	id    clientv3.LeaseID
	ttl   time.Duration
	marks atomic.Int32 // of clean-ups that hang on it

	renewals chan *stream // nil in it if there is none yet; it is empty while a renewal uses it
	renewed  atomic.Int64 // a [driver.Instant], before the last renewal that worked was sent

	opened chan struct{} // closed when the lease is there, or err says why not
	err    error
}

// join has the attempt hang on a session that lasts. What it has on one that is over is
// removed first: the servers may keep that for longer.
func (s *store) join(ctx context.Context, a *attempt) error {
	if a.session != nil {
		if a.session.Context().Err() == nil {
			return nil
		}
		if a.left() {
			if err := s.Withdraw(ctx, a); err != nil {
				return err
			}
		}
		a.session = nil // it counts nobody any more
	}
	for range mostSessions {
		n := s.current(a.req.TTL)
		select {
		case <-n.opened:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		switch {
		case n.err != nil:
			return n.err
		case n.Join():
			a.session = n
			s.rename(a)
			return nil
		}
	}
	return fmt.Errorf("%d leases in a row ended before they could be used", mostSessions)
}

// current returns the session for new attempts with a TTL. It may just be opening: that
// is nobody's request, for all would go without a lease when one caller's context ends.
func (s *store) current(ttl time.Duration) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.sessions[ttl]
	if n == nil || n.spent() {
		n = &session{ttl: ttl, renewals: make(chan *stream, 1), opened: make(chan struct{})}
		n.renewals <- nil
		s.sessions[ttl] = n
		s.locks.Go(func() {
			defer close(n.opened)
			n.err = driver.Caught(func() error { return s.open(n) })
		})
	}
	return n
}

// spent reports whether new attempts need another session.
func (n *session) spent() bool {
	select {
	case <-n.opened:
		return n.err != nil || n.Context().Err() != nil || n.marks.Load() >= mostMarks
	default:
		return false
	}
}

func (s *store) open(n *session) error {
	ctx, cancel := bounded(context.Background())
	defer cancel()
	since := driver.Now()
	resp, err := s.client.Grant(ctx, int64(n.ttl/time.Second))
	if err != nil {
		return s.explain(ctx, err)
	}
	n.id = resp.ID
	if granted := time.Duration(resp.TTL) * time.Second; granted != n.ttl {
		err = driver.Unfit(fmt.Errorf("ttl %v is under the limit of the servers, %v", n.ttl, granted))
		return errors.Join(err, s.revoke(ctx, n.id))
	}
	n.Session, err = s.locks.NewSession(&attempt{session: n, unsure: true}, n.ttl, since)
	return err
}

// revoke ends a lease, and with it everything that hangs on it.
func (s *store) revoke(ctx context.Context, id clientv3.LeaseID) error {
	_, err := s.client.Revoke(ctx, id)
	if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return s.explain(ctx, err)
	}
	return nil
}

// tryTTLs is into how many parts a TTL is cut for the first try of a renewal.
const tryTTLs = 8

// patience is how long a server is given to answer the first try of a renewal.
func (n *session) patience() time.Duration { return min(firstTry, n.ttl/tryTTLs) }

// keepAlive starts another TTL.
func (s *store) keepAlive(ctx context.Context, n *session) error {
	return insist(ctx, n.patience(), func(ctx context.Context) error { return s.askForTTL(ctx, n) })
}
