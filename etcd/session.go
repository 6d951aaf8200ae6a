package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// mostMarks is how many marks of clean-ups a session may have and still get new
// attempts: marks end with their session.
const mostMarks = 100

// session is a lease of etcd's, which all locks and waiters of a Locker share that
// have the same TTL.
type session struct {
	driver.Session
	id    clientv3.LeaseID
	ttl   time.Duration
	marks atomic.Int32 // of clean-ups that hang on it

	renewals chan *stream // nil in it if there is none yet; it is empty while a renewal uses it
	renewed  atomic.Int64 // a [driver.Instant], before the last renewal that worked was sent
}

// join has the attempt hang on a session that lasts. What it has on one that is over is
// removed first: the servers may keep that for longer.
func (s *store) join(ctx context.Context, a *attempt) error {
	if a.session != nil && a.session.Context().Err() == nil {
		return nil
	}
	if err := s.Withdraw(ctx, a); err != nil {
		return err
	}
	n, err := s.sessions.Join(ctx, a.req, a.req.TTL)
	if err == nil {
		a.session = n
		s.rename(a)
	}
	return err
}

func (s *store) open(ttl time.Duration, own driver.Session) (n *session, _ time.Duration, since driver.Instant, err error) {
	ctx, cancel := bounded(context.Background())
	defer cancel()
	since = driver.Now()
	resp, err := s.client.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return nil, 0, 0, s.explain(ctx, err)
	}
	if granted := time.Duration(resp.TTL) * time.Second; granted != ttl {
		err = driver.Unfit(fmt.Errorf("ttl %v is under the limit of the servers, %v", ttl, granted))
		return nil, 0, 0, errors.Join(err, s.revoke(ctx, resp.ID))
	}
	n = &session{Session: own, id: resp.ID, ttl: ttl, renewals: make(chan *stream, 1)}
	n.renewals <- nil
	context.AfterFunc(own.Context(), n.endStream)
	return n, ttl, since, nil
}

// end revokes the lease.
func (s *store) end(ctx context.Context, n *session) error { return s.revoke(ctx, n.id) }

// endStream ends the stream that no renewal uses.
func (n *session) endStream() {
	select {
	case r := <-n.renewals:
		if r != nil {
			r.end()
		}
		n.renewals <- nil
	default:
	}
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
	_, err := insist(ctx, n.patience(), func(ctx context.Context) (struct{}, error) { return struct{}{}, s.askForTTL(ctx, n) })
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return &locker.LostError{Reason: locker.ReasonSessionEnded, Cause: err}
	}
	return err
}
