package locker

import (
	"fmt"
	"strings"
)

// Guarantees says what a backend, as it is configured, promises, and what must
// be true of the world for the promise to hold. It is data, so that a program
// can refuse a backend ([Require]) and the conformance suite can hold the
// declaration against what happens when it breaks each assumption on purpose.
type Guarantees struct {
	// Exclusion is what must hold for at most one holder to believe, at any
	// instant, that it has the lock.
	Exclusion Assumptions
	// Tokens is what must hold for tokens of a name to increase strictly in
	// the order of its grants.
	Tokens Assumptions
	// Fair says that waiters of different Lockers are served in the order in
	// which they arrived. Goroutines of one Locker may be served out of
	// turn a bounded number of times in a row.
	Fair bool
	// Release is what frees the lock of a dead holder.
	Release Release
	// Tolerates is how many servers may fail without stopping new locks.
	Tolerates int
}

// Assumptions is a set of things that a guarantee leans on. The empty set is
// the strongest claim: nothing in this list can break the guarantee.
type Assumptions uint16

const (
	// PromptHolder: the holder is not paused, nor its writes delayed, from
	// before the end of its validity until after it.
	PromptHolder Assumptions = 1 << iota
	// SteadyClocks: the clocks involved run at the same rate, up to the
	// drift allowed for, and do not jump.
	SteadyClocks
	// DurableServer: what the server acknowledged survives its crash.
	DurableServer
	// DurableReplica: what the server acknowledged survives a failover.
	DurableReplica
	// DelayedRestart: a server that forgot stays out until every lock
	// granted before has expired.
	DelayedRestart
	// ForwardClock: where data was lost, the server's clock did not go back
	// as well.
	ForwardClock
	// ServerUp: the server is running and reachable, and a connection to it
	// does not end on its side alone.
	ServerUp
	// Unpromised: the guarantee is not given at all.
	Unpromised
)

var assumptionNames = [...]string{
	"prompt holder", "steady clocks", "durable server", "durable replica",
	"delayed restart", "forward clock", "server up", "not promised",
}

// Has reports whether all of b is in a.
func (a Assumptions) Has(b Assumptions) bool { return a&b == b }

// String lists the assumptions in words; the empty set is "nothing".
func (a Assumptions) String() string {
	var words []string
	for i, name := range assumptionNames {
		if a.Has(1 << i) {
			words = append(words, name)
		}
	}
	if words == nil {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

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

// tolerable is what tokens may lean on when correctness depends on them. A
// server that is down grants nothing, which is safe. A clock that goes back in
// the same moment in which its data is lost takes two failures at once; pauses,
// clock drift, crashes and failovers happen one by one, to everybody.
const tolerable = ServerUp | ForwardClock | DelayedRestart

// Require returns an error if l does not meet the need, saying why. Call it
// where a Locker is chosen by configuration. Efficiency needs a lock that
// excludes at all. Correctness needs tokens that go on increasing through
// pauses, clock drift, crashes and failovers: the part of the work that Require
// cannot see is the guard in the storage (package fencing).
func Require(l Locker, need Need) error {
	g := l.Guarantees()
	switch {
	case need == Efficiency && g.Exclusion.Has(Unpromised):
		return fmt.Errorf("locker: %s does not promise exclusion, which %v needs", kind(l), need)
	case need == Correctness && g.Tokens&^tolerable != 0:
		return fmt.Errorf("locker: tokens of %s lean on: %v; %v needs tokens that do not: "+
			"choose a backend whose tokens outlast its faults",
			kind(l), g.Tokens&^tolerable, need)
	case need != Efficiency && need != Correctness:
		return fmt.Errorf("locker: need %d is neither Efficiency nor Correctness", need)
	}
	return nil
}

// kind names what the caller chose, which is not the wrapper of [WithCounter].
func kind(l Locker) string {
	if c, ok := l.(*counted); ok {
		return fmt.Sprintf("%s with the counter %T", kind(c.Locker), c.counter)
	}
	return fmt.Sprintf("%T", l)
}
