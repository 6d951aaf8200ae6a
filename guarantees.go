package locker

import (
	"fmt"
	"strings"
)

// Guarantees says what a backend, as it is configured, promises, and what must
// be true of the world for the promise to hold. It is data, so that a program
// can refuse a backend ([Require]), and the conformance suite can break each
// assumption on purpose and compare what happens with the declaration.
type Guarantees struct {
	// Exclusion is what must hold for at most one holder to believe, at any
	// instant, that it has the lock. A lock that ends by itself ([WithoutRenewal], [WithMaxHold])
	// assumes PromptHolder as well, on every backend: it may end between the holder's look at
	// it and the write.
	Exclusion Assumptions
	// Tokens is what must hold for the tokens of a name to increase strictly in
	// the order of its grants.
	Tokens Assumptions
	// Fair says that waiters of different Lockers are served in the order in
	// which they arrived. Goroutines of one Locker may be served out of
	// turn a bounded number of times in a row.
	Fair bool
	// FreedBy is what frees the lock of a dead holder.
	FreedBy FreedBy
	// KeepsMinHold says that the store itself keeps a lock for the rest of its [WithMinHold], so
	// also when the process ends after Unlock. Elsewhere the process keeps it.
	KeepsMinHold bool
	// Detaches says that an exclusive lock can leave its process, and another process can go on with it: [Lock.Detach].
	Detaches bool
	// Shared and Slots say that there are locks of these kinds: [WithShared], [WithSlots].
	Shared, Slots bool
	// Herd says that every write for a name wakes all who wait for it (a thundering herd), and that each renewal is a write
	// of its own. It is for tens of processes that wait for one name, not for hundreds. A release whose answer is lost may
	// have been refused because of a waiter whom the holder did not know of: then the lock ends with its TTL.
	Herd bool
	// ServerFailures is how many servers may fail without stopping new locks.
	ServerFailures int
}

// String lists the guarantees in words, for people. They may change.
func (g Guarantees) String() string {
	s := fmt.Sprintf("exclusion assumes: %v; tokens assume: %v; a dead holder's lock is freed by: %v; ", g.Exclusion, g.Tokens, g.FreedBy)
	if g.Fair {
		s += "waiters are served in order of arrival; "
	}
	if g.KeepsMinHold {
		s += "the store keeps WithMinHold; "
	}
	if g.Detaches {
		s += "a lock can leave its process; "
	}
	if g.Shared {
		s += "there are shared locks; "
	}
	if g.Slots {
		s += "there are slots; "
	}
	if g.Herd {
		s += "each write wakes all who wait; "
	}
	return s + fmt.Sprintf("servers that may fail: %d", g.ServerFailures)
}

// FreedBy is what frees the lock of a holder that died.
type FreedBy uint8

const (
	FreedByExpiry      FreedBy = iota + 1 // its lease ends
	FreedBySession                        // its session with the store ends
	FreedByConnection                     // the server sees its connection gone: each lock has one of its own
	FreedByProcess                        // its process ends
	FreedByTransaction                    // its transaction ends
)

var freedByNames = [...]string{"unknown", "expiry", "session", "connection", "process", "transaction"}

func (f FreedBy) String() string {
	if int(f) >= len(freedByNames) {
		f = 0
	}
	return freedByNames[f]
}

// Need is what a lock is for.
type Need uint8

const (
	// Efficiency: two holders at once waste work and do no harm.
	Efficiency Need = iota + 1
	// Correctness: two holders at once would do harm, and the storage
	// refuses stale tokens. Without a guard no lock with a lease is enough.
	Correctness
)

func (n Need) String() string {
	switch n {
	case Efficiency:
		return "efficiency"
	case Correctness:
		return "correctness"
	}
	return "unknown need"
}

// tolerable is what tokens may assume when correctness depends on them. A server
// that is down grants nothing, which is safe. A clock that goes back just when the
// data is lost takes two failures at once; pauses, clock drift, crashes and failovers
// happen one by one, to everybody.
const tolerable = ServerUp | ForwardClock | DelayedRestart

// Require returns an error if l does not meet the need. The error says what is missing, and which
// option or backend has it. Call Require where a Locker is chosen by configuration.
//
// Efficiency needs a lock that excludes at all. Correctness needs tokens that go on increasing
// through pauses, clock drift, crashes and failovers. Require judges what a backend declares,
// and asks no server. It cannot see whether the storage refuses stale tokens (package fencing):
// correctness needs that besides.
func Require(l Locker, need Need) error {
	g := l.Guarantees()
	switch missing := g.Tokens &^ tolerable; {
	case need == Efficiency && g.Exclusion.Has(Unpromised):
		return fmt.Errorf("locker: %s does not promise exclusion, which %v needs", kind(l), need)
	case need == Correctness && missing != 0:
		return fmt.Errorf("locker: tokens of %s assume: %v; %v needs tokens that do not: %s; "+
			"the storage must refuse stale tokens besides (package fencing)", kind(l), missing, need, remedy(missing))
	case need != Efficiency && need != Correctness:
		return fmt.Errorf("locker: need %d is neither Efficiency nor Correctness", need)
	}
	return nil
}

// remedy says what to do about tokens that assume too much.
func remedy(missing Assumptions) string {
	switch {
	case missing.Has(Unpromised):
		return "take a backend that gives its tokens in order"
	case missing == DurableReplica:
		return "set SyncStandby in postgres.Options (sync_standby=true in a URL) if a synchronous standby takes the server's place, " +
			"or NoStandby (no_standby=true) if none ever does, or take etcd, ZooKeeper or Redis"
	case missing.Has(DurableServer):
		return "take a store, or a counter, that writes to its disk before it answers"
	}
	return "take the tokens of a lock that excludes without these, or those of the store itself in place of a counter's"
}

// kind names the Locker, and not the wrappers of [WithCounter] and [With].
func kind(l Locker) string {
	switch l := l.(type) {
	case *counted:
		return fmt.Sprintf("%s with the counter %T", kind(l.Locker), l.counter)
	case *with:
		return kind(l.Locker)
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", l), "*dial.") // of package open
}
