// Package matrix breaks lock services on purpose and compares what happens with what
// they declare.
//
// A backend's [locker.Guarantees] say what each promise assumes about
// the world. Every [Scenario] breaks one assumption on real servers, with holders that
// are real processes. A promise that does not assume it must be kept. One that does may
// break, and then the report shows how, and whether the fencing token made it harmless. So
// there is no list of expected results: they follow from the declaration. A declaration
// that is stronger than the truth is a [FalseClaim].
//
// A program that plays scenarios describes each backend as a [Subject], calls
// [BecomeWorker] before anything else, and then [Run]. Package report writes what came of
// it. docs/BACKENDS.md has an example.
//
// # Inside
//
// This package starts servers and workers, and plays the scenarios. What happens is recorded
// in internal/history, and internal/judge compares it with the declaration.
package matrix

import (
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
)

// Subject is a backend in one configuration, or another library's lock, with what it
// declares.
type Subject struct {
	Name       string // "singlenode"
	About      string // its configuration, in a few words
	Guarantees locker.Guarantees
	// TTL of the locks in most scenarios. The default is one second.
	TTL time.Duration
	// Start starts its servers. They are ended with the lab.
	Start func(lab *Lab) (*System, error)
}

// System is a subject's servers while they run, and how to break them. A function that
// is nil is a fault that cannot be injected here: scenarios that need it are skipped, and
// the report lists them.
type System struct {
	// Client returns the URL at which one more worker process finds the store,
	// and the network in between; nil if there is none. See [Lab.Proxy].
	// It is called by one goroutine at a time.
	Client func() (url string, net conformance.Network, err error)

	Prepare      func() error // called before the lock is taken under which something will crash
	CrashKeeping func() error // kill -9 of a server that matters, started again with its disk
	CrashEmpty   func() error // the same, its disk lost
	CrashOld     func() error // the same, with the disk as it was when the scenario began
	Snapshot     func() error // notes the disk that CrashOld goes back to
	FailOver     func() error // the primary is lost, a replica that lags takes over
	Lag          func() error // from now on the replica gets nothing
	ClockAhead   func() error // the clock of the replica that FailOver promotes is an hour ahead from now on
	CatchUp      func() error // returns when that replica has everything
	HandOver     func() error // every primary makes a replica that has everything its successor
	Pause        func() error // servers that are needed stop (SIGSTOP)
	Resume       func() error // and go on
	KillMinority func() error // as many servers as the declaration tolerates, the leader first
	KillMajority func() error // one more
	Restore      func() error // brings killed servers back, with their disks
	StepClock    func(d time.Duration) error
	SkewClocks   func() error // some servers' clocks go an hour ahead of the others'
	// Move returns the steps by which the keys of a name move to another server
	// while both serve.
	Move func(name string) []Step
	// Stranger takes the lock of a name as another library does, which knows
	// nothing of ours, for longer than anybody waits here. The function that it
	// returns gives the lock back as that library does.
	Stranger func(name string) (release func() error, err error)
	// Stored returns what the servers hold, of locks that are held and of others.
	Stored func() (Stored, error)
	// Register reads the rows of a name and removes them, for Lockers that are a Writer. It waits
	// for transactions that have not ended.
	Register func(name string) ([]Entry, error)
	// RenewsItself says that holders cannot ask for a renewal: the client
	// library keeps a session alive.
	RenewsItself bool
	// Part returns some of the servers, for one more worker: with spare some that
	// the others can do without, else some of the others.
	Part func(spare bool) (Part, error)
	// Narrow lets a worker reach only the nth majority of the servers. Each
	// majority has one server in common with the next.
	Narrow func(net conformance.Network, n int) error

	detaches bool // as the subject declares
}

// Step is one step of what an operator does.
type Step struct {
	What string
	Do   func() error
}

// Part is some of a system's servers.
type Part struct {
	URL    string
	Net    conformance.Network
	Stop   func() error // SIGSTOP
	Resume func() error
}

// Scenario is one fault, and what the workers do before, during and after it. [Scenarios] returns all;
// a program cannot make its own.
type Scenario struct {
	Name  string
	Story string // one sentence
	// Breaks is the assumption about the world that it breaks. The empty
	// set is for a fault that every lock must withstand.
	Breaks locker.Assumptions
	// Kinds are what the workers ask for: A, C, … the first, B, D, … the second. A
	// subject that does not declare one of them is skipped.
	Kinds [2]locker.Kind
	// Like names the scenario that this one repeats with another kind of lock; it is empty if the locks are exclusive.
	Like string

	// lacks says what this system lacks, in words; "" if the scenario can be played. nil:
	// it needs nothing.
	lacks func(s *System) string
	ruins bool // it harms servers or their clocks, so that it needs servers of its own
	play  func(p *play)
}
