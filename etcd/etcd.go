// Package etcd implements [locker.Locker] on an etcd cluster.
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"h1:2379", "h2:2379", "h3:2379"}, DialKeepAliveTime: 5 * time.Second})
//	locks, err := etcd.New(client, etcd.Options{Prefix: "locks/"})
//
// Use it for correctness where servers may fail: with three members one may be down, with five two. Guard
// the writes with the token, or make the lock a condition of a transaction ([Locker.Held]) if the data
// is in etcd as well. A lock is one request, and so is an unlock. A dead holder's lock is free when the lease of its
// process ends, after a TTL. Waiters watch the one before them, in order of arrival. Exclusive locks,
// shared locks and slots are there.
//
// # Guarantees
//
// At most one exclusive holder at a time, also through crashes of servers and changes of leader:
// what etcd has acknowledged is on the disks of a majority. A grant has 1,024 tokens. They
// begin at 1,024 times the revision of the store at which its key was put, so they
// increase through all of that, too. (A cluster that is
// restored from an old backup starts again at an old revision, unless that is
// raised in the restore: etcdutl snapshot restore --bump-revision.) Waiters of
// different processes are served in order of arrival; goroutines of one Locker pass
// the lock on to each other in memory, for 25 ms at most, before it goes to another
// process.
//
// # Keys, and other programs
//
// Keys are laid out as package concurrency of etcd's client does it: whatever is
// below <name>/ stands in a queue in the order in which it was put, and the oldest key
// is the holder's. So programs that use its Mutex, and etcdctl lock, exclude us and we
// them. Ours are <name>/<lease>-<attempt>, and no two attempts share one. In names, "/"
// is written "%2F" and "%" is written "%25", for the waiters of "a" would otherwise
// wait for the holder of "a/b": to share a lock with a Mutex on "/locks/a", make a
// Locker with [Options].Prefix "/locks/" and lock "a".
//
// Readers ([locker.WithShared]) stand in the same queue. Their keys are
// <name>/~shared-<lease>-<attempt>, behind all others in the order of keys. A reader waits for
// those of an earlier place that do not read, a Mutex among them; we and a Mutex wait for
// readers as for anybody else. A reader's number is 1,024 times the revision at which its key
// was put. Readers who waited for the same lock are let in together, in any order.
//
// Who has one of n slots ([locker.WithSlots]) has the key <name>/~of<n>-<slot>-<lease>-<attempt>,
// and who waits for one has <name>/~of<n>-w-<lease>-<attempt>, which is deleted when a slot
// comes in its place. The token is 1,024 times the revision at which that was put. A slot takes
// one request, and with more than 50 slots one more if the first 50 are taken. A Mutex waits
// until all slots that are taken have been given back; from when it comes, a request for a slot
// is a [locker.ErrMismatch].
//
// What begins with ~ below <name>/ is ours: do not put other keys there.
//
// # Losing a lock
//
// All locks of a Locker with the same TTL depend on one lease in etcd, which the Locker
// keeps alive. They are lost together if the servers say that it has ended, or are silent
// for too long. A lock whose key was deleted is lost when its next renewal finds that out,
// after a third of the TTL at the latest.
//
// A lock that is unlocked before the end of [locker.WithMinHold] keeps its key, and its
// place, on a lease of its own, which the Locker ends at that time. If the process has ended
// by then, or the Locker was closed, the servers do. They are a little late, for they count
// in whole seconds, from their limit on, and begin again when their leader changes.
//
// A waiter that has died is passed over when its lease ends, after a TTL at most. A
// waiter that lives and loses its lease takes a new place, at the end of the queue.
//
// # Clocks
//
// The lease ends by the clock of elapsed time of the cluster's leader, and starts
// again when the leader changes. Validity counts on the holder's clock of elapsed
// time, read before the last renewal of the lease was sent, and ends a hundredth of
// the TTL and 2 ms early. So a new lock may have a TTL less a third of validity at
// first. With WithoutRenewal it ends a TTL after it was asked for, and no later.
//
// # Requirements
//
// etcd 3.5.13 or later: in earlier versions a leader that hangs, and is replaced
// meanwhile, may end leases that its successor has kept alive, while their holders
// believe. A TTL is a whole number of seconds and not under the servers' limit, one
// and a half times their election timeout rounded up: 2 s by default. A user needs the
// permission to read and write what begins with [Options].Prefix. No name below the
// prefix of one Locker is the prefix of another.
//
// A lock and its unlock leave some 190 bytes in the store until their revisions are compacted. Without
// compaction 11 million of them fill the 2 GB that a server takes by default, and from then on it
// refuses every lock (NOSPACE): set --auto-compaction-retention. "locker doctor" reports how full
// the servers are, and whether revisions are compacted.
//
// The servers read all keys of a name's queue for each TryLock that fails, and whenever a waiter for
// a slot looks: about 0.3 s where 50,000 wait. Other waiters have them read two keys.
//
// Set DialKeepAliveTime in the client's Config: without it, the client goes on sending
// a share of its requests to a server that hangs or is cut off. The client's
// interceptors see all requests; one that sends a write again must wait until the first
// has ended. A client with a namespace has it around its KV, its Lease and its Watcher.
// Connect to the servers, and not to etcd's gRPC proxy: it answers a renewal with what it
// hears next from the servers, which may be the answer to an earlier one (its
// keepAliveLoop). If they are slow, a holder may believe for too long by as much.
//
// A client that has a password sends it for each stream that it opens, and to check it
// keeps a server busy for 50 ms or more. A Locker opens one stream for all renewals of a
// TTL, and one for all its waiters, each time that the first of them begins to wait. With
// client certificates (--client-cert-auth) no password is sent. When the password of a client that
// holds locks is changed, no renewal is answered any more, and the locks are lost with their
// validity: change it between two processes, or give the new one to another user.
//
// If the servers grant a lease and the answer is lost, that lease stays, without keys, for
// its TTL. For each TTL a Locker asks for one lease at a time, for five seconds, however
// many callers wait for it.
package etcd

import (
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// Options are a Locker's settings. The zero value is ready to use.
type Options struct {
	// Prefix goes before the name of every lock to make its keys, as it is.
	// The default is none.
	Prefix string
}

// Locker grants locks on one etcd cluster. It implements [locker.Locker], [locker.Inspector],
// [locker.Breaker] and [locker.Lister].
//
// The first lock with a TTL, and the first after a lease was lost, costs one round trip more
// than others.
//
// Inspect does not know the token of a last holder that has gone, nor the last number of a
// name that is shared. Break deletes the holders' keys; a holder finds out at its next
// renewal, after a third of its TTL at the latest. List reads the keys of all holders and
// waiters below the prefix, as they were at one revision of the store.
//
// Guarantees' ServerFailures goes by the number of the client's endpoints: give it those of
// all members.
//
// Close ends the waiting: waiters get [locker.ErrClosed]. It waits, for two seconds at most,
// for calls and clean-ups under way. Locks that are held stay held, renewed and unlockable; a
// lease goes with the last of its locks. The client stays open.
type Locker struct {
	driver.Methods
	store *store
}

// New returns a Locker on client, which it never closes. New sends nothing. Make one
// Locker per process and cluster: its goroutines share one place in a queue and one
// lease. A client that has no connection of its own (v3client.New, NewCtxClient), or whose
// KV, Lease or Watcher was replaced by something else than a namespace, is refused.
func New(client *clientv3.Client, opts Options) (*Locker, error) {
	if client == nil {
		return nil, errors.New("etcd: the client is nil")
	}
	if err := usable(client); err != nil {
		return nil, err
	}
	s := &store{client: client, prefix: opts.Prefix}
	s.locks = driver.New("etcd", s, driver.Options{})
	s.sessions = driver.NewPool(s.locks, driver.Sessions[time.Duration, *session]{Open: s.open, Renew: s.keepAlive, End: s.end})
	return &Locker{s.locks, s}, nil
}

// Held returns the condition under which lock, which this Locker has granted, is
// held in the store. A transaction that has it among its conditions and writes to
// the same cluster needs no other guard: the store itself decides, in one step
// with the write, so no pause and no clock can come between. Held sends nothing.
//
//	held, err := locks.Held(lock)
//	…
//	resp, err := client.Txn(ctx).If(held).Then(clientv3.OpPut("balance", "42")).Commit()
//
// If resp.Succeeded is false, nothing was written, for the lock was lost. When such a
// lock is unlocked, its key is deleted, or put anew for the rest of
// [locker.WithMinHold], and it is not passed on to another goroutine in memory: nothing
// meets the condition from then on. For a lock that is known not to be
// held any more, Held returns its error, a [locker.ErrLost]. A shared lock is refused,
// because other readers would meet conditions of their own at the same time, and their
// writes would not be in order. The condition of a slot protects what belongs to that slot.
func (l *Locker) Held(lock *locker.Lock) (clientv3.Cmp, error) {
	if lock.SharedToken() != 0 {
		return clientv3.Cmp{}, fmt.Errorf("etcd: held %q: it is shared, so that others may write under conditions of their own: lock it exclusively", lock.Name())
	}
	a, ok := l.store.locks.Pin(lock)
	if ok {
		return asPut(a.key, a.place), nil
	}
	err := lock.Err()
	if err == nil {
		err = errors.New("it was not granted by this Locker")
	}
	return clientv3.Cmp{}, fmt.Errorf("etcd: held %q: %w", lock.Name(), err)
}
