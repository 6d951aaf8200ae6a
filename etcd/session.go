package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
)

// idleTTLs is for how many TTLs a session is kept that nobody uses.
const idleTTLs = 4

// session is a lease of etcd's, shared by all locks and waiters of a Locker that
// have the same TTL. It is kept alive like a lock, by the Keeper, which also
// ends it by the local clock when the servers are silent.
type session struct {
	owner   *Locker
	id      clientv3.LeaseID
	base    string // the last part of its keys
	ttl     time.Duration
	mark    string
	hold    *locker.Lock
	waiting context.Context // ends with the session and with the Locker

	mu      sync.Mutex
	renewed locker.Instant // before the last renewal known to have worked was sent
	marks   int64          // mod revision of mark: requests sent with another one are void
	markAt  int64          // the store's revision when that was so
	users   int            // attempts, locks and clean-ups
	idle    locker.Instant // since when there are none
	ended   bool           // nobody may join
}

// slot is where the session of one TTL is kept; turn is a mutex that gives up
// with a context.
type slot struct {
	turn    chan struct{}
	session *session
}

// join gives the attempt a session, a new one if there is none that is alive.
func (l *Locker) join(ctx context.Context, a *attempt) error {
	slot := l.slot(a.req.TTL)
	select {
	case slot.turn <- struct{}{}:
		defer func() { <-slot.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.closing.Done():
		return locker.ErrClosed
	}
	if slot.session == nil || !slot.session.join() {
		s, err := l.open(ctx, a.req.TTL)
		if err != nil {
			return err
		}
		s.join()
		slot.session = s
	}
	a.on(slot.session)
	return nil
}

func (l *Locker) slot(ttl time.Duration) *slot {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sessions[ttl]
	if s == nil {
		s = &slot{turn: make(chan struct{}, 1)}
		l.sessions[ttl] = s
	}
	return s
}

func (l *Locker) open(ctx context.Context, ttl time.Duration) (*session, error) {
	req, err := locker.NewRequest("session", locker.WithTTL(ttl))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, askTime, errSilent)
	defer cancel()
	stop := context.AfterFunc(l.closing, cancel)
	defer stop()
	since := locker.Now()
	grant, err := l.client.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	s := &session{
		owner: l, id: grant.ID, base: baseOf(grant.ID), ttl: ttl,
		renewed: since, idle: since,
	}
	s.mark = l.markOf(s.base)
	granted := time.Duration(grant.TTL) * time.Second
	if granted != ttl {
		err = fmt.Errorf("ttl %v is under the limit of the servers, %v", ttl, granted)
	} else {
		err = req.CheckValidity(since)
	}
	if err != nil {
		return nil, errors.Join(err, s.revoke(ctx))
	}
	s.hold = locker.NewLock(locker.Hold{
		Request: req,
		Since:   since,
		Keeper:  l.keeper,
		Lease:   &lease{session: s},
		Release: s.revoke,
		Lost:    s.lost,
	})
	waiting, end := context.WithCancelCause(l.closing)
	context.AfterFunc(s.hold.Context(), func() { end(errSession) })
	s.waiting = waiting
	return s, nil
}

// join reports whether the session is alive, and if so keeps it from being ended
// for want of users.
func (s *session) join() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || (s.hold != nil && s.hold.Err() != nil) {
		return false
	}
	s.users++
	return true
}

func (s *session) leave() {
	s.mu.Lock()
	s.users--
	s.idle = locker.Now()
	s.mu.Unlock()
	if s.owner.closing.Err() != nil {
		s.endUnused(0)
	}
}

// endUnused revokes the session if nobody has used it for so long.
func (s *session) endUnused(idle time.Duration) {
	s.mu.Lock()
	end := !s.ended && s.users == 0 && locker.Now().Sub(s.idle) >= idle
	s.ended = s.ended || end
	s.mu.Unlock()
	if end {
		s.owner.chores.Go(func() {
			_ = s.hold.Unlock(context.Background()) // bounded; nobody renews it any more
		})
	}
}

// lost is called when the session has ended, by the servers' word or by the
// local clock.
func (s *session) lost() {
	for _, lock := range s.owner.heldOn(s) {
		lose(lock, s.hold.Err())
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	_ = s.revoke(ctx) // nobody renews it: without this, it ends by itself a little later
}

// lose ends a lock for the reason for which its session ended.
func lose(lock *locker.Lock, err error) {
	var lost *locker.LostError
	if errors.As(err, &lost) {
		locker.Lose(lock, lost.Reason, lost.Cause)
	}
}

// gone notes that the servers do not have the lease any more.
func (s *session) gone(cause error) { locker.Lose(s.hold, locker.SessionEnded, cause) }

func (s *session) revoke(ctx context.Context) error {
	_, err := s.owner.client.Revoke(ctx, s.id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}

// since is when validity counts from for whatever hangs on the session.
func (s *session) since() locker.Instant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewed
}

func (s *session) lastMark() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marks
}

// marked notes what the mark was at a revision of the store. It may be gone, by
// hand, so the latest word counts and not the greatest.
func (s *session) marked(at, revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at >= s.markAt {
		s.marks, s.markAt = revision, at
	}
}

// tryTTLs is into how many parts a TTL is cut for the first try of a renewal.
const tryTTLs = 8

// patience is how long a server is given to answer the first try of a renewal.
func (s *session) patience() time.Duration { return min(firstTry, s.ttl/tryTTLs) }

// keepAlive starts another TTL, and returns the instant before it asked for it.
func (s *session) keepAlive(ctx context.Context) (since locker.Instant, err error) {
	err = insist(ctx, s.patience(), func(ctx context.Context) error {
		since = locker.Now()
		return s.askForTTL(ctx)
	})
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewed = max(s.renewed, since)
	return since, nil
}

// askForTTL does what the client's KeepAliveOnce does, which asks again and again
// without a pause while servers refuse; the Keeper knows when to.
func (s *session) askForTTL(ctx context.Context) error {
	stream, err := clientv3.RetryLeaseClient(s.owner.client).LeaseKeepAlive(ctx)
	if err != nil {
		return clientv3.ContextError(ctx, err)
	}
	if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(s.id)}); err != nil {
		return clientv3.ContextError(ctx, err)
	}
	resp, err := stream.Recv()
	switch {
	case err != nil:
		return clientv3.ContextError(ctx, err)
	case resp.TTL <= 0:
		return rpctypes.ErrLeaseNotFound
	case time.Duration(resp.TTL)*time.Second < s.ttl:
		return fmt.Errorf("the servers have renewed a lease of %v for %ds only", s.ttl, resp.TTL)
	}
	return nil
}
