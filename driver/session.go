package driver

import (
	"context"
	"errors"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/contract"
)

// Session is what attempts depend on where the store frees many of them together: a
// lease of etcd, a session of ZooKeeper, a connection. A backend makes one with
// [Locker.NewSession]. The Locker renews it like a lock, also while only waiters use
// it, and when it ends so do all its locks.
type Session interface {
	// Since is what the session's validity counts from, on the Locker's clock: the
	// instant before the last renewal that is known to have worked was sent.
	Since() Instant

	// Context ends with the session. No waiter on it will be granted a lock after that.
	Context() context.Context

	// Join counts a user, for whom the session is kept until Leave, and reports false
	// if the session has ended. An attempt joins before it sends anything, and leaves
	// when the Store's End is called for it.
	Join() bool
	Leave()

	// Lose ends the session and its locks at once, because the store has ended it.
	Lose(reason locker.Reason, cause error)

	// inner is what NewSession made, which a backend may have embedded in a type of its
	// own.
	inner() any
}

// idleTTLs is for how many TTLs a session without users is kept.
const idleTTLs = 4

// session is a lease without turns of goroutines, on which other leases depend.
type session[H any] struct {
	lease[H]

	// The Locker's mutex guards what follows.
	ctx    context.Context
	cancel context.CancelCauseFunc
	users  int
	idle   Instant                // since when there are none
	held   map[*lease[H]]struct{} // that depend on it
}

// NewSession begins a session with a TTL that counts from since, read on the Locker's
// clock before the session was asked for. The Store's Renew is called for h as for a
// lock, and Withdraw and End when the session ends: because Renew said so, because its
// validity has ended, because nobody has used it for four TTLs, or nobody uses it after
// Close. Its locks end in the store together with it, so Withdraw is not called for them;
// a Store whose client keeps the session alive removes what is left in End. If the Locker
// is closed already, the error is [locker.ErrClosed], and h is withdrawn.
func (l *Locker[H]) NewSession(h H, ttl time.Duration, since Instant) (Session, error) {
	settings, err := locker.ParseOptions(contract.Key{}, nil, "session", []locker.Option{locker.WithTTL(ttl)})
	if err != nil {
		return nil, err
	}
	req := newRequest("session", settings)
	s := &session[H]{lease: lease[H]{locker: l, h: h, req: req, uses: 1, index: -1, doubt: doubt{there: true}}, held: make(map[*lease[H]]struct{})}
	s.self = s
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.turn = &turn[H]{lease: &s.lease, req: req}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.idle = l.now()
	s.extend(since)
	l.schedule.plan(&s.lease, since.Add(s.interval()))
	l.arm()
	if l.closing.Err() != nil {
		l.endUnused(s)
		return nil, locker.ErrClosed
	}
	return s, nil
}

func (s *session[H]) Since() Instant {
	s.locker.mu.Lock()
	defer s.locker.mu.Unlock()
	return s.since
}

func (s *session[H]) Context() context.Context { return s.ctx }

func (s *session[H]) Join() bool {
	s.locker.mu.Lock()
	defer s.locker.mu.Unlock()
	if s.locker.checkHeld(s.turn) != nil {
		return false
	}
	s.users++
	return true
}

func (s *session[H]) Leave() {
	l := s.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	s.users--
	s.idle = l.now()
	l.endUnused(s)
}

func (s *session[H]) Lose(reason locker.Reason, cause error) {
	s.locker.mu.Lock()
	defer s.locker.mu.Unlock()
	s.locker.lose(&s.lease, reason, cause)
}

func (s *session[H]) inner() any { return s }

// sessionOf returns the session that a grant depends on, or nil.
func (l *Locker[H]) sessionOf(g Grant) *session[H] {
	if g.Session == nil {
		return nil
	}
	s, ok := g.Session.inner().(*session[H])
	if !ok || s.locker != l {
		panic(l.name + ": the grant depends on another Locker's session")
	}
	return s
}

// add notes that a lease depends on the session, which may have ended since the store
// granted the lease. The Locker's mutex is held.
func (s *session[H]) add(a *lease[H]) {
	s.held[a] = struct{}{}
	if lost := (*locker.LostError)(nil); s.over && errors.As(s.turn.err, &lost) {
		s.loseLocks(lost.Reason, lost.Cause)
	}
}

// errEnded ends waiting on a session. It is no ErrLost: a waiter has lost no lock.
var errEnded = errors.New("the session has ended")

// loseLocks ends all locks that depend on the session. The Locker's mutex is held.
func (s *session[H]) loseLocks(reason locker.Reason, cause error) {
	s.cancel(errEnded)
	for a := range s.held {
		s.locker.lose(a, reason, cause)
	}
}

// endUnused ends a session that nobody uses, if that has been so for long or the Locker
// is closed. The Locker's mutex is held.
func (l *Locker[H]) endUnused(s *session[H]) {
	long := l.now().Sub(s.idle) >= idleTTLs*s.req.TTL
	if s.users == 0 && len(s.held) == 0 && (long || l.closing.Err() != nil) {
		l.lose(&s.lease, locker.ReasonSessionEnded, nil)
	}
}

// endSessions ends the sessions that nobody uses, when the Locker is closed.
func (l *Locker[H]) endSessions() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range append(leaseHeap[H](nil), l.schedule.heap...) {
		if a.self != nil {
			l.endUnused(a.self)
		}
	}
}
