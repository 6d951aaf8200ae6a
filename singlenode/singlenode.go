// Package singlenode implements [locker.Locker] on one Redis: a standalone
// server, one behind Sentinel, or the master of a key's slot in a Cluster.
//
// # Guarantees
//
// At most one holder at a time while the server keeps its data: a crash without
// an append-only file that is synced always, or a failover to a replica that
// lags, can hand a held lock to a second holder ([Options].Replicas narrows the
// latter). Tokens increase even then, unless the clock goes back at the same
// time: each is one more than the last and at least the server's clock in
// microseconds. Guard writes with them. Waiters of different Lockers are served
// in order of arrival; goroutines of one Locker may hand the lock to each other
// up to 16 times in a row, or up to 128 times within 25 ms, before it goes to
// another process.
//
// A lock's key is its name, holding a random value with an expiry, as the
// Redlock page describes (redis.io, "Distributed Locks with Redis"). So clients
// of other libraries that follow that page exclude us and we them. They know
// nothing of the queue: while they poll, the order is theirs to break.
//
// # Losing a lock
//
// A lock is lost when its lease ends unrenewed, or when a renewal finds the key
// gone or changed: after a third of the TTL at the latest. Waiters learn of a
// release through publish and subscribe; a dead waiter is passed over at once
// when its connection is gone, and after half a second when it is paused. A
// notification that is lost costs at most what was left of the holder's lease, and in
// a Cluster, which can lose them unheard, 5 s for each waiter up to the one it was for.
//
// # Clocks
//
// The lease ends by the server's clock, which starts when the server carries
// the request out. Validity counts on the holder's clock of elapsed time, read
// before the request was sent, and ends a hundredth of the TTL and 2 ms early.
//
// # Requirements
//
// Redis 7.0 or later, or a fork that has its commands (Valkey); Lua scripts,
// and publish and subscribe. An eviction policy that spares keys with an expiry
// (noeviction): an evicted lock is a lost one. Names that begin with
// "lockstile:" are reserved for queues, counters and marks; a user restricted by
// ACL needs "~lockstile:*" and "&lockstile:*" besides the names it locks.
package singlenode

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/chores"
	"github.com/lockstile/locker/internal/line"
	"github.com/lockstile/locker/internal/redisnode"
)

// confirmTime is how long a caller whose attempt failed waits to hear that
// nothing of it is left. The clean-up goes on behind its back.
const confirmTime = 250 * time.Millisecond

// Options are a Locker's settings. The zero value is ready to use.
type Options struct {
	// Prefix goes before the name of every lock to make its key. The default
	// is none.
	Prefix string

	// Replicas is how many replicas must have received a grant or a renewal
	// before it counts (WAIT). Set it to the number of all replicas that may
	// be promoted. A server that cannot get so many confirmations within a
	// second grants nothing. It takes a *redis.Client or *redis.ClusterClient:
	// what wraps one may send WAIT to another server. The default is 0: a
	// failover may forget locks.
	Replicas int
}

// Locker grants locks on one Redis.
type Locker struct {
	opts   Options
	node   *redisnode.Node
	mail   *redisnode.Mailbox
	lines  line.Lines[*attempt]
	keeper *locker.Keeper

	isCluster bool // whose masters pass letters on to each other

	closing context.Context // ends with Close
	close   context.CancelFunc
	chores  chores.Chores // clean-ups under way
}

var (
	_ locker.Locker    = (*Locker)(nil)
	_ locker.Inspector = (*Locker)(nil)
	_ locker.Breaker   = (*Locker)(nil)
)

// New returns a Locker on rdb, which it never closes. Make one per process and
// server: its goroutines share one place in a queue, one subscription and their
// renewals.
func New(rdb redis.UniversalClient, opts Options) (*Locker, error) {
	switch {
	case rdb == nil:
		return nil, errors.New("singlenode: the client is nil")
	case opts.Replicas < 0:
		return nil, fmt.Errorf("singlenode: replicas %d is negative", opts.Replicas)
	}
	if _, ok := rdb.(*redis.Ring); ok {
		return nil, errors.New("singlenode: a Ring spreads a lock's keys and its notifications over different servers: use a client of one server or of a Cluster")
	}
	if opts.Replicas > 0 && !known(rdb) {
		return nil, fmt.Errorf("singlenode: replicas of a %T cannot be waited for: it may ask another server than that of the lock; use a *redis.Client or *redis.ClusterClient, with hooks in place of what wraps it", rdb)
	}
	l := &Locker{opts: opts}
	_, l.isCluster = rdb.(*redis.ClusterClient)
	l.closing, l.close = context.WithCancel(context.Background())
	l.mail = redisnode.NewMailbox(rdb, l.returnTurn)
	l.node = redisnode.New(rdb, l.mail, opts.Replicas)
	l.keeper = locker.NewKeeper(l.node.Renew)
	return l, nil
}

// known reports whether rdb sends WAIT where it has sent what is to be waited for.
func known(rdb redis.UniversalClient) bool {
	switch rdb.(type) {
	case *redis.Client, *redis.ClusterClient:
		return true
	}
	return false
}

// attempt is one call of Lock or TryLock, and the hold that comes of it.
type attempt struct {
	req   *locker.Request
	terms redisnode.Terms
	lease redisnode.Lease // on these terms
	turn  *line.Turn[*attempt]

	queued bool // it may have a place in the store's queue

	// The predecessor in the line fills these in before it passes the turn.
	token  fencing.Token
	since  locker.Instant
	streak line.Streak

	mu sync.Mutex // one release at a time, and none while the turn is passed on
}

// Lock implements [locker.Locker]. While a reply of the server is out, the end of
// ctx may go unnoticed for a quarter of a second: the client cannot be
// interrupted while it reads.
func (l *Locker) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	a, err := l.newAttempt(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	if a.turn, err = l.lines.Stand(ctx, l.closing, name, a); err != nil {
		return nil, fmt.Errorf("singlenode: lock %q: %w", name, err)
	}
	return l.finish(a, l.wait(ctx, a))
}

// TryLock implements [locker.Locker]. It notices the end of ctx as Lock does.
func (l *Locker) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	a, err := l.newAttempt(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	turn, ok := l.lines.TryEnter(name, a)
	if !ok {
		return nil, fmt.Errorf("singlenode: lock %q: %w", name, locker.ErrTaken)
	}
	a.turn = turn
	return l.finish(a, l.try(ctx, a))
}

func (l *Locker) newAttempt(ctx context.Context, name string, opts []locker.Option) (*attempt, error) {
	req, err := locker.NewRequest(name, opts...)
	if err != nil {
		return nil, err
	}
	a := &attempt{req: req}
	a.lease.Terms = &a.terms
	err = a.terms.Init(req, l.opts.Prefix)
	switch {
	case err != nil:
		return nil, fmt.Errorf("singlenode: lock %q: %w", name, err)
	case l.closing.Err() != nil:
		return nil, fmt.Errorf("singlenode: lock %q: %w", name, locker.ErrClosed)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("singlenode: lock %q: %w", name, context.Cause(ctx))
	}
	return a, nil
}

// finish makes the lock of a granted attempt, and clears away one that failed.
func (l *Locker) finish(a *attempt, err error) (*locker.Lock, error) {
	if err == nil {
		err = a.req.CheckValidity(a.since)
	}
	if err != nil {
		if l.leftSomething(a) && !l.cleanUp(&a.lease) {
			err = fmt.Errorf("%w: %w", locker.ErrOutcomeUnknown, err)
		}
		a.turn.Leave()
		return nil, fmt.Errorf("singlenode: lock %q: %w", a.req.Name, err)
	}
	return locker.NewLock(locker.Hold{
		Request: a.req,
		Token:   a.token,
		Since:   a.since,
		Keeper:  l.keeper,
		Lease:   &a.lease,
		Release: func(ctx context.Context) error { return l.release(ctx, a) },
		Lost:    a.leave,
	}), nil
}

// leave passes the turn on without the lock.
func (a *attempt) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn.Leave()
}

// release gives the lock back, where it can to the next goroutine in line.
func (l *Locker) release(ctx context.Context, a *attempt) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.turn.Leave()
	next, ok := a.turn.Next()
	var heir *redisnode.Lease
	var since locker.Instant        // its own: nobody else needs the clock to be read
	if ok && l.opts.Replicas == 0 { // with replicas, a grant needs their word, a release does not
		heir, since = &next.lease, locker.Now()
	}
	token, err := l.node.ReleaseHere(ctx, &a.lease, heir, a.streak.Over())
	if token != 0 {
		next.token, next.since, next.streak = token, since, a.streak.Next()
	}
	var lost *locker.LostError
	switch {
	case errors.As(err, &lost):
		lost.Name = a.req.Name
		return lost
	case err != nil:
		l.sweepLater(&a.lease)
		return fmt.Errorf("singlenode: unlock %q: %w", a.req.Name, err)
	}
	return nil
}

// Inspect implements [locker.Inspector].
func (l *Locker) Inspect(ctx context.Context, name string) (locker.Info, error) {
	keys, err := l.keys(name)
	if err != nil {
		return locker.Info{}, err
	}
	info, err := l.node.Inspect(ctx, keys)
	if err != nil {
		return locker.Info{}, fmt.Errorf("singlenode: inspect %q: %w", name, err)
	}
	info.Name = name
	return info, nil
}

// Break implements [locker.Breaker].
func (l *Locker) Break(ctx context.Context, name string) (bool, error) {
	keys, err := l.keys(name)
	if err != nil {
		return false, err
	}
	broken, err := l.node.Break(ctx, keys)
	if err != nil {
		return false, fmt.Errorf("singlenode: break %q: %w", name, err)
	}
	return broken, nil
}

func (l *Locker) keys(name string) (redisnode.Keys, error) {
	if err := locker.CheckName(name); err != nil {
		return redisnode.Keys{}, err
	}
	keys, err := redisnode.NewKeys(l.opts.Prefix + name)
	if err != nil {
		return redisnode.Keys{}, fmt.Errorf("singlenode: lock %q: %w", name, err)
	}
	return keys, nil
}

// Guarantees implements [locker.Locker].
func (l *Locker) Guarantees() locker.Guarantees {
	g := locker.Guarantees{
		Exclusion: locker.PromptHolder | locker.SteadyClocks | locker.DurableServer | locker.DurableReplica,
		Tokens:    locker.ForwardClock,
		Fair:      true,
		Release:   locker.ByExpiry,
	}
	if l.opts.Replicas > 0 {
		g.Exclusion &^= locker.DurableReplica
	}
	return g
}

// Close ends the subscription and the waiting: waiters get [locker.ErrClosed].
// It waits, for about a second at most, for clean-ups under way. Locks that are
// held stay held, renewed and unlockable; the client stays open.
func (l *Locker) Close() error {
	l.close()
	l.mail.Close()
	l.chores.Wait()
	return nil
}
