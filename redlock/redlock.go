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
// its data, the clock takes the counter's place: the token is greater unless
// clocks of nodes differ by more than the time it was without a vote (with
// DurableNodes: by more than its restart took).
//
// Waiters of different Lockers are served in the order of the clocks with which
// they arrived, where a node corrects a clock that is a tenth of a second off its
// own. Goroutines of one Locker may hand the lock to each other up to 16 times in
// a row before it goes to another process.
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
// renewal finds that no majority has it any more. Nodes that had not granted it,
// or have forgotten it, are not asked again: a lock that is held for weeks can be
// lost to restarts of a majority one after another.
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
// vote, a step back prolongs it.
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
	"github.com/lockstile/locker/internal/line"
	"github.com/lockstile/locker/internal/redisnode"
)

const (
	// mostInARow bounds how often goroutines of one Locker hand the lock to
	// each other while other processes wait.
	mostInARow = 16

	// confirmTime is how long a caller whose attempt failed waits to hear
	// that what is left of it blocks nobody. The clean-up goes on behind its
	// back.
	confirmTime = 250 * time.Millisecond

	// cleanUpTime bounds the clean-up, tryTime each try of it.
	cleanUpTime = 10 * time.Second
	tryTime     = time.Second
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
	idle    sync.Cond // no clean-ups are under way
	work    int       // how many are
}

// peer is one node.
type peer struct {
	name string
	node *redisnode.Node
	mail *redisnode.Mailbox
	met  atomic.Bool
	run  string // identifies the server process it was when we met; under Locker.mu
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
	l.idle.L = &l.mu
	l.closing, l.close = context.WithCancel(context.Background())
	quarantine := opts.MaxTTL
	if opts.DurableNodes {
		quarantine = 0
	}
	for i, rdb := range nodes {
		p := &peer{name: names[i]}
		p.mail = redisnode.NewMailbox(rdb, func(value, key string) { l.returnTurn(p, value, key) })
		p.node = redisnode.NewOfQuorum(rdb, p.mail, quarantine)
		l.peers = append(l.peers, p)
	}
	l.keeper = locker.NewKeeper(l.renew)
	return l, nil
}

// nameNodes names nodes by their addresses and refuses what cannot be one.
func nameNodes(nodes []redis.UniversalClient) ([]string, error) {
	names := make([]string, len(nodes))
	known := make(map[string]int)
	for i, rdb := range nodes {
		client, ok := rdb.(*redis.Client)
		switch {
		case rdb == nil || ok && client == nil:
			return nil, fmt.Errorf("redlock: the client of node %d is nil", i+1)
		case !ok:
			return nil, fmt.Errorf("redlock: node %d is a %T: a node is one master, with a client of its own", i+1, rdb)
		}
		names[i] = client.Options().Addr
		if names[i] == sentinel {
			return nil, fmt.Errorf("redlock: node %d is behind Sentinel: a failover forgets locks, and the new master would vote at once; give the masters themselves", i+1)
		}
		if other, ok := known[names[i]]; ok {
			return nil, fmt.Errorf("redlock: nodes %d and %d are both %s: a server has one vote", other+1, i+1, names[i])
		}
		known[names[i]] = i
	}
	return names, nil
}

// sentinel is what go-redis gives for the address of a client that follows
// failovers.
const sentinel = "FailoverClient"

// meet makes sure, once for each node, that no two of them are one server that
// goes by two addresses.
func (l *Locker) meet(ctx context.Context, p *peer) error {
	if p.met.Load() {
		return nil
	}
	run, err := p.node.Run(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, other := range l.peers {
		if other != p && other.run == run {
			err := fmt.Errorf("nodes %s and %s are one server, which has one vote", p.name, other.name)
			l.twin.Store(&err)
			return err
		}
	}
	p.run = run
	p.met.Store(true)
	return nil
}

// twins returns an error once two nodes have turned out to be one server.
func (l *Locker) twins() error {
	if err := l.twin.Load(); err != nil {
		return *err
	}
	return nil
}

// Lock implements [locker.Locker].
func (l *Locker) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	a, err := l.newAttempt(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	if err := l.enter(ctx, a); err != nil {
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
	lease, err := redisnode.NewLease(req, l.opts.Prefix)
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
	return &attempt{req: req, seats: l.newSeats(lease)}, nil
}

func (l *Locker) nodeTimeout(ttl time.Duration) time.Duration {
	if l.opts.NodeTimeout > 0 {
		return l.opts.NodeTimeout
	}
	return min(max(ttl/50, 10*time.Millisecond), 100*time.Millisecond)
}

// enter waits for the turn in the line of this Locker's goroutines.
func (l *Locker) enter(ctx context.Context, a *attempt) error {
	turn, ok := l.lines.TryEnter(a.req.Name, a)
	if ok {
		a.turn = turn
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(l.closing, func() { cancel(locker.ErrClosed) })
	defer stop()
	turn, err := l.lines.Enter(ctx, a.req.Name, a)
	a.turn = turn
	if err != nil && !errors.Is(err, locker.ErrClosed) {
		err = fmt.Errorf("%w: %w", locker.ErrTaken, err)
	}
	return err
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
		l.background(c.linger)
	}
	return err
}

// listening reports whether letters can arrive from a majority.
func (l *Locker) listening() bool {
	n := 0
	for _, p := range l.peers {
		if p.mail.Listening() {
			n++
		}
	}
	return n >= l.quorum
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
		Lost:    a.leave,
	}), nil
}

// leave passes the turn on without the lock.
func (a *attempt) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn.Leave()
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
	if l.opts.DurableNodes {
		g.Exclusion |= locker.DurableServer
	}
	return g
}

// Close ends the subscriptions and the waiting: waiters get
// [locker.ErrClosed]. It waits, for about a second at most, for clean-ups under
// way. Locks that are held stay held, renewed and unlockable; the clients stay
// open.
func (l *Locker) Close() error {
	l.close()
	var mails sync.WaitGroup
	for _, p := range l.peers {
		mails.Go(p.mail.Close)
	}
	mails.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.work > 0 {
		l.idle.Wait()
	}
	return nil
}

// returnTurn gives back a reservation that came for a waiter who has gone.
func (l *Locker) returnTurn(p *peer, value, key string) {
	l.background(func() {
		l.persist(func(ctx context.Context) error { return p.node.ReturnTurn(ctx, value, key) })
	})
}

// background runs f in a goroutine that Close waits for.
func (l *Locker) background(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.work++
	go func() {
		f()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.work--
		l.idle.Broadcast()
	}()
}

// persist tries until the node confirms, for cleanUpTime at most, and reports
// whether it did. After Close it tries once more.
func (l *Locker) persist(f func(context.Context) error) bool {
	deadline := time.NewTimer(cleanUpTime)
	defer deadline.Stop()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, tryTime) {
		last := l.closing.Err() != nil
		ctx, cancel := context.WithTimeout(context.Background(), tryTime)
		err := f(ctx)
		cancel()
		if err == nil || last {
			return err == nil
		}
		select {
		case <-time.After(pause):
		case <-l.closing.Done():
		case <-deadline.C:
			return false
		}
	}
}
