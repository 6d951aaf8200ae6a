// Package register implements [locker.Locker] on any store that can compare and swap: one that replaces a record only if it is still
// the one that was read. A store's author writes two methods ([Store]); everything else is here: exclusive and shared locks and
// slots, tokens, a queue in order of arrival, minimum holds, Inspect and Break.
//
//	type kv struct{ … }
//
//	func (s kv) Get(ctx context.Context, name string) (register.Entry, error) { … }
//	func (s kv) Swap(ctx context.Context, name, version string, record []byte) (string, error) { … }
//
//	l, err := register.New(kv{…}, register.Options{Age: true})
//
// Package registertest checks a Store, and the locks on it.
//
// # Guarantees
//
// At most one holder believes in a lock for as long as the store keeps what it has confirmed, clocks run at the same rate, and the
// holder is not suspended between its look at the lock and its write: guard writes with the token. Tokens increase for as long as the
// store keeps its records. What the store adds to that is in [Options].
//
// Waiters are served in order of arrival. A waiter that does not take its turn, because its process is suspended or cannot reach
// the store, is overtaken after half a second, or after some seconds where it has to poll. A process whose writes are refused because
// others write all the time has no place yet, and retries. A process that locks in a loop pauses now and then, so that others get in.
//
// # Losing a lock
//
// A holder renews its lock three times per TTL. Each renewal is a write. When the TTL has passed since the last renewal
// that was confirmed, the lock is lost, by the holder's own clock. Any other process that sees no renewal for the TTL and a
// hundredth more, on its own clock, may remove the holder. A process that has not watched the lock so far relies on the age that the
// store reports, or where it reports none, on the wall clock of the last writer ([Options].Age).
//
// # Cost
//
// A lock is one write, and so is its release, if the same process had the lock last. Where processes take turns, there is a read more.
// Every write for a name wakes all who wait for it, and the writes for one name follow one another. So this is for tens of processes
// that wait for one name, not for hundreds: if renewals would take more than a quarter of the store's time, a newcomer gets an error. Writes for different names do not
// wait for each other.
//
// # Clocks
//
// The clocks of two machines are never compared. But the store's wall clock, where it says how old a record is, is one of the clocks
// that must run steadily: if it is set forward by more than a TTL, processes that come later take live holders for expired.
//
// # Requirements
//
// A record is never deleted, for what was deleted can be created anew by a request that is late. To remove records of names that
// nobody uses any more, stop all programs. Tokens of a name whose record was deleted begin at the wall clock in
// microseconds, which is above the deleted ones unless that clock was set back.
package register

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// ErrChanged is the error of a Swap that finds another version. It may be wrapped.
var ErrChanged = errors.New("the record has changed")

// Store keeps a record for each name, which is any UTF-8 text of 1 to [locker.MaxName] bytes. It has to tell apart names that
// differ in any byte. Its methods may be called from any goroutine. The contexts of Get and Swap end after five seconds at most, that of a List is its
// caller's, and the methods return soon after it has ended: a Store needs no time limit of its own, and for clients that know no contexts there is [driver.Within].
//
// A request must not be sent again by the client on its own: many clients do so after a timeout, unless they are told not to. The
// store must serve all who use it alike: with replicas that take writes by themselves, each grants the same lock. Package registertest checks
// what can be checked; the rest is the author's word.
//
// An error that lasts until somebody changes a setting (credentials, rights, a missing table) is a [driver.Refused].
type Store interface {
	// Get returns the record of a name. If there is none, Record is empty, and so is Version, unless the store keeps versions of what was
	// deleted: then the next Swap is given that one. A record that is older than what
	// this process has seen, from a replica for example, is read again.
	Get(ctx context.Context, name string) (Entry, error)

	// Swap writes the record if its version is still that, or if version is "" and Get finds none, and returns the new version. After
	// [ErrChanged] it was not written and never will be. Nor was it after a [driver.Refused]. After any other error it may have been written, or be written
	// later: so an answer that Swap cannot read is such an error. If you are not sure that nothing was written, return the error as it is. The Store may
	// keep the slice: nobody changes it.
	Swap(ctx context.Context, name, version string, record []byte) (newVersion string, err error)
}

// Entry is what a Store has under a name.
type Entry struct {
	Record []byte

	// Version never comes back, not after a delete either. A hash of the record will do, because no two records are alike. A counter will not,
	// because it starts again after a delete, and a timestamp will not either.
	Version string

	// Age is for how long at least the record has been as it is, or since its Swap began, by the store's own clock, which was read after the record was. It is
	// 0 where the store cannot say.
	Age time.Duration
}

// Watcher is a Store that tells of changes. Without it waiters poll.
type Watcher interface {
	// Watch calls tell with the record as it is, and again when it has changed, one call after another, until ctx ends or
	// the watch breaks, and returns the reason. It may skip all changes but the last.
	Watch(ctx context.Context, name string, tell func(Entry)) error
}

// Lister is a Store that can say what it has.
type Lister interface {
	// List returns the entries of all names that begin with prefix.
	List(ctx context.Context, prefix string) (map[string]Entry, error)
}

// Options say what a [Store] is like.
type Options struct {
	// Backend is the Store's name, with which errors begin. The default is "register".
	Backend string

	// Exclusion and Tokens are what else must hold so that a confirmed write is kept, and everybody sees it: nothing where each
	// write waits for the disk, [locker.DurableServer] where it does not, [locker.DurableReplica] where a replica that may lack it takes over. Where the Age comes from
	// one of several servers, their clocks must agree: [locker.AgreedClocks]. Clocks that run at the same rate, and a prompt
	// holder, are assumed always.
	Exclusion, Tokens locker.Assumptions

	// Age says that the Store tells how old a record is. Otherwise records carry the wall clock of who wrote them, of which a process that
	// has seen nothing believes all but five seconds. Then exclusion assumes [locker.AgreedClocks], and minimum holds
	// are kept by the process.
	Age bool

	// Poll is for how long a waiter waits before it looks again where the Store is no [Watcher]. The default is a quarter of a second.
	Poll time.Duration

	// Limit is the largest record that the Store takes, in bytes: 16,384 or more. A waiter or holder needs some 200, and the text of
	// [locker.WithHolder]. The default is [DefaultLimit].
	Limit int

	// NoProbe says that the Store is known to honour versions, as one on files of this machine is. Otherwise a Locker finds out, with a
	// record of its own.
	NoProbe bool

	// ServerFailures is how many of the Store's servers may fail without stopping new locks.
	ServerFailures int
}

// Locker grants locks whose records are in a [Store]. It implements [locker.Locker], [locker.Inspector], [locker.Breaker] and
// [locker.Resumer], and [locker.Lister] if the Store is a [Lister].
type Locker struct {
	driver.Methods
	store *store
}

// DefaultLimit is the largest record without [Options].Limit, in bytes.
const DefaultLimit = 64 << 10

const (
	// longest is the longest time that a record may have.
	longest = locker.MaxTTL

	leastLimit  = 16 << 10
	longestPoll = placeTTL / 2 // a waiter looks as often anyway
)

// New returns a Locker on s, and asks nobody. When the first lock is asked for, it finds out whether the Store honours versions, with a record
// of its own, and refuses one that does not.
func New(s Store, opts Options) (*Locker, error) {
	opts.Backend = cmp.Or(opts.Backend, "register")
	opts.Poll, opts.Limit = cmp.Or(opts.Poll, 250*time.Millisecond), cmp.Or(opts.Limit, DefaultLimit)
	switch {
	case s == nil:
		return nil, fmt.Errorf("%s: the Store is nil", opts.Backend)
	case opts.Poll < 0 || opts.Poll > longestPoll:
		return nil, fmt.Errorf("%s: Poll is %v, which is not from 0 to %v", opts.Backend, opts.Poll, longestPoll)
	case opts.Limit < leastLimit:
		return nil, fmt.Errorf("%s: Limit is %d, and a record may need %d bytes", opts.Backend, opts.Limit, leastLimit)
	}
	return newLocker(s, opts, driver.Now), nil
}

func newLocker(s Store, opts Options, now func() driver.Instant) *Locker {
	st := &store{Store: s, opts: opts, now: now, names: make(map[string]*name)}
	st.watcher, _ = s.(Watcher)
	st.sound.Store(opts.NoProbe)
	l, settings := &Locker{store: st}, driver.Options{Clock: now}
	if lister, ok := s.(Lister); ok {
		d := driver.New(opts.Backend, &listing{st, lister}, settings)
		l.Methods, st.closing = d, d.Closing()
	} else {
		d := driver.New(opts.Backend, st, settings)
		l.Methods, st.closing = d, d.Closing()
	}
	return l
}

// Close ends the waiting: waiters get [locker.ErrClosed]. It waits, for two seconds at most, for calls and clean-ups under way. Locks that are
// held stay held, renewed and unlockable. What the Store has open stays open.
func (l *Locker) Close() error {
	err := l.Methods.Close()
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	for _, n := range l.store.names {
		n.endWatch()
	}
	return err
}
