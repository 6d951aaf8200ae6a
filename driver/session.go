package driver

import (
	"context"
	"errors"
	"time"

	"github.com/lockstile/locker"
)

// Session is what attempts hang on where the store frees many of them together: a
// lease of etcd's, a session of ZooKeeper's, a connection. A backend makes one with
// [Locker.NewSession]. The Locker renews it like a lock, also while only waiters use
// it, and when it ends so do all its locks.
type Session interface {
	// Since is when the session's TTL counts from: before the last renewal that is
	// known to have worked was sent.
	Since() locker.Instant

	// Context ends with the session. Who waits on it waits in vain from then on.
	Context() context.Context

	// Join keeps the session from being ended for want of users until Leave, and
	// reports whether it lasts. An attempt joins before it sends anything, and
	// leaves when the Store's End is called for it.
	Join() bool
	Leave()

	// Lose ends the session at once, because the store says that it has.
	Lose(reason locker.Reason, cause error)

	// inner is what NewSession made, which a backend may have embedded in a type of its
	// own.
	inner() any
}

// idleTTLs is for how many TTLs a session is kept that nobody uses.
const idleTTLs = 4

// session is a lease that is nobody's turn, and on which others depend.
type session[H any] struct {
	lease[H]

	// The Locker's mutex guards what follows.
	ctx   context.Context
	end   context.CancelCauseFunc
	users int
	idle  locker.Instant // since when there are none
	held  map[*lease[H]]struct{}
}

// NewSession begins a session with a TTL that counts from since, read before it was
// asked for. The Store's Renew is called for h as for a lock, and Withdraw and End
// when it is over: because Renew said so, because validity has ended unrenewed, or
// because nobody has used it for four TTLs, or since Close. What hangs on it goes with
// it: Withdraw is not called for the locks that are lost with a session. A Store whose
// client keeps such a session alive removes what is Left in End. After Close there is
// none: what the store has of h is withdrawn, and the error is [locker.ErrClosed].
func (l *Locker[H]) NewSession(h H, ttl time.Duration, since locker.Instant) (Session, error) {
	req, err := locker.NewRequest("session", locker.WithTTL(ttl))
	if err != nil {
		return nil, err
	}
	s := &session[H]{lease: lease[H]{locker: l, h: h, req: req, uses: 1, index: -1}, held: make(map[*lease[H]]struct{})}
	s.session = s
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.turn = &turn[H]{lease: &s.lease, name: req.Name}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.idle = l.now()
	s.extend(since)
	l.leases.plan(&s.lease, since.Add(s.interval()))
	l.arm()
	if l.closing.Err() != nil {
		l.endUnused(s)
		return nil, locker.ErrClosed
	}
	return s, nil
}

func (s *session[H]) Since() locker.Instant {
	s.locker.mu.Lock()
	defer s.locker.mu.Unlock()
	return s.since
}

func (s *session[H]) Context() context.Context { return s.ctx }

func (s *session[H]) Join() bool {
	s.locker.mu.Lock()
	defer s.locker.mu.Unlock()
	if s.locker.look(s.turn) != nil {
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

// hubOf returns the session that a grant hangs on, or nil.
func (l *Locker[H]) hubOf(g Grant) *session[H] {
	if g.Session == nil {
		return nil
	}
	s, ok := g.Session.inner().(*session[H])
	if !ok || s.locker != l {
		panic(l.name + ": the grant hangs on another Locker's session")
	}
	return s
}

// take notes that a lease hangs on the session, which may have ended since the store
// granted it. The Locker's mutex is held.
func (s *session[H]) take(a *lease[H]) {
	s.held[a] = struct{}{}
	if lost := (*locker.LostError)(nil); s.over && errors.As(s.turn.err, &lost) {
		s.loseLocks(lost.Reason, lost.Cause)
	}
}

// errEnded is why waiting on a session ends: nobody has lost a lock by it.
var errEnded = errors.New("the session has ended")

// loseLocks ends all locks that hang on the session. The Locker's mutex is held.
func (s *session[H]) loseLocks(reason locker.Reason, cause error) {
	s.end(errEnded)
	for a := range s.held {
		s.locker.lose(a, reason, cause)
	}
}

// endUnused ends a session that nobody has used for long, or will any more. The
// Locker's mutex is held.
func (l *Locker[H]) endUnused(s *session[H]) {
	long := l.now().Sub(s.idle) >= idleTTLs*s.req.TTL
	if s.users == 0 && len(s.held) == 0 && (long || l.closing.Err() != nil) {
		l.lose(&s.lease, locker.Unlocked, nil)
	}
}

// endSessions ends those that nobody uses, when the Locker is closed.
func (l *Locker[H]) endSessions() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range append(leaseHeap[H](nil), l.leases.heap...) {
		if a.session != nil {
			l.endUnused(a.session)
		}
	}
}
