// Package redlock implements [locker.Locker] on several independent Redis
// masters, a majority of which must agree (redis.io, "Distributed Locks with
// Redis").
//
// # Guarantees
//
// At most one holder at a time, though a minority of the nodes is down, hangs or
// forgets everything, while clocks run at the same rate and the holder does not
// act after its validity has ended: guard its writes with the token. A node that
// was restarted may have forgotten a lock. It gets no vote until it has been up
// for longer than [Options].MaxTTL, which the script that grants checks itself.
//
// Tokens increase: each node draws one more than its last, or the client's clock
// if that is more, the same for all nodes. The lock's token is the greatest of
// its majority, and nodes of the majority that drew a smaller one are raised to
// it, while they hold the lock, before Lock returns; one that cannot confirm that
// has no vote. Any later majority shares a node with this one. That node had
// granted and been raised before it was free again, so it draws a greater token
// then, and the later lock's token is at least that. If the shared node has lost
// its data, the clock takes the counter's place: the token is greater unless the
// clocks of nodes differ by nearly as much as the time that it was without a vote,
// which is a second at least. With DurableNodes there is no such time, and tokens
// lean on what that option says.
//
// Waiters of different Lockers are served in the order of the clocks with which
// they arrived, where a node corrects a clock that is a tenth of a second off its
// own. Goroutines of one Locker may hand the lock to each other up to 16 times in
// a row, or up to 128 times within 25 ms, before it goes to another process.
//
// An even number of nodes buys nothing: of four nodes, three are a majority, so
// no more of them may fail than of three.
//
// A lock's key is its name, holding a random value with an expiry, as the page
// describes. So clients of other Redlock libraries exclude us and we them. They
// know nothing of the queue, of tokens or of the rule for restarted nodes.
//
// # Losing a lock
//
// A lock is lost when its lease ends before a majority has renewed it, or when a
// renewal finds that no majority has it any more. Nodes that had refused it, or
// have forgotten it, are not asked to grant it again: a lock that is held for weeks
// can be lost to restarts of a majority one after another.
//
// Waiters learn of a release from the nodes through publish and subscribe. What
// they miss costs at most what was left of the holder's lease. A vote that is
// split between several waiters is given back, and repeated after a random time.
//
// # Clocks
//
// The lease ends by the nodes' clocks. Validity counts on the holder's clock of
// elapsed time, read before the first request was sent, and ends a hundredth of
// the TTL and 2 ms early. How long a node has been up is told by its wall clock
// in whole seconds: a step forward shortens the time that it stays without a
// vote, a step back prolongs it. Once a node has been found old enough it keeps
// its vote until it is restarted, whatever its clock does: its key lockstile:voter
// says which server process that was (INFO's run_id), and for which MaxTTL.
//
// # Requirements
//
// Three or more Redis 7.0 servers or later, or a fork that has their commands
// (Valkey), that do not replicate each other: no Cluster, no Sentinel, for a
// failover forgets locks and is not a restart. What package singlenode requires
// of a server holds for each, and a user restricted by ACL needs INFO as well.
// All clients use the same nodes and the same MaxTTL. A node that is made to
// forget without a restart (FLUSHALL, an eviction) counts as one that has crashed
// and votes at once: do not do that to a majority within one TTL.
package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/chores"
	"github.com/lockstile/locker/internal/line"
	"github.com/lockstile/locker/internal/redisnode"
)

// Options are a Locker's settings. The zero value is ready to use.
type Options struct {
	// Prefix goes before the name of every lock to make its key. The default
	// is none.
	Prefix string

	// NodeTimeout is how long one node may take for one answer. A node that
	// hangs delays a lock by at most that, and only where the others have not
	// decided it. The default is a fiftieth of the lock's TTL, but at least
	// 10 ms and at most 100 ms.
	NodeTimeout time.Duration

	// MaxTTL is the longest TTL, the same for all clients of these nodes: a
	// node has no vote before it has been up for longer than that. The
	// default is a minute.
	MaxTTL time.Duration

	// DurableNodes says that nodes lose nothing in a crash (appendonly yes,
	// appendfsync always), and lets them vote as soon as they are up.
	DurableNodes bool
}

// Locker grants locks that a majority of its nodes agrees on.
type Locker struct {
	opts   Options
	peers  []*peer
	quorum int
	lines  line.Lines[*attempt]
	keeper *locker.Keeper
	twin   atomic.Pointer[error] // two nodes turned out to be one

	closing context.Context // ends with Close
	close   context.CancelFunc
	mu      sync.Mutex
	chores  chores.Chores // clean-ups under way
}

var (
	_ locker.Locker    = (*Locker)(nil)
	_ locker.Inspector = (*Locker)(nil)
	_ locker.Breaker   = (*Locker)(nil)
)

// New returns a Locker on independent masters, three at least, whose clients it
// never closes. Make one per process and set of nodes: its goroutines share one
// place in the queues, a subscription per node and their renewals.
func New(nodes []redis.UniversalClient, opts Options) (*Locker, error) {
	switch {
	case len(nodes) < 3:
		return nil, fmt.Errorf("redlock: %d nodes are too few for a majority that survives the loss of one: give at least 3, or use package singlenode", len(nodes))
	case opts.NodeTimeout < 0:
		return nil, fmt.Errorf("redlock: node timeout %v is negative", opts.NodeTimeout)
	case opts.MaxTTL != 0 && opts.MaxTTL < locker.MinTTL, opts.MaxTTL > locker.MaxTTL:
		return nil, fmt.Errorf("redlock: the largest TTL %v is not between %v and %v", opts.MaxTTL, locker.MinTTL, locker.MaxTTL)
	}
	if opts.MaxTTL == 0 {
		opts.MaxTTL = time.Minute
	}
	names, err := nameNodes(nodes)
	if err != nil {
		return nil, err
	}
	l := &Locker{opts: opts, quorum: len(nodes)/2 + 1}
	l.closing, l.close = context.WithCancel(context.Background())
	quarantine := opts.MaxTTL
	if opts.DurableNodes {
		quarantine = 0
	}
	for i, rdb := range nodes {
		l.peers = append(l.peers, l.newPeer(names[i], rdb, quarantine))
	}
	l.keeper = locker.NewKeeper(l.renew)
	return l, nil
}

// Lock implements [locker.Locker].
func (l *Locker) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	a, err := l.newAttempt(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	if a.turn, err = l.lines.Stand(ctx, l.closing, name, a); err != nil {
		return nil, fmt.Errorf("redlock: lock %q: %w", name, err)
	}
	return l.finish(a, l.wait(ctx, a))
}

// TryLock implements [locker.Locker].
func (l *Locker) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	a, err := l.newAttempt(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	turn, ok := l.lines.TryEnter(name, a)
	if !ok {
		return nil, fmt.Errorf("redlock: lock %q: %w", name, locker.ErrTaken)
	}
	a.turn = turn
	return l.finish(a, l.newContest(a, false).run(ctx))
}

func (l *Locker) newAttempt(ctx context.Context, name string, opts []locker.Option) (*attempt, error) {
	req, err := locker.NewRequest(name, opts...)
	if err != nil {
		return nil, err
	}
	terms := new(redisnode.Terms)
	err = terms.Init(req, l.opts.Prefix)
	switch {
	case err != nil:
		return nil, fmt.Errorf("redlock: lock %q: %w", name, err)
	case req.TTL > l.opts.MaxTTL:
		return nil, fmt.Errorf("redlock: lock %q: ttl %v is over the limit of %v (Options.MaxTTL)", name, req.TTL, l.opts.MaxTTL)
	case l.closing.Err() != nil:
		return nil, fmt.Errorf("redlock: lock %q: %w", name, locker.ErrClosed)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("redlock: lock %q: %w", name, context.Cause(ctx))
	}
	return &attempt{req: req, seats: l.newSeats(terms)}, nil
}

func (l *Locker) nodeTimeout(ttl time.Duration) time.Duration {
	if l.opts.NodeTimeout > 0 {
		return l.opts.NodeTimeout
	}
	return min(max(ttl/50, 10*time.Millisecond), 100*time.Millisecond)
}

// wait asks until a majority agrees. The first question of a Locker to which
// nobody has listened yet is asked without queueing: most locks are free, and a
// subscription costs a connection to each node.
func (l *Locker) wait(ctx context.Context, a *attempt) error {
	switch {
	case a.token != 0:
		return nil // handed over by our predecessor in the line
	case l.closing.Err() != nil:
		return locker.ErrClosed
	}
	if !l.listening() {
		err := l.newContest(a, false).run(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return fmt.Errorf("%w: %w", locker.ErrTaken, context.Cause(ctx))
		case err == nil || !errors.Is(err, locker.ErrTaken):
			return err
		}
	}
	c := l.newContest(a, true)
	err := c.run(ctx)
	if err == nil && c.count(waiting, asking) > 0 {
		l.chores.Go(c.linger)
	}
	return err
}

// finish makes the lock of a granted attempt, and clears away one that failed.
func (l *Locker) finish(a *attempt, err error) (*locker.Lock, error) {
	if err == nil {
		err = a.req.CheckValidity(a.since)
	}
	if err != nil {
		if !l.abandon(a.seats) {
			err = fmt.Errorf("%w: %w", locker.ErrOutcomeUnknown, err)
		}
		a.turn.Leave()
		return nil, fmt.Errorf("redlock: lock %q: %w", a.req.Name, err)
	}
	return locker.NewLock(locker.Hold{
		Request: a.req,
		Token:   a.token,
		Since:   a.since,
		Keeper:  l.keeper,
		Lease:   a,
		Release: func(ctx context.Context) error { return l.release(ctx, a) },
		Lost:    func() { l.lost(a) },
	}), nil
}

// lost passes the turn on without the lock. A release need not follow, so what
// the nodes still have is removed here: those that did renew, while a majority did
// not, would keep everybody out for another TTL.
func (l *Locker) lost(a *attempt) {
	a.mu.Lock()
	a.turn.Leave()
	a.mu.Unlock()
	for i := range a.seats {
		s := &a.seats[i]
		l.chores.Go(func() { l.sweep(i, s) })
	}
}

// Guarantees implements [locker.Locker].
func (l *Locker) Guarantees() locker.Guarantees {
	g := locker.Guarantees{
		Exclusion: locker.PromptHolder | locker.SteadyClocks,
		Tokens:    locker.ForwardClock,
		Fair:      true,
		Release:   locker.ByExpiry,
		Tolerates: (len(l.peers) - 1) / 2,
	}
	if l.opts.DurableNodes { // a node that forgot would vote before the clock has passed its counter for sure
		g.Exclusion |= locker.DurableServer
		g.Tokens = locker.DurableServer
	}
	return g
}

// Close ends the subscriptions and the waiting: waiters get
// [locker.ErrClosed]. It waits, for two seconds at most, for requests and
// clean-ups under way. Locks that are held stay held, renewed and unlockable; the
// clients stay open.
func (l *Locker) Close() error {
	l.close()
	idle := make(chan struct{})
	go func() {
		var mails sync.WaitGroup
		for _, p := range l.peers {
			mails.Go(p.mail.Close)
		}
		mails.Wait()
		l.chores.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-time.After(closeTime): // a node may be allowed more time for an answer
	}
	return nil
}

// closeTime bounds Close. Clean-ups need half of it for their last try.
const closeTime = 2 * time.Second
