package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockstile/locker"
)

// Session is what attempts hang on where the store frees many of them together: a lease of
// etcd, a session of ZooKeeper. A [Pool] makes it. The Locker renews it while locks or waiters
// hang on it; no lock on it is valid for longer, and when it ends, so do all of them.
type Session interface {
	// Context ends with the session. No waiter on it will be granted a lock after that.
	Context() context.Context

	// Lasts reads the clock, and reports whether the session can still be believed in.
	Lasts() bool

	// Lose ends the session and its locks at once, because the store has ended it.
	Lose(reason locker.Reason, cause error)
}

// Sessions says how the sessions of a [Pool] are opened, renewed and ended in the store. An S is
// what the backend knows of one, with its [Session].
type Sessions[K comparable, S any] struct {
	// Open opens a session for a key. Its validity is ttl, and counts from since, which was read
	// on the Locker's clock before the session was asked for. It is nobody's request, for all
	// would go without a session when one caller's context ends: Open bounds it by itself.
	Open func(key K, own Session) (s S, ttl time.Duration, since Instant, err error)

	// Renew asks for another TTL. It keeps the rules of [Store]'s Renew, and is under way
	// beside that.
	Renew func(ctx context.Context, s S) error

	// End ends the session in the store: because nobody has used it for four TTLs, because its
	// validity has ended, or because nobody uses it after Close. Like Withdraw it is called until it
	// works, for ten seconds at most, or with Outlived until Close.
	End func(ctx context.Context, s S) error

	// Outlived says that what hangs on a session may stay in the store after its End, for the
	// client keeps something alive that others share. It is withdrawn one by one then.
	Outlived bool
}

// Pool has the sessions of a Locker, the newest for each key, such as a TTL. It is safe for
// concurrent use.
type Pool[H any, K comparable, S any] struct {
	locks *Locker[H]
	how   Sessions[K, S]

	mu     sync.Mutex
	newest map[K]*opening[H, S]
}

// opening is a session that is opened, or open.
type opening[H, S any] struct {
	own    *session[H]
	opened chan struct{} // closed when what follows is set
	s      S
	err    error
}

// NewPool returns a Pool without sessions.
func NewPool[H any, K comparable, S any](l *Locker[H], how Sessions[K, S]) *Pool[H, K, S] {
	return &Pool[H, K, S]{locks: l, how: how, newest: make(map[K]*opening[H, S])}
}

// mostSessions bounds the sessions that one call goes through because they end before
// it can use them.
const mostSessions = 3

// Join has the attempt for req hang on a session for key that lasts, until the attempt ends or
// joins another. A Store calls it in Acquire before it sends anything, unless the attempt
// hangs on a session that lasts.
func (p *Pool[H, K, S]) Join(ctx context.Context, req *Request, key K) (s S, err error) {
	for range mostSessions {
		o := p.current(key)
		select {
		case <-o.opened:
		case <-ctx.Done():
			return s, context.Cause(ctx)
		}
		switch {
		case errors.Is(o.err, errEnded):
		case o.err != nil:
			return s, o.err
		case o.own.join():
			req.leave() // not before: without another, what the attempt has left is as it was
			req.session = o.own
			return o.s, nil
		}
	}
	return s, fmt.Errorf("%d sessions in a row ended before they could be used", mostSessions)
}

// Retire has the attempts that join from now on hang on another session than s.
func (p *Pool[H, K, S]) Retire(key K, own Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o := p.newest[key]; o != nil && Session(o.own) == own {
		delete(p.newest, key)
	}
}

// current returns the newest session for key, or another if that has ended. It may just be opening.
func (p *Pool[H, K, S]) current(key K) *opening[H, S] {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.newest[key]
	if o == nil || o.spent() {
		o = &opening[H, S]{own: newSession(p.locks, p.how.Outlived), opened: make(chan struct{})}
		p.newest[key] = o
		p.locks.background.run(func() {
			defer close(o.opened)
			o.err = Caught(func() error { return p.open(key, o) })
		})
	}
	return o
}

// spent reports whether new attempts need another session.
func (o *opening[H, S]) spent() bool {
	select {
	case <-o.opened:
		return o.err != nil || !o.own.Lasts()
	default:
		return false
	}
}

func (p *Pool[H, K, S]) open(key K, o *opening[H, S]) error {
	s, ttl, since, err := p.how.Open(key, o.own)
	if err != nil {
		return err
	}
	o.s = s
	return o.own.begin(ttl, since,
		func(ctx context.Context) error { return p.how.Renew(ctx, s) },
		func(ctx context.Context) error { return p.how.End(ctx, s) })
}

// idleTTLs is for how many TTLs a session without users is kept.
const idleTTLs = 4

// session is the Locker's side of a [Session]. The Locker's mutex guards what may change.
type session[H any] struct {
	renewed[H]
	renew, remove func(ctx context.Context) error
	outlived      bool

	ctx    context.Context
	cancel context.CancelCauseFunc
	why    *locker.LostError      // of its end
	users  int                    // attempts that hang on it, also those that have the lock
	idle   Instant                // since when there are none
	held   map[*lease[H]]struct{} // that depend on it
}

func newSession[H any](l *Locker[H], outlived bool) *session[H] {
	s := &session[H]{renewed: renewed[H]{locker: l, renews: true, uses: 1, index: -1}, outlived: outlived, held: make(map[*lease[H]]struct{})}
	s.what = s
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// begin has the session renewed from now on. If it has ended already, or the Locker was
// closed, it is removed.
func (s *session[H]) begin(ttl time.Duration, since Instant, renew, remove func(context.Context) error) error {
	l := s.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	s.ttl, s.renew, s.remove, s.there = ttl, renew, remove, true
	if s.over {
		s.uses++
		l.cleanUp(&s.renewed)
		return errEnded
	}
	s.idle = l.now()
	s.extend(since)
	l.watch(&s.renewed)
	if l.closing.Err() != nil {
		l.endUnused(s)
		return locker.ErrClosed
	}
	return nil
}

func (s *session[H]) Context() context.Context { return s.ctx }

func (s *session[H]) Lasts() bool {
	s.locker.mu.Lock()
	defer s.locker.mu.Unlock()
	return s.lasts()
}

// lasts is Lasts. The Locker's mutex is held.
func (s *session[H]) lasts() bool {
	s.locker.expire(&s.renewed, s.locker.now())
	return !s.over
}

func (s *session[H]) Lose(reason locker.Reason, cause error) {
	s.locker.mu.Lock()
	defer s.locker.mu.Unlock()
	s.locker.lose(&s.renewed, reason, cause)
}

// join counts a user, for whom the session is kept until it leaves, and reports false if the
// session has ended.
func (s *session[H]) join() bool {
	s.locker.mu.Lock()
	defer s.locker.mu.Unlock()
	if !s.lasts() {
		return false
	}
	s.users++
	return true
}

func (s *session[H]) leave() {
	l := s.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	s.users--
	s.idle = l.now()
	l.endUnused(s)
}

// frees reports whether the store has freed, or will, what depends on the session.
func (s *session[H]) frees() bool { return s.ctx.Err() != nil && !s.outlived }

// sessionOf returns the session that an attempt hangs on, or nil.
func (l *Locker[H]) sessionOf(req *request) *session[H] {
	s, ok := req.session.(*session[H])
	if req.session != nil && (!ok || s.locker != l) {
		panic(l.name + ": the attempt hangs on another Locker's session")
	}
	return s
}

// add notes that a lease depends on the session, which may have ended since the store
// granted the lease. The Locker's mutex is held.
func (s *session[H]) add(a *lease[H]) {
	s.held[a] = struct{}{}
	if s.over {
		s.locker.lose(&a.renewed, s.why.Reason, s.why.Cause)
	}
}

// errEnded ends waiting on a session. It is no ErrLost: a waiter has lost no lock.
var errEnded = errors.New("the session has ended")

// lose implements owner: all locks that depend on the session end.
func (s *session[H]) lose(reason locker.Reason, cause error) {
	s.why = &locker.LostError{Reason: reason, Cause: cause}
	s.cancel(errEnded)
	for a := range s.held {
		s.locker.lose(&a.renewed, reason, cause)
	}
}

// turns implements owner.
func (s *session[H]) turns() (all []*turn[H]) {
	for a := range s.held {
		all = append(all, a.heldTurns()...)
	}
	return all
}

// clear implements owner.
func (s *session[H]) clear() bool { return s.locker.Persist(s.remove) }

// finish implements owner. What the client keeps alive does not end by itself: it is removed in the
// background, until that works or the Locker is closed.
func (s *session[H]) finish() {
	l := s.locker
	l.mu.Lock()
	left := s.outlived && s.any()
	l.mu.Unlock()
	if left {
		l.background.run(func() {
			for l.closing.Err() == nil && !s.clear() {
			}
		})
	}
}

// endUnused ends a session that nobody uses, if that has been so for long or the Locker
// is closed. The Locker's mutex is held.
func (l *Locker[H]) endUnused(s *session[H]) {
	long := l.now().Sub(s.idle) >= idleTTLs*s.ttl
	if s.users == 0 && (long || l.closing.Err() != nil) {
		l.lose(&s.renewed, locker.ReasonSessionEnded, nil)
	}
}

// endSessions ends the sessions that nobody uses, when the Locker is closed.
func (l *Locker[H]) endSessions() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range slices.Clone(l.schedule.heap) {
		if s, ok := r.what.(*session[H]); ok {
			l.endUnused(s)
		}
	}
}
