// Package zookeeper implements [locker.Locker] on ZooKeeper.
//
// # Guarantees
//
// At most one holder at a time, through crashes, failovers and partitions of the
// servers, while the holder is not paused beyond its validity and clocks run at
// the same rate. The token is the zxid that made the holder's place in the
// queue: ZooKeeper orders all its changes by it, so tokens increase for as long
// as an ensemble keeps its data, which it writes to the disks of a majority.
// Waiters of different Lockers are served in order of arrival; the
// goroutines of one Locker share one place in the queue and go to its end after
// every turn.
//
// Nodes are laid out as in ZooKeeper's lock recipe, base/name/_c_guid-lock-0000000042,
// so Curator's InterProcessMutex and zk.Lock on the same path exclude us and we
// them. We wait for kazoo's Lock, too, but it counts only nodes of its own kind,
// and takes no notice of ours unless it is told of them:
//
//	Lock(client, path, extra_lock_patterns=["-lock-"])  # kazoo 2.8 or later
//
// Characters that a path cannot have are escaped as %XX.
// The nodes of names are containers, which the server removes when they are
// empty; their data is overwritten.
//
// The server numbers the places of a queue from 0 to 2147483647, and gives
// everybody who comes later the last number again. A Locker refuses it, waits
// until the queue is empty, removes its node, and begins another. Until then
// TryLock gets ErrTaken, and a Lock that gives up gets ErrUnavailable; the order
// of arrival is lost this once. Other libraries take the last number: from there
// on their locks exclude nobody, so remove the node of a name that has been locked
// two thousand million times, while nobody uses it.
//
// # Losing a lock
//
// The lock hangs on the session of the zk client, and so does its end when the
// holder has died: after one session timeout, rounded up to the servers' ticks.
// A holder that hears nothing from the servers gives up by its own clock, five
// twelfths of the session timeout after it sent the last renewal that was
// answered. A node that somebody has deleted is found missing by the next
// renewal, after a seventh of the session timeout. Closing the connection frees
// its locks at once: with [Options].Session their holders have lost them before,
// without it they go on believing, so unlock first.
//
// # Clocks
//
// Only rates count. The leader hears of a client's signs of life through the
// server that the client is connected to, half a tick later; if that server
// fails in between, the session runs from the sign before, and the client gives
// one every third of the timeout. A tick is half of the timeout at most. Hence
// the five twelfths. A renewal is a
// transaction and not a read, because a server that has lost the leader answers
// reads for a while. A waiter's lock counts from the transaction that made its
// place in the queue, so half of its validity may be over at first; after a longer
// wait, and for options that lean on the beginning (WithoutRenewal, WithMaxHold,
// WithMinValidity), it counts from another one that finds the place still there.
// A holder that is paused, so that its pings are late, or a leader that is, so
// that it asks late, in the same moments in which the holder's server fails, is
// beyond what this covers: the guard in the storage is not.
//
// # Requirements
//
// ZooKeeper 3.5.3 or later (containers). The session timeout must be known,
// which the zk client does not tell: see [Options]. It must not be longer than
// the TTL of a lock, which it stands for; a shorter one frees a dead holder's
// lock sooner than the TTL asks for. It must be two ticks of the servers or more,
// and is, unless somebody has set their minSessionTimeout to less: locker doctor
// looks. A client that changes to a server which grants less loses its locks. Whoever closes the connection closes the Locker
// first. Nodes below the base must allow what Options.ACL allows.
package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/line"
	"github.com/lockstile/locker/internal/zkclient"
)

// DefaultBase is where locks are without Options.Base.
const DefaultBase = "/lockstile"

const (
	// confirmTime is how long a caller whose context is over waits to hear
	// that nothing is left of its attempt. The clean-up goes on behind its
	// back.
	confirmTime = 250 * time.Millisecond

	// mostPatience is how long one waits whose context is not over.
	mostPatience = 3 * time.Second
)

// Options are a Locker's settings. One of Session and SessionTimeout is needed.
type Options struct {
	// Session tells the session timeout that the servers have granted. The
	// connection must have been made with its Dial.
	Session *Session

	// SessionTimeout is the session timeout that all the servers grant, for
	// a connection that was made without a Session. What zk.Connect was asked
	// for may differ: servers raise it to two ticks and lower it to twenty.
	// With a longer one than was granted, two may hold the same lock.
	SessionTimeout time.Duration

	// Base is the node below which the locks are. The default is DefaultBase.
	Base string

	// ACL is what nodes are made with, such as zk.DigestACL(zk.PermAll, …) on
	// a connection that has authenticated itself. All Lockers of a base need
	// all permissions. The default is zk.WorldACL(zk.PermAll): anybody who
	// reaches the servers may do anything.
	ACL []zk.ACL
}

// Locker grants locks on one ZooKeeper ensemble.
type Locker struct {
	zk             *zkclient.Client
	session        *Session
	sessionTimeout time.Duration
	base           string
	acl            []zk.ACL

	lines     line.Lines[*attempt]
	keeper    *locker.Keeper
	anchoring chan struct{} // held by who makes the anchor
	closing   context.Context
	close     context.CancelFunc

	mu       sync.Mutex
	anchor   anchor
	watches  map[string]<-chan struct{}
	sweeps   []sweeping
	sweeping bool
	idle     sync.Cond // there is nothing to sweep
}

var (
	_ locker.Locker    = (*Locker)(nil)
	_ locker.Inspector = (*Locker)(nil)
	_ locker.Breaker   = (*Locker)(nil)
)

// New returns a Locker on conn, which it never closes. Make one per process and
// ensemble: its goroutines share a place in the queue and their renewals.
func New(conn *zk.Conn, opts Options) (*Locker, error) {
	if opts.Base == "" {
		opts.Base = DefaultBase
	}
	if len(opts.ACL) == 0 {
		opts.ACL = zk.WorldACL(zk.PermAll)
	}
	switch {
	case conn == nil:
		return nil, errors.New("zookeeper: the connection is nil")
	case opts.Session == nil && opts.SessionTimeout <= 0:
		return nil, errors.New("zookeeper: the session timeout is not known: set Options.Session or Options.SessionTimeout")
	case opts.Session != nil && opts.SessionTimeout != 0:
		return nil, errors.New("zookeeper: Options.Session and Options.SessionTimeout are both set: choose one")
	}
	if err := zkclient.CheckBase(opts.Base); err != nil {
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	l := &Locker{
		zk: zkclient.New(conn, opts.ACL), session: opts.Session, sessionTimeout: opts.SessionTimeout,
		base: opts.Base, acl: opts.ACL,
		anchoring: make(chan struct{}, 1),
		watches:   make(map[string]<-chan struct{}),
	}
	l.idle.L = &l.mu
	l.closing, l.close = context.WithCancel(context.Background())
	l.keeper = locker.NewKeeper(l.renew)
	return l, nil
}

// attempt is one call of Lock or TryLock, and the hold that comes of it.
type attempt struct {
	req     *locker.Request // its TTL is what of the session timeout can be relied on
	timeout time.Duration   // of the session
	parent  string
	data    []byte
	turn    *line.Turn[*attempt]

	place  *place // the predecessor in the line may leave one
	former *place // the last one that was given up, in doubt whether it was made
	usedUp int64  // the queue that had no number left for it, or 0

	ends int // of the session's books, when the attempt began

	mu   sync.Mutex // one release at a time, and none while the turn is passed on
	left bool       // the turn was passed on
	told bool       // that somebody is ahead
}

// Lock implements [locker.Locker].
func (l *Locker) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	a, err := l.newAttempt(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	if a.turn, err = l.lines.Stand(ctx, l.closing, name, a); err != nil {
		return nil, fmt.Errorf("zookeeper: lock %q: %w", name, err)
	}
	return l.finish(ctx, a, l.wait(ctx, a))
}

// TryLock implements [locker.Locker].
func (l *Locker) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	a, err := l.newAttempt(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	turn, ok := l.lines.TryEnter(name, a)
	if !ok {
		return nil, fmt.Errorf("zookeeper: lock %q: %w", name, locker.ErrTaken)
	}
	a.turn = turn
	return l.finish(ctx, a, l.try(ctx, a))
}

func (l *Locker) newAttempt(ctx context.Context, name string, opts []locker.Option) (*attempt, error) {
	req, err := locker.NewRequest(name, opts...)
	if err != nil {
		return nil, err
	}
	switch {
	case l.closing.Err() != nil:
		return nil, fmt.Errorf("zookeeper: lock %q: %w", name, locker.ErrClosed)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("zookeeper: lock %q: %w", name, context.Cause(ctx))
	}
	a := &attempt{req: req, parent: l.base + "/" + zkclient.Escape(name)}
	if l.session != nil {
		a.ends = l.session.books.since()
	}
	a.timeout, err = l.timeout(ctx)
	if err == nil {
		err = limit(req, a.timeout)
	}
	if err != nil {
		return nil, fmt.Errorf("zookeeper: lock %q: %w", name, err)
	}
	a.data = nodeData(req.Holder, a.timeout)
	return a, nil
}

// limit puts what the session can promise in the place of the TTL.
func limit(req *locker.Request, timeout time.Duration) error {
	if req.TTL < timeout {
		return fmt.Errorf("ttl %v is under the session timeout of %v, for which the store keeps a dead holder's locks: ask for a longer ttl or connect with a shorter session timeout",
			req.TTL, timeout)
	}
	req.TTL = believable(timeout).Truncate(time.Millisecond)
	if valid := req.TTL - locker.Drift(req.TTL); req.MinValidity >= valid {
		return fmt.Errorf("minimum validity %v cannot be met with a session timeout of %v: it leaves %v",
			req.MinValidity, timeout, valid)
	}
	return nil
}

// believable is what of the session timeout T can be relied on after a renewal
// that was answered.
//
// The leader ends a session no sooner than T after it has last heard of it. A
// client's signs of life, renewals included, go to the server that the client is
// connected to. That one passes them on when the leader asks it, twice a tick; if
// it stops in between, all signs since the leader has last asked are lost: those
// of half a tick. The sign before may be a ping, and pings come every T/3. So when
// the server stops right after the renewal,
//
//	the leader has last asked   tick/2 before the renewal, at most
//	and heard of a sign that is    T/3 older than that, at most
//	so the session lives for       T - T/3 - tick/2 after the renewal, at least
//
// Nobody tells a client what a tick is, but that servers grant no session under
// two of them, so tick/2 is T/4 at most, which leaves T*5/12.
func believable(t time.Duration) time.Duration { return t * 5 / 12 }

// finish makes the lock of a granted attempt, and clears away one that failed.
func (l *Locker) finish(ctx context.Context, a *attempt, err error) (*locker.Lock, error) {
	if err == nil {
		err = l.stillGood(a)
	}
	if err != nil {
		if a.place != nil && !l.withdraw(ctx, a.place) || a.former != nil && !l.cleanUp(ctx, a.former) {
			err = fmt.Errorf("%w: %w", locker.ErrOutcomeUnknown, err)
		}
		a.turn.Leave()
		return nil, fmt.Errorf("zookeeper: lock %q: %w", a.req.Name, err)
	}
	lock := locker.NewLock(locker.Hold{
		Request: a.req,
		Token:   a.place.token,
		Since:   a.place.since,
		Keeper:  l.keeper,
		Lease:   a,
		Release: func(ctx context.Context) error { return l.release(ctx, a) },
		Lost:    func() { l.leave(a) },
	})
	l.note(a, lock)
	return lock, nil
}

// stillGood returns an error if the grant has grown too old on its way, or if
// the servers have meanwhile shortened the session that it hangs on.
func (l *Locker) stillGood(a *attempt) error {
	if l.session != nil && l.session.Timeout() < a.timeout {
		return unavailable(errShorter)
	}
	return a.req.CheckValidity(a.place.since)
}

// unavailable says that the store did not answer, or refused.
func unavailable(err error) error { return fmt.Errorf("%w: %w", locker.ErrUnavailable, err) }

// withdraw removes the place of a failed attempt: at once if it can.
func (l *Locker) withdraw(ctx context.Context, p *place) bool {
	if ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(ctx, sweepTime)
		defer cancel()
		if err := l.remove(ctx, p); err == nil || errors.Is(err, errGone) {
			return true
		}
	}
	return l.cleanUp(ctx, p)
}

// leave removes the node of a lock that was lost by the clock while its session
// lives on, and passes the turn on.
func (l *Locker) leave(a *attempt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l.sweep(a.place)
	l.done(a)
}

// release gives the lock back, and takes a place for the next goroutine in line
// in the same transaction.
func (l *Locker) release(ctx context.Context, a *attempt) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer l.done(a)
	if l.ended(a.place) {
		return &locker.LostError{Name: a.req.Name, Reason: locker.SessionEnded}
	}
	var err error
	if next, ok := a.turn.Next(); ok && l.closing.Err() == nil {
		err = l.handOver(ctx, a.place, next)
	} else {
		err = l.remove(ctx, a.place)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errGone):
		return &locker.LostError{Name: a.req.Name, Reason: locker.TakenOver}
	case l.cleanUp(ctx, a.place):
		return nil
	}
	return fmt.Errorf("zookeeper: unlock %q: %w: %w", a.req.Name, locker.ErrOutcomeUnknown, err)
}

// Guarantees implements [locker.Locker].
func (l *Locker) Guarantees() locker.Guarantees {
	return locker.Guarantees{
		Exclusion: locker.PromptHolder | locker.SteadyClocks,
		Fair:      true,
		Release:   locker.BySession,
	}
}

// Close ends the waiting: waiters get [locker.ErrClosed]. It waits, for a few
// seconds at most, for clean-ups under way; what they could not remove ends with
// the session. Locks that are held stay held, renewed and unlockable; the
// connection stays open.
func (l *Locker) Close() error {
	l.close()
	l.mu.Lock()
	for l.sweeping {
		l.idle.Wait()
	}
	l.mu.Unlock()
	l.dropAnchor()
	return nil
}
