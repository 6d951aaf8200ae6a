// Package zookeeper implements [locker.Locker] on ZooKeeper.
//
//	session := zookeeper.NewSession(nil)
//	conn, _, err := zk.Connect([]string{"h1:2181", "h2:2181", "h3:2181"}, 10*time.Second, zk.WithDialer(session.Dial))
//	locks, err := zookeeper.New(conn, zookeeper.Options{Session: session})
//
// Use it for correctness where servers may fail: with three servers one may be down, with five two. Guard the
// writes with the token. A lock is one request, or two if nobody has used the name
// lately, and an unlock is one. A dead holder's lock is free when the session
// of its process ends. Waiters watch the one before them, in order of arrival. Exclusive and shared
// locks are there, and no slots.
//
// # Guarantees
//
// At most one holder at a time, through crashes, failovers and partitions of the
// servers, while the holder is not paused beyond its validity and clocks run at
// the same rate. The token is the zxid that made the holder's place in the
// queue, times 1,024, plus the number of the goroutine's turn: ZooKeeper orders all
// its changes by the zxid, so tokens increase for as long as an ensemble keeps its
// data, which it writes to the disks of a majority. After four million elections of a
// leader such a token would not fit, and locks get an error instead.
// Waiters of different Lockers are served in order of arrival; goroutines of one
// Locker pass the lock on to each other in memory, for 25 ms at most, before it goes
// to another process.
//
// # Nodes, and other programs
//
// Nodes are laid out as in ZooKeeper's lock recipe, base/name/_c_guid-lock-0000000042,
// so Curator's InterProcessMutex and zk.Lock on the same path exclude us and we
// them. We wait for kazoo's Lock, too. But kazoo looks only at nodes of its own kind, and
// waits for ours only if it is told to:
//
//	Lock(client, path, extra_lock_patterns=["-lock-"])  # kazoo 2.8 or later
//
// The nodes of readers ([locker.WithShared]) are base/name/_c_guid-read-lock-0000000042. A
// reader waits for the last node before its own that is not one of these, everybody else for
// the one right before. So those other locks exclude our readers and ours them. (Do not mix
// our locks with kazoo's ReadLock or Curator's InterProcessReadWriteLock: we wait for their
// nodes, and they have other rules for ours.) A reader that does not come alone needs one more
// request, which shows whether the others are readers. Its number is the zxid of its node,
// times 1,024. There are no slots.
//
// Characters that a path cannot have are escaped as %XX.
// The nodes of names are containers, which the server removes when they are
// empty; their data is overwritten. The base stays.
//
// The server numbers the places of a queue from 0 to 2147483647, and gives every later
// place the last number again. A Locker refuses that number, waits until the queue is
// empty, removes its node, and begins another queue; the order of arrival is lost this
// once. Other libraries take the last number, and after that their locks exclude nobody. If
// you use one of them and a name has been locked two thousand million times, remove its
// node while nobody uses it.
//
// # Losing a lock
//
// A lock lasts no longer than the session of the zk client. When the holder has died, the
// servers end its session after one session timeout, rounded up to their ticks. The
// session is renewed every seventh of its timeout, for all locks and waiters together. A
// holder that hears nothing from the servers gives up by its own clock, five twelfths of
// the session timeout after it sent the last renewal that was answered. A node that
// somebody has deleted is found missing by the next look at it, after a third of the
// lock's TTL. Closing the connection frees its locks at once. With [Options].Session their
// holders lose them before that; without it they go on believing, so unlock first.
//
// After Unlock the process keeps the lock for the rest of [locker.WithMinHold]: it is free
// early if the process ends, or its session.
//
// # Clocks
//
// Only the rates of clocks count. The leader hears of a client's signs of life through
// the server that the client is connected to, half a tick later. If that server fails in
// between, the session runs from the sign before, and the client gives one every third of
// the timeout. A tick is half of the timeout at most. Hence the five twelfths.
//
// A renewal is a transaction and not a read, because a server that has lost the leader
// answers reads for a while. For the same reason a lock is believed in for no longer than
// its session, whichever server said that it is the first of its queue.
//
// One case is not covered: the holder is paused and its pings are late, or the leader is
// paused and asks late, and in the same moments the holder's server fails. A guard in the
// storage covers it.
//
// # Requirements
//
// ZooKeeper 3.5.3 or later (containers). A Locker must know the session timeout, which the
// zk client does not tell: see [Options]. The session timeout takes the place of a lock's
// TTL, and must not be longer than that; a shorter one frees a dead holder's lock sooner. It
// must be two ticks of the servers or more, and it is, unless somebody has set their
// minSessionTimeout to less; locker doctor checks that. A client that changes to a server
// which grants less loses its locks. Close the Locker before its connection. Nodes below
// the base must allow what Options.ACL allows.
//
// A name's container and a place in it are two requests. If the process ends between them, the
// container has never had a child, and the servers keep it for ever, unless they are told
// otherwise: set znode.container.maxNeverUsedIntervalMs (a system property of ZooKeeper 3.6 and
// later) to some minutes where programs lock names that never come again.
package zookeeper

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/zkclient"
)

// DefaultBase is where locks are without Options.Base.
const DefaultBase = "/lockstile"

// Options are a Locker's settings. One of Session and SessionTimeout is needed.
type Options struct {
	// Session tells the session timeout that the servers have granted. The
	// connection must have been made with its Dial.
	Session *Session

	// SessionTimeout is the session timeout that all the servers grant, for
	// a connection that was made without a Session. It may differ from what zk.Connect
	// was asked for: servers raise that to two ticks and lower it to twenty. If this is
	// longer than what was granted, two may hold the same lock.
	SessionTimeout time.Duration

	// Base is the node below which the locks are. The default is DefaultBase.
	Base string

	// ACL is what nodes are made with, such as zk.DigestACL(zk.PermAll, …) on
	// a connection that has authenticated itself. All Lockers of a base need
	// all permissions. The default is zk.WorldACL(zk.PermAll): everybody who
	// reaches the servers may do anything.
	ACL []zk.ACL
}

// Locker grants locks on one ZooKeeper ensemble. It implements [locker.Locker],
// [locker.Inspector], [locker.Breaker] and [locker.Lister].
//
// Inspect: the servers do not say when a session would end, so TimeLeft is its timeout: how
// long the lock stays if the holder falls silent now; 0 if the holder is not one of ours. The
// token of a free lock is not known. Each reader takes a request, and Token is the number of
// the last of those who have the lock. List takes three requests a name.
//
// Break deletes the first node of the queue, whichever library made it, or those of the
// readers who have the lock. The next waiter gets the lock at once; the holder finds out at
// its next renewal, after a third of its TTL at the latest.
//
// Close ends the waiting: waiters get [locker.ErrClosed]. It waits, for about two seconds at
// most, for calls and clean-ups under way; what they could not remove ends with the session.
// Locks that are held stay held, renewed and unlockable; the connection stays open.
type Locker struct {
	driver.Methods
	store *store
}

// New returns a Locker on conn, which it never closes. It sends nothing. Make one Locker
// per process and ensemble: its goroutines share a place in the queue and their renewals.
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
	if opts.Session == nil {
		opts.Session = NewSession(nil)
		opts.Session.timeout.Store(int64(opts.SessionTimeout))
	}
	s := newStore(conn, opts)
	return &Locker{s.locks, s}, nil
}

// Guarantees implements [locker.Locker]. They are those of every Locker, also of a nil one.
func (*Locker) Guarantees() locker.Guarantees {
	return locker.Guarantees{
		Exclusion: locker.PromptHolder | locker.SteadyClocks,
		Fair:      true,
		FreedBy:   locker.FreedBySession,
		Shared:    true,
	}
}
