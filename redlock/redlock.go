// Package redlock implements [locker.Locker] on several independent Redis
// masters, a majority of which must agree (redis.io, "Distributed Locks with
// Redis").
//
//	locks, err := redlock.New([]redis.UniversalClient{a, b, c}, redlock.Options{}) // three servers, or five
//
// Use it if servers may fail and all that you have is Redis, and guard the writes with the token. A lock is one
// request to each node at once, and so is an unlock. A dead holder's lock is free when its TTL ends.
// Processes that wait are notified, in order of arrival. Exclusive and shared locks are there, and no slots.
//
// A node that was started less than [Options].MaxTTL ago (60 s) has no vote, unless
// [Options].DurableNodes is set: new nodes grant nothing at first.
// All programs must have the same nodes and the same MaxTTL.
//
// # Guarantees
//
// At most one holder at a time, or any number that share the lock, though a minority of
// the nodes is down, hangs or forgets everything, while clocks run at the same rate and
// holders do not act after their validity has ended: guard their writes with the token. A
// node that was restarted may have forgotten a lock. It gets no vote, not even for readers,
// until it has been up for longer than [Options].MaxTTL, which the script that grants checks
// itself.
//
// Tokens increase: each node draws one more than its last, or the client's clock
// if that is more, the same for all nodes. The lock's token is the greatest of
// its majority. Before Lock returns, the nodes of the majority that drew a smaller
// one are raised to it, while they hold the lock; a node that cannot confirm that
// has no vote. Any later majority shares a node with this one. That node granted and was
// raised before it was free again, so it then draws a greater token, and the later lock's
// token is at least that. If the shared node has lost its data, the clock takes the
// counter's place: the token is greater, unless the clocks of nodes differ by nearly as
// much as the time for which the node had no vote, which is a second at least. With
// DurableNodes there is no such time, and tokens also assume what that option
// says. The counter of a name that nobody uses is kept
// for an hour ([Options].KeepCounter); after that its tokens assume clocks that did not
// go back by more than that.
//
// Waiters of different Lockers are served in order of arrival by their own clocks; a
// node corrects a clock that is more than a tenth of a second off its own. Goroutines of
// one Locker pass the lock on to each other in memory, up to 64 times and for 25 ms at
// most, before it goes to another process.
//
// What [locker.WithMinHold] has left at Unlock, the nodes have that granted the lock, a
// majority at least: there the key stays, with a value that nobody holds, and waiters are
// notified when it ends. It is MaxTTL at most, for a node that has forgotten the lock
// votes again after that.
//
// An even number of nodes buys nothing: of four nodes, three are a majority, so
// no more of them may fail than of three.
//
// A reader ([locker.WithShared]) needs a majority like a writer. Two majorities always have a
// node in common, and that node would have had to grant both. Readers and writers have one
// counter on each node. A reader's number is the greatest of its majority, and is written
// back like a token: it is greater than those of all earlier writers, and smaller than those
// of all later ones. Readers who hold the lock at the same time have different numbers, but
// for goroutines that share their process's lease. A reader may have the number of one who has
// left, if no writer came between them.
//
// There are no slots ([locker.WithSlots]), for majorities cannot count. Say that two may have
// a licence, and three nodes count them:
//
//	node 1 has granted it to A and B
//	node 2 has granted it to B and C
//	node 3 has granted it to A and C
//
// No node has granted more than two, and each of the three has a majority. Use one name for
// each licence instead, such as licence/0 and licence/1 ([locker.SlotResource]), each with a
// lock and tokens of its own, and TryLock one after another until one is free.
//
// # Other programs
//
// A lock's key is its name, holding a random value with an expiry, as the page
// describes. So clients of other Redlock libraries exclude us and we them. They
// know nothing of the queue, of tokens or of the rule for restarted nodes. While readers
// have the lock, the key is there too, with a value that is nobody's.
//
// # Losing a lock
//
// A lock is lost when its lease ends before a majority has renewed it, or when a
// renewal finds that no majority has it any more. Nodes that had refused it, or
// have forgotten it, are not asked to grant it again: a lock that is held for weeks
// can be lost to restarts of a majority one after another.
//
// While so many nodes have no vote yet that none could be granted, a Lock waits for their
// votes. They are asked again when they will have one, and every 5 s. If its context ends
// first, that is a [locker.ErrUnavailable] that says so, for nobody has the lock. TryLock
// returns that at once.
//
// Waiters learn of a release from the nodes through publish and subscribe. If a
// notification is lost, that costs at most the rest of the holder's lease. A writer who
// waits for readers, and whoever is behind such a writer, also asks every second or so: so
// a writer who has died does not keep readers out while others read. If several
// waiters get some nodes each, and none gets a majority, they give them back and ask again
// after a random time.
//
// # Clocks
//
// The lease ends by the nodes' clocks. Validity counts on the holder's clock of
// elapsed time, read before the first request was sent, and ends a hundredth of
// the TTL and 2 ms early. What is left of a minimum hold ends by each node's clock, and
// counts from when it handles the Unlock.
//
// A node knows by its wall clock for how many whole seconds it
// has been up: a step forward shortens the time for which it has no vote, a step back
// prolongs it. Once a node has been up for long enough, it keeps its vote until it is
// restarted, whatever its clock does: its key lockstile:voter says which server process
// that was (INFO's run_id), and for which MaxTTL.
//
// A request for a lock may reach a node after its attempt was given up and cleaned up. For a
// minute and a TTL of the node's clock it is refused. One that arrives even later, or after that
// clock has stepped forward by as much, leaves a lock behind, which ends with its TTL. If a
// clean-up could not be confirmed, the error is [locker.ErrOutcomeUnknown].
//
// # Requirements
//
// Three or more Redis 7.0 servers or later, or a fork that has their commands
// (Valkey), that do not replicate each other: no Cluster and no Sentinel, because a
// failover forgets locks and is not a restart. Each must meet what package singlenode
// requires of a server. A user restricted by ACL also needs INFO, and the key
// lockstile:voter under exactly this name: no hook that rewrites keys sees it.
// A node that is made to
// forget without a restart (FLUSHALL, an eviction) is like one that has crashed, but
// votes at once: do not do that to a majority within one TTL.
package redlock

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/redisnode"
)

// Options are a Locker's settings. The zero value is ready to use.
type Options struct {
	// Prefix goes before the name of every lock to make its key. The default
	// is none.
	Prefix string

	// NodeTimeout is how long one node may take for one answer, by our clock. A node
	// that hangs delays a lock by at most that, and only where the others have not
	// decided it. The default is a fiftieth of the lock's TTL, but at least
	// 10 ms and at most 100 ms.
	NodeTimeout time.Duration

	// MaxTTL is the longest TTL, and the longest [locker.WithMinHold], the same for all
	// clients of these nodes: a node has no vote before it has been up for longer than
	// that. The default is a minute.
	MaxTTL time.Duration

	// DurableNodes says that nodes lose nothing in a crash (appendonly yes,
	// appendfsync always), and lets them vote as soon as they are up. If they do lose
	// something, two may hold the same lock.
	DurableNodes bool

	// KeepCounter is how long the nodes keep the counter of a name's tokens, about 200 bytes,
	// after the name's last lease. Tokens of a name that was idle for longer increase unless
	// clocks have gone back by more than that. If programs set different times, the longest
	// counts of those that have had a lock of the name. It is stored with the counter, so a
	// shorter time applies once the counter has expired. The default is an hour; less than a
	// minute, or more than ten years, is an error.
	KeepCounter time.Duration
}

// Locker grants locks that a majority of its nodes agrees on. It implements [locker.Locker],
// [locker.Inspector], [locker.Breaker] and [locker.Lister].
//
// Inspect shows those holders whom a majority has, each with the number that a majority has
// for it, or 0 where nodes that do not answer decide. A node that does not answer counts as one that has nothing. The
// token of a free lock is the last holder's or greater: a node that was too late
// to count for that holder may have drawn another.
//
// Break frees the lock on all nodes, and what an attempt without a majority may have left
// there. It leaves a key alone that has no expiry and that Lockstile did not write, for it
// may be data. If a majority has such a key, the error says so, and is a [locker.ErrTaken]; a
// minority's is passed over. Once it has returned, and all nodes have answered, nobody whose Lock had returned
// before has a majority. A node has a second. With a hundred readers over a slow network that is too little: the error is a
// [locker.ErrUnavailable], and another Break goes on with those that are left.
//
// BreakHolder first looks for whom a majority has the number, and frees what that one has on any node. Where nodes that
// do not answer decide, it frees nothing, and its error is a [locker.ErrUnavailable].
//
// List has each node go through all of its keys (SCAN), and looks at each name below prefix
// that has had a lock within the last hour ([Options].KeepCounter): that takes a second or so
// for a million keys, and other requests are served in between. A name is held if a majority
// has it under one holder, as for Inspect. Names that only clients of other libraries have
// locked are not found, and where a hook of a client's rewrites keys, List is refused.
type Locker struct {
	driver.Methods
	store *store
}

// New returns a Locker on independent masters, three at least, whose clients it
// never closes. New sends nothing; once two nodes turn out to be one server, every Lock
// fails. Make one Locker per process and set of nodes: its goroutines share one place in
// the queues, a subscription per node and their renewals.
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
	var err error
	if opts.KeepCounter, err = redisnode.KeepFor(opts.KeepCounter); err != nil {
		return nil, fmt.Errorf("redlock: %w", err)
	}
	names, err := nameNodes(nodes)
	if err != nil {
		return nil, err
	}
	s := &store{opts: opts, quorum: majority(len(nodes))}
	least := math.MaxInt
	for i, rdb := range nodes {
		s.nodes = append(s.nodes, newNode(names[i], rdb, opts))
		least = min(least, cap(s.nodes[i].conns))
	}
	s.contests = make(chan struct{}, least)
	s.locks = driver.New("redlock", s, driver.Options{})
	return &Locker{s.locks, s}, nil
}

// Close ends the subscriptions and the waiting: waiters get
// [locker.ErrClosed]. It waits, for two seconds at most, for calls, requests
// and clean-ups under way. Locks that are held stay held, renewed and unlockable; the
// clients stay open.
func (l *Locker) Close() error {
	err := l.Methods.Close()
	var mails sync.WaitGroup
	for _, n := range l.store.nodes {
		mails.Go(n.redis.Mail().Close)
	}
	mails.Wait()
	return err
}

// store is the [driver.Store].
type store struct {
	opts   Options
	nodes  []*node
	quorum int
	locks  *driver.Locker[*attempt]
	mu     sync.Mutex

	contests   chan struct{}         // those that wait for a majority's first answers: as many as a node has connections
	sameServer atomic.Pointer[error] // two nodes are, which nothing can mend
}

// Guarantees implements [driver.Store].
func (s *store) Guarantees() locker.Guarantees {
	g := locker.Guarantees{
		Exclusion:      locker.PromptHolder | locker.SteadyClocks,
		Tokens:         locker.ForwardClock,
		Fair:           true,
		Shared:         true,
		FreedBy:        locker.FreedByExpiry,
		KeepsMinHold:   true,
		ServerFailures: (len(s.nodes) - 1) / 2,
	}
	if s.opts.DurableNodes { // a node that forgot would vote before the clock has passed its counter for sure
		g.Exclusion |= locker.DurableServer
		g.Tokens |= locker.DurableServer
	}
	return g
}

// Begin implements [driver.Store].
func (s *store) Begin(req *driver.Request) (*attempt, error) {
	switch {
	case req.TTL > s.opts.MaxTTL:
		return nil, fmt.Errorf("ttl %v is over the limit of %v (Options.MaxTTL)", req.TTL, s.opts.MaxTTL)
	case req.MinHold > s.opts.MaxTTL: // a node that has forgotten the lock votes again after that
		return nil, fmt.Errorf("minimum hold %v is over the limit of %v (Options.MaxTTL)", req.MinHold, s.opts.MaxTTL)
	}
	terms := new(redisnode.Terms)
	if err := terms.Init(req, s.opts.Prefix); err != nil {
		return nil, err
	}
	return &attempt{parts: s.newParts(terms)}, nil
}
