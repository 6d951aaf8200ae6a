package locker

import (
	"fmt"

	"github.com/lockstile/locker/fencing"
)

// Guarantees says what a backend, as it is configured, promises, and what must
// be true of the world for the promise to hold. It is data, so that a program
// can refuse a backend ([Require]), and the conformance suite can break each
// assumption on purpose and compare what happens with the declaration.
type Guarantees struct {
	// Exclusion is what must hold for at most one holder to believe, at any
	// instant, that it has the lock. A lock that ends by itself ([WithoutRenewal], [WithMaxHold])
	// leans on PromptHolder as well, on every backend: it may end between the holder's look at
	// it and the write.
	Exclusion Assumptions
	// Tokens is what must hold for the tokens of a name to increase strictly in
	// the order of its grants.
	Tokens Assumptions
	// Fair says that waiters of different Lockers are served in the order in
	// which they arrived. Goroutines of one Locker may be served out of
	// turn a bounded number of times in a row.
	Fair bool
	// Release is what frees the lock of a dead holder.
	Release Release
	// Keeps says that the store itself keeps a lock for the rest of its [WithMinHold], so
	// also when the process ends after Unlock. Elsewhere the process keeps it.
	Keeps bool
	// Shared and Slots say that there are locks of these kinds: [WithShared], [WithSlots].
	Shared, Slots bool
	// Tolerates is how many servers may fail without stopping new locks.
	Tolerates int
}

// String lists the guarantees in words, for people. They may change.
func (g Guarantees) String() string {
	s := fmt.Sprintf("exclusion leans on: %v; tokens lean on: %v; a dead holder's lock is freed by: %v; ", g.Exclusion, g.Tokens, g.Release)
	if g.Fair {
		s += "waiters are served in order of arrival; "
	}
	if g.Keeps {
		s += "the store keeps WithMinHold; "
	}
	if g.Shared {
		s += "there are shared locks; "
	}
	if g.Slots {
		s += "there are slots; "
	}
	return s + fmt.Sprintf("servers that may fail: %d", g.Tolerates)
}

// Assumptions is a set of things that a guarantee leans on. The type is in package
// fencing, which says what each one means, because counters declare theirs too.
type Assumptions = fencing.Assumptions

// What a guarantee may lean on.
const (
	PromptHolder   = fencing.PromptHolder
	SteadyClocks   = fencing.SteadyClocks
	AgreedClocks   = fencing.AgreedClocks
	DurableServer  = fencing.DurableServer
	DurableReplica = fencing.DurableReplica
	DelayedRestart = fencing.DelayedRestart
	ForwardClock   = fencing.ForwardClock
	ServerUp       = fencing.ServerUp
	Unpromised     = fencing.Unpromised
)

// Release is what frees the lock of a holder that died.
type Release uint8

const (
	ByExpiry      Release = iota + 1 // its lease ends
	BySession                        // its session with the store ends
	ByConnection                     // the server sees its connection gone
	ByProcess                        // its process ends
	ByTransaction                    // its transaction ends
)

var releaseNames = [...]string{"unknown", "expiry", "session", "connection", "process", "transaction"}

func (r Release) String() string {
	if int(r) >= len(releaseNames) {
		r = 0
	}
	return releaseNames[r]
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

// tolerable is what tokens may lean on when correctness depends on them. A server
// that is down grants nothing, which is safe. A clock that goes back just when the
// data is lost takes two failures at once; pauses, clock drift, crashes and failovers
// happen one by one, to everybody.
const tolerable = ServerUp | ForwardClock | DelayedRestart

// Require returns an error if l does not meet the need, saying why. Call it
// where a Locker is chosen by configuration. Efficiency needs a lock that
// excludes at all. Correctness needs tokens that go on increasing through pauses,
// clock drift, crashes and failovers. Require asks no server, and cannot see whether
// the storage has a guard (package fencing), which correctness needs as well.
func Require(l Locker, need Need) error {
	g := l.Guarantees()
	switch {
	case need == Efficiency && g.Exclusion.Has(Unpromised):
		return fmt.Errorf("locker: %s does not promise exclusion, which %v needs", kind(l), need)
	case need == Correctness && g.Tokens&^tolerable != 0:
		return fmt.Errorf("locker: tokens of %s lean on: %v; %v needs tokens that do not: "+
			"choose another backend, or other options of this one",
			kind(l), g.Tokens&^tolerable, need)
	case need != Efficiency && need != Correctness:
		return fmt.Errorf("locker: need %d is neither Efficiency nor Correctness", need)
	}
	return nil
}

// kind names the Locker, and not the wrappers of [WithCounter] and [Observe].
func kind(l Locker) string {
	switch l := l.(type) {
	case *counted:
		return fmt.Sprintf("%s with the counter %T", kind(l.Locker), l.counter)
	case *observed:
		return kind(l.Locker)
	}
	return fmt.Sprintf("%T", l)
}
