// Package singlenode implements [locker.Locker] on one Redis: a standalone
// server, one behind Sentinel, or the master of a key's slot in a Cluster.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	locks, err := singlenode.New(rdb, singlenode.Options{Prefix: "lock:"})
//
// A lock is one request, and so is an unlock. A dead holder's lock is free when its TTL ends. Processes
// that wait are notified, in order of arrival. Exclusive locks, shared locks and slots are there.
//
// Use it where two holders at once only waste work, or guard the writes with the token. If the server
// forgets a lock in a crash or a failover, somebody else gets it, and tokens go on to increase. If a
// replica may be promoted, set [Options].Replicas.
//
// The key of a lock is its name, after [Options].Prefix: give your data other keys.
//
// # Guarantees
//
// At most one holder at a time while the server keeps its data. A crash can hand a
// held lock to a second holder, unless the server has an append-only file that is
// synced always; so can a failover to a replica that lags, which [Options].Replicas
// makes less likely, and one to a replica whose clock is ahead (see Clocks). Tokens
// increase even then, unless the server's clock goes back at the same time: each is
// greater than the last and at least that clock in microseconds. The counter of a name
// that nobody uses is kept for an hour ([Options].KeepCounter); after that its tokens
// depend on a clock that did not go back by more than that. Guard writes with them.
//
// Waiters of different Lockers are served in order of arrival. Goroutines of one Locker
// pass the lock on to each other in memory, up to 64 times and for 25 ms at most, before
// it goes to another process.
//
// [locker.WithShared] and [locker.WithSlots] work as well. Readers and writers of a name wait
// in one queue: a writer that waits keeps later readers out, and readers that follow one
// another are let in together. Each reader, and each slot, has a lease and a number of its
// own, so one that dies frees its own share alone, at the end of its own lease. What is said
// here of crashes, failovers and tokens is true of them, too.
//
// A lock can go on in another process: [locker.Lock.Detach] and [locker.Resume]. The handle has the value of the lock's key.
//
// What [locker.WithMinHold] has left at Unlock, the server has: the key stays, with a value
// that nobody holds, and waiters are notified when it ends. With Replicas they confirm
// it. An Unlock that fails asks again in the background, and never for longer.
//
// # Other programs
//
// A lock's key is its name, holding a random value with an expiry, as the
// Redlock page describes (redis.io, "Distributed Locks with Redis"). So clients
// of other libraries that follow that page exclude us and we them. They know
// nothing of the queue: while such clients poll, the order of arrival is not guaranteed.
// They tell nobody when they give a lock back, so the first in the queue looks ten times a
// second. If somebody deletes the key of one of our locks, its waiters are served when the
// holder finds that out: when it unlocks, or after a third of the TTL at the latest.
//
// While a name is shared, or slots of it are held, its key has a value that nobody has, and
// lasts until the end of the last lease, so clients of other libraries are kept out. If one of
// them deletes the key, our own are kept out all the same, and the next renewal writes the
// key again; if another has locked it by then, the renewal finds the lock lost.
//
// # Losing a lock
//
// A lock is lost when its lease ends unrenewed, or when a renewal finds the key
// gone or changed: after a third of the TTL at the latest. Waiters learn of a
// release through publish and subscribe. A waiter is passed over at once if its
// connection is gone, and after half a second if it is paused. If a notification is lost,
// that costs at most the rest of the holder's lease. A Cluster can lose one without an
// error: there it costs at most 5 s, and 5 s more for each waiter before the one that
// should have had it.
//
// A writer that waits for readers asks once a second whether they have gone. If it has not
// asked for a second and a half, it loses its place, so that readers behind it can go on. (A
// writer whose requests take longer than a quarter of a second gets twice that time in place
// of the half second, and five seconds at most.) The first reader behind it finds that out two
// seconds after the writer's last request, and each other reader a tenth of a second after the
// one before it.
//
// Any other waiter leaves the queue when it has not asked for seven seconds longer than the
// lease had left when it asked last, if somebody else still asks. A waiter that was paused
// returns to its place when it asks again.
//
// # Clocks
//
// The lease ends by the server's clock, which starts when the server carries
// the request out. Validity counts on the holder's clock of elapsed time, read
// before the request was sent, and ends a hundredth of the TTL and 2 ms early. What is
// left of a minimum hold ends by the server's clock, and counts from when it handles the
// Unlock.
//
// A replica has a lease as the time of its end. If it takes over and its clock is ahead
// of its master's by more than that hundredth and 2 ms, it ends the lease while the
// holder believes, though it has confirmed the grant. So exclusion assumes clocks that
// agree (AgreedClocks), with Replicas as without: keep them by NTP on all servers that
// may be promoted. A server that is started with its data on another machine is such a
// successor, too.
//
// A request for a lock may reach the server after its attempt was given up and cleaned up. For a
// minute and a TTL of the server's clock it is refused. One that arrives even later, or after that
// clock has stepped forward by as much, leaves a lock behind, which ends with its TTL. If a
// clean-up could not be confirmed, the error is [locker.ErrOutcomeUnknown].
//
// # A silent server
//
// A call runs in its caller's goroutine, and go-redis does not interrupt a read when a context ends.
// Set ContextTimeoutEnabled in the client's options: then Lock, TryLock, Inspect, List and Break
// return at the deadline of their context. Without it, a server that says nothing holds them for as long as
// anything else that you ask the client for: for the ReadTimeout, which is 5 s by default.
//
// A context that is cancelled before its deadline is noticed at the server's answer, or at that
// timeout, with either setting. Lock then returns the cause, and a lock that was granted meanwhile
// is given back. Cancellation is noticed at once while Lock waits for a holder, for another goroutine of its process,
// for a connection of the pool, or while a new connection is dialled.
//
// Unlock waits for two seconds at most. Renewals and clean-ups have a time of their own too, which is
// shorter than the client's: a connection that is dead loses no lock while others work. Without
// ContextTimeoutEnabled, Unlock needs another goroutine for that, which takes a quarter of the time of a lock and its unlock.
// (With it, a hook of the client that sleeps delays Unlock.)
//
// A client without timeouts (ReadTimeout or WriteTimeout -1 or -2) would hold a call for ever. So each
// request of its has another goroutine, and returns when its context ends.
//
// # Requirements
//
// Redis 7.0 or later, or a fork that has its commands (Valkey): an older server is
// refused before anything is written. Lua scripts, and publish and subscribe. An eviction
// policy that spares keys with an expiry (noeviction): if its key is evicted, a lock is lost.
// Names that begin with "lockstile:" are reserved for queues, counters and marks; a user
// restricted by ACL needs "~lockstile:*" and "&lockstile:*" besides the names it locks,
// "+scan" for [Locker.List], and "+wait" with Replicas. Every user of the locks needs "+publish":
// nobody hears of a release by one who may not. A waiter who may not, either, looks by itself,
// the first one ten times a second. A waiter who may cannot know of the other, and notices that
// release when the lease would have ended (in a Cluster after 5 s, if that is sooner).
//
// A server whose memory is full grants nothing, and goes on to renew locks and to take them
// back. Data that somebody has written under the name of a lock, without an expiry, keeps the
// lock taken: errors and Inspect say so. Break leaves it alone: if you are sure, delete it yourself.
//
// Renewals share the client's pool: give it more connections than the application keeps
// busy for long. Set ContextTimeoutEnabled in the client's options: see above.
//
// Hooks of the client see every request except the subscription, for which go-redis has no
// hooks. They may rewrite keys, all of which are strings, if they do the same in every
// context: renewals have a context of their own. In a Cluster, keys of one slot must stay
// in one slot.
//
// While a slot of a Cluster moves to another master, its locks are renewed. To lock or
// unlock there may fail with [locker.ErrUnavailable] until it has moved. With Replicas
// renewals may fail, too, if that master has no slot yet. What is shared, and slots, have
// three keys a name: their renewals may fail while some of these have moved and others
// have not.
package singlenode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/redisclient"
	"github.com/lockstile/locker/internal/redisnode"
)

// Options are a Locker's settings. The zero value is ready to use.
type Options struct {
	// Prefix goes before the name of every lock to make its key. The default
	// is none.
	Prefix string

	// Replicas is how many replicas must have received a grant or a renewal
	// before it counts (WAIT). Set it to the number of all replicas that may
	// be promoted. A server that cannot get so many confirmations within a
	// second by its clock grants nothing. The default is 0: a failover may forget locks.
	//
	// In a Cluster, what must be confirmed goes to the masters' own clients. Hooks of
	// the ClusterClient do not see it (those that OnNewNode adds do), and one that
	// rewrites keys is refused when the first lock is asked for.
	Replicas int

	// KeepCounter is how long the server keeps the counter of a name's tokens, about 200
	// bytes, after the name's last lease. Tokens of a name that was idle for longer increase
	// unless the server's clock has gone back by more than that. If programs set different
	// times, the longest counts of those that have had a lock of the name. It is stored with
	// the counter, so a shorter time applies once the counter has expired. The default is an
	// hour; less than a minute, or more than ten years, is an error.
	KeepCounter time.Duration
}

// Locker grants locks on one Redis. It implements [locker.Locker], [locker.Inspector],
// [locker.Breaker], [locker.Lister] and [locker.Resumer].
//
// Break leaves a key alone that has no expiry and that Lockstile did not write, for it may be data: the
// error says so, and is a [locker.ErrTaken].
//
// List has the server go through all of its keys (SCAN), on a Cluster every master, and then
// looks at each name below prefix that has had a lock within the last hour
// ([Options].KeepCounter): that takes a second or so for a million keys, and other requests
// are served in between. Names that only clients of other libraries have locked are not
// found, and where a hook of the client's rewrites keys, List is refused.
type Locker struct {
	driver.Methods
	store *store
}

// New returns a Locker on rdb, which it never closes: a *redis.Client or a
// *redis.ClusterClient. What wraps one is refused, for it may send a lock's requests
// to another server than its notifications. New sends nothing. Make one Locker per
// process and server: its goroutines share one place in a queue, one subscription and
// their renewals.
func New(rdb redis.UniversalClient, opts Options) (*Locker, error) {
	if opts.Replicas < 0 {
		return nil, fmt.Errorf("singlenode: replicas %d is negative", opts.Replicas)
	}
	keep, err := redisnode.KeepFor(opts.KeepCounter)
	if err != nil {
		return nil, fmt.Errorf("singlenode: %w", err)
	}
	if err := redisclient.Usable(rdb); err != nil {
		return nil, fmt.Errorf("singlenode: %w", err)
	}
	s := &store{opts: opts, node: redisnode.New(rdb, opts.Replicas)}
	s.node.Keep = keep
	_, s.isCluster = rdb.(*redis.ClusterClient)
	return &Locker{driver.New("singlenode", s, driver.Options{}), s}, nil
}

// Close ends the subscription and the waiting: waiters get [locker.ErrClosed].
// It waits, for about two seconds at most, for calls and clean-ups under way. Locks that are
// held stay held, renewed and unlockable; the client stays open.
func (l *Locker) Close() error {
	err := l.Methods.Close()
	l.store.node.Mail().Close()
	return err
}

// store is the [driver.Store].
type store struct {
	opts      Options
	node      *redisnode.Node
	isCluster bool // whose masters pass words on to each other
}

// attempt is one attempt at a name, and the hold that comes of it.
type attempt struct {
	redisnode.Attempt
	terms  redisnode.Terms // its first; with another value they are elsewhere
	ticket int64           // of its place in the queue
	noLock bool            // what keeps it waiting is no lock, by the last answer
}

func (s *store) Guarantees() locker.Guarantees {
	g := locker.Guarantees{
		Exclusion:    locker.PromptHolder | locker.SteadyClocks | locker.AgreedClocks | locker.DurableServer | locker.DurableReplica,
		Tokens:       locker.ForwardClock,
		Fair:         true,
		Shared:       true,
		Slots:        true,
		FreedBy:      locker.FreedByExpiry,
		KeepsMinHold: true,
		Detaches:     true,
	}
	if s.opts.Replicas > 0 {
		g.Exclusion &^= locker.DurableReplica
	}
	return g
}

func (s *store) Begin(req *driver.Request) (*attempt, error) {
	a := new(attempt)
	a.Terms = &a.terms
	return a, a.terms.Init(req, s.opts.Prefix)
}

func (s *store) Acquire(ctx context.Context, a *attempt, wait driver.Wait) (driver.Grant, driver.Left, error) {
	grant, left, err := s.acquire(ctx, a, wait)
	if errors.Is(err, redisnode.ErrWithdrawn) {
		if err = s.changeValue(ctx, a); err == nil {
			grant, left, err = s.acquire(ctx, a, wait)
		}
	}
	if err = refused(err); a.noLock && grant.Count == 0 && (err == nil || ctx.Err() != nil) {
		err = redisnode.ErrNoLock
	}
	if a.Unsure() {
		left = driver.Unsure
	}
	return grant, left, err
}

// changeValue gives a another value. The server refuses the old one: the attempt was
// granted the lock, the answer was lost, and somebody has broken the lock since. After
// the withdrawal the old value is refused for as long as its requests may be on their way.
func (s *store) changeValue(ctx context.Context, a *attempt) error {
	if err := s.node.Withdraw(ctx, &a.Attempt); err != nil {
		return err
	}
	a.Terms, a.ticket = a.WithNewValue(), 0
	return nil
}

func (s *store) acquire(ctx context.Context, a *attempt, wait driver.Wait) (driver.Grant, driver.Left, error) {
	return s.node.Mail().Acquire(ctx, a.Value, wait, func(ctx context.Context, queue bool) (driver.Grant, time.Duration, error) {
		return s.ask(ctx, a, queue)
	})
}

// ask asks once, and says when to ask again.
func (s *store) ask(ctx context.Context, a *attempt, queue bool) (driver.Grant, time.Duration, error) {
	since := driver.Now()
	standing, err := s.node.Acquire(ctx, &a.Attempt, redisnode.Ask{Queue: queue, Ticket: a.ticket, Since: since})
	a.noLock = standing.NoLock // not after an error: what was is not said of a server that is silent
	switch {
	case err != nil:
		return driver.Grant{}, 0, err // the place in the queue may still be there, or is asked for again
	case standing.First == 0:
		a.ticket = max(a.ticket, standing.Ticket) // 0 if it was not to queue
		return driver.Grant{}, s.nextLook(standing), nil
	}
	return driver.Grant{First: standing.First, Count: standing.Count, Slot: standing.Slot, Since: since}, 0, nil
}

// nextLook is when to ask again where no word comes. A Cluster drops words while its
// masters cannot reach each other. So there we look sooner, the later the more are
// before us.
func (s *store) nextLook(st redisnode.Standing) time.Duration {
	if s.isCluster {
		return min(st.NextLook(), time.Duration(1+st.Ahead)*clusterLook)
	}
	return st.NextLook()
}

// clusterLook is when the first of a queue in a Cluster looks whether a word was lost.
const clusterLook = 5 * time.Second

func (s *store) Renew(ctx context.Context, as []*attempt) []error {
	attempts := make([]*redisnode.Attempt, len(as))
	for i, a := range as {
		attempts[i] = &a.Attempt
	}
	errs := s.node.Renew(ctx, attempts)
	for i, err := range errs {
		errs[i] = refused(err)
	}
	return errs
}

// refused marks an error with which the server declines to serve.
func refused(err error) error {
	if err != nil && redisnode.Refused(err) { // nil would cost an allocation
		return driver.Refused(err)
	}
	return err
}

func (s *store) Release(ctx context.Context, a *attempt, keep time.Duration) error {
	return s.node.Release(ctx, &a.Attempt, keep)
}

func (s *store) Withdraw(ctx context.Context, a *attempt) error {
	return s.node.Withdraw(ctx, &a.Attempt)
}

// ID implements [driver.Detacher].
func (s *store) ID(a *attempt) string { return a.Value }

// Resume implements [driver.Detacher].
func (s *store) Resume(ctx context.Context, a *attempt, ids []string) (driver.Grant, driver.Left, error) {
	since := driver.Now()
	standing, err := s.node.Resume(ctx, &a.Attempt, ids, since)
	return driver.Grant{First: standing.First, Count: standing.Count, Since: since}, driver.UnsureIf(a.Unsure()), refused(err)
}

// Adopt implements [driver.Detacher].
func (s *store) Adopt(a *attempt, id string) error { return a.Adopt(id) }

// Inspect implements [locker.Inspector].
func (s *store) Inspect(ctx context.Context, name string) (locker.Info, error) {
	keys, err := redisnode.NewKeys(s.opts.Prefix + name)
	if err != nil {
		return locker.Info{}, err
	}
	v, err := s.node.Look(ctx, keys)
	return v.Info, err
}

// List implements [locker.Lister].
func (s *store) List(ctx context.Context, prefix string) ([]locker.Info, error) {
	views, err := s.node.List(ctx, s.opts.Prefix+prefix)
	infos := make([]locker.Info, len(views))
	for i, v := range views {
		infos[i] = v.Info
		infos[i].Name = strings.TrimPrefix(v.Name, s.opts.Prefix)
	}
	return infos, err
}

// Break implements [driver.Breaker].
func (s *store) Break(ctx context.Context, name string, number locker.Number) (bool, error) {
	keys, err := redisnode.NewKeys(s.opts.Prefix + name)
	if err != nil {
		return false, err
	}
	return s.node.Break(ctx, keys, redisnode.Numbered(number))
}
