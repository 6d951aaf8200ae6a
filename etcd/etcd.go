// Package etcd implements [locker.Locker] on an etcd cluster.
//
// # Guarantees
//
// At most one holder at a time, crashes of servers and changes of leader
// included: what etcd has acknowledged is on the disks of a majority. Tokens are
// revisions of the store, so they increase through all of that, too. (A cluster
// that is restored from an old backup starts again at an old revision, unless
// that is raised in the restore: etcdutl snapshot restore --bump-revision.)
// Waiters of different processes are served in order of arrival; goroutines of
// one Locker hand the lock to each other only while nobody else waits.
//
// A lock's keys are laid out as package concurrency of etcd's client does it:
// <name>/<lease>, the oldest one being the holder's. So programs that use its
// Mutex, and etcdctl lock, exclude us and we them. In names, "/" is written
// "%2F" and "%" is written "%25", for the waiters of "a" would otherwise wait
// for the holder of "a/b": to share a lock with a Mutex on "/locks/a", make a
// Locker with [Options].Prefix "/locks/" and lock "a".
//
// # Losing a lock
//
// All locks of a Locker that have one TTL hang on one lease, which the Locker
// keeps alive: the session. They are lost together when it ends, by the servers'
// word or because the servers are silent. A lock whose key was deleted is lost
// when its next renewal finds out, after a third of the TTL at the latest.
//
// A waiter that has died is passed over when its lease ends, after a TTL at most.
// One that has a place and loses its session takes a new place at the end.
//
// # Clocks
//
// The lease ends by the clock of elapsed time of the cluster's leader, and
// starts again when the leader changes. Validity counts on the holder's clock of
// elapsed time, read before the last renewal of the session was sent, and ends a
// hundredth of the TTL and 2 ms early. So a new lock may have a TTL less a third
// of validity at first; options that lean on the beginning (WithoutRenewal,
// WithMaxHold, WithMinValidity) renew the session while they ask for the lock, or
// when they have waited for it.
//
// # Requirements
//
// etcd 3.5.13 or later: a leader of earlier ones that hangs, and is replaced
// meanwhile, may end leases that its successor has kept alive, while their holders
// believe. A TTL is a whole number of seconds and not under the servers' limit,
// one and a half times their election timeout rounded up: 2 s by default. A user
// needs the permission to read and write what begins with [Options].Prefix.
// No name below the prefix of one Locker is the prefix of another. Set
// DialKeepAliveTime in the client's Config: without it, the client goes on sending
// a share of its requests to a server that hangs or is cut off.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/chores"
	"github.com/lockstile/locker/internal/line"
)

// Options are a Locker's settings. The zero value is ready to use.
type Options struct {
	// Prefix goes before the name of every lock to make its keys, as it is.
	// The default is none.
	Prefix string
}

// Locker grants locks on one etcd cluster.
type Locker struct {
	client   *clientv3.Client
	opts     Options
	lines    line.Lines[*attempt]
	keeper   *locker.Keeper
	keepTime time.Duration

	closing  context.Context // ends with Close
	close    context.CancelCauseFunc
	mu       sync.Mutex
	sessions map[time.Duration]*slot
	held     map[*locker.Lock]*attempt
	watches  map[string]*watch // kept for their folders' next waiters
	chores   chores.Chores     // revocations and clean-ups
}

var (
	_ locker.Locker    = (*Locker)(nil)
	_ locker.Inspector = (*Locker)(nil)
	_ locker.Breaker   = (*Locker)(nil)
)

// New returns a Locker on client, which it never closes. Make one per process
// and cluster: its goroutines share one place in a queue and one lease. New does
// not ask the servers anything.
func New(client *clientv3.Client, opts Options) (*Locker, error) {
	if client == nil {
		return nil, errors.New("etcd: the client is nil")
	}
	l := &Locker{
		client: client, opts: opts, keepTime: keepTime,
		sessions: make(map[time.Duration]*slot), held: make(map[*locker.Lock]*attempt),
		watches: make(map[string]*watch),
	}
	l.closing, l.close = context.WithCancelCause(context.Background())
	l.keeper = locker.NewKeeper(l.renew)
	return l, nil
}

// Lock implements [locker.Locker]. The first lock with a TTL, and the first after
// a session was lost, costs one round trip more than others, for the lease.
func (l *Locker) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	a, err := l.newAttempt(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	if a.turn, err = l.lines.Stand(ctx, l.closing, name, a); err != nil {
		return nil, fmt.Errorf("etcd: lock %q: %w", name, err)
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
		return nil, fmt.Errorf("etcd: lock %q: %w", name, locker.ErrTaken)
	}
	a.turn = turn
	return l.finish(ctx, a, l.try(ctx, a))
}

// checkTTL refuses what etcd would round. Its floor is known when a lease is
// asked for.
func checkTTL(req *locker.Request) error {
	if req.TTL%time.Second != 0 {
		return fmt.Errorf("ttl %v is not a whole number of seconds, in which etcd counts", req.TTL)
	}
	return nil
}

// finish makes the lock of a granted attempt, and clears away one that failed.
func (l *Locker) finish(ctx context.Context, a *attempt, err error) (*locker.Lock, error) {
	if err == nil {
		err = a.validate(ctx)
	}
	if err != nil {
		if !l.abandon(a) {
			err = fmt.Errorf("%w: %w", locker.ErrOutcomeUnknown, err)
		}
		return nil, fmt.Errorf("etcd: lock %q: %w", a.req.Name, err)
	}
	lock := locker.NewLock(locker.Hold{
		Request: a.req,
		Token:   a.token(),
		Since:   a.since,
		Keeper:  l.keeper,
		Lease:   &lease{a.session, a},
		Release: func(ctx context.Context) error { return l.release(ctx, a) },
		Lost:    func() { l.lost(a) },
	})
	l.note(a, lock)
	return lock, nil
}

// validate sets when validity counts from: the session's last renewal. A caller
// with wishes that lean on it gets one that was sent with the request for the
// lock, or after it if it had to wait.
func (a *attempt) validate(ctx context.Context) (err error) {
	if a.plain() {
		a.since = a.session.since()
	}
	if a.since < a.asked && (!a.plain() || locker.Now().Sub(a.since) > a.req.TTL/2) {
		if a.since, err = a.session.keepAlive(ctx); err != nil {
			return a.failed(ctx, err)
		}
	}
	return a.req.CheckValidity(a.since)
}

// plain reports whether the lock can do with what is left of the session's TTL.
func (a *attempt) plain() bool {
	return a.req.Renew && a.req.MaxHold == 0 && a.req.MinValidity == 0
}

// Guarantees implements [locker.Locker]. Tolerates goes by the number of the
// client's endpoints: give it those of all members.
func (l *Locker) Guarantees() locker.Guarantees {
	return locker.Guarantees{
		Exclusion: locker.PromptHolder | locker.SteadyClocks,
		Tokens:    0,
		Fair:      true,
		Release:   locker.BySession,
		Tolerates: max(0, len(l.client.Endpoints())-1) / 2,
	}
}

// Close ends the waiting: waiters get [locker.ErrClosed]. It waits for clean-ups
// under way, for some seconds at most. Locks that are held stay held, renewed and
// unlockable; a session goes with the last of its locks. The client stays open.
func (l *Locker) Close() error {
	l.close(locker.ErrClosed)
	l.mu.Lock()
	slots := make([]*slot, 0, len(l.sessions))
	for _, s := range l.sessions {
		slots = append(slots, s)
	}
	l.mu.Unlock()
	for _, s := range slots {
		s.turn <- struct{}{} // whoever has it gives up, for the Locker is closing
		if s.session != nil {
			s.session.endUnused(0)
		}
		<-s.turn
	}
	l.chores.Wait()
	return nil
}
