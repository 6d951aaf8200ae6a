// Package matrix breaks lock services on purpose and holds what happens against
// what they declare.
//
// A backend's [locker.Guarantees] say which assumptions about the world each
// promise leans on. Every [Scenario] breaks one assumption on real servers, with
// holders that are real processes. A promise that does not lean on it must
// survive; one that does may break, and then the report shows the break and
// whether the fencing token made it harmless. So there is no list of expected
// results: they follow from the declaration, and a declaration that is stronger
// than the truth is a [FalseClaim].
package matrix

import (
	"time"

	"github.com/lockstile/locker"
)

// Subject is a backend in one configuration, or somebody else's lock, with what
// it declares.
type Subject struct {
	Name       string // "singlenode"
	About      string // its configuration, in a few words
	Guarantees locker.Guarantees
	// TTL of the locks in most scenarios. The default is one second.
	TTL time.Duration
	// Start starts its servers. They are ended with the lab.
	Start func(lab *Lab) (*System, error)
}

// System is a subject's servers while they run, and how to break them. A hook
// that is nil is a fault that cannot be injected here; scenarios that need it
// are skipped, by name.
type System struct {
	// Client returns where one more worker process finds the store, and
	// the network in between; nil if there is none.
	// It is called by one goroutine at a time.
	Client func() (url string, net Network, err error)

	Prepare      func() error // called before the lock is taken under which something will crash
	CrashKeeping func() error // kill -9 of a server that matters, started again with its disk
	CrashEmpty   func() error // the same, its disk lost
	CrashOld     func() error // the same, with the disk as it was when the scenario began
	Snapshot     func() error // notes the disk that CrashOld goes back to
	FailOver     func() error // the primary is lost, a replica that lags takes over
	Lag          func() error // from now on the replica gets nothing
	Pause        func() error // servers that are needed stop (SIGSTOP)
	Resume       func() error // and go on
	KillMinority func() error // as many servers as the declaration tolerates, the leader first
	KillMajority func() error // one more
	Restore      func() error // brings killed servers back, with their disks
	StepClock    func(d time.Duration) error
	SkewClocks   func() error // some servers' clocks go an hour ahead of the others'
	// Register is what storage inside the store has of a name, for Lockers
	// that are a Writer. It waits for transactions that have not ended.
	Register func(name string) ([]Entry, error)
	// RenewsItself says that holders cannot ask for a renewal: their client
	// keeps a session alive.
	RenewsItself bool
	// Part returns where one more worker finds only some of the servers: those
	// that the others can do without or, with spare false, some of the others.
	Part func(spare bool) (Part, error)
	// Narrow lets a worker reach only a majority of the servers, the nth.
	// The nth and the one after it have one server in common.
	Narrow func(net Network, n int) error
}

// Part is some of a system's servers.
type Part struct {
	URL    string
	Net    Network
	Stop   func() error // SIGSTOP
	Resume func() error
}

// Network is one worker's connections to the store.
type Network interface {
	Cut()                // nothing passes; connections stay open and silent
	CutReplies()         // requests arrive, replies do not
	CutRepliesAfterOne() // the same, once each server has answered once more
	EndUnheard()         // connections end on the store's side; on the worker's they stay open and silent
	Stall()              // what is open now falls silent; new connections pass
	Heal()               // what was held back is lost with its connections
	Deliver()            // what was held back is delivered late
	// Held returns how many bytes are held back now: 0 if, and only if, there
	// is nothing.
	Held() (requests, replies int)
}

// Scenario is one fault, and what people do meanwhile.
type Scenario struct {
	Name  string
	Story string // one sentence
	// Breaks is the assumption about the world that it breaks. The empty
	// set is a fault that every lock has to bear.
	Breaks locker.Assumptions
	// Needs says what it cannot do without on this system; "" if it can go
	// ahead.
	Needs func(s *System) string
	// Ruins says that it does something to servers or their clocks, so that
	// it needs servers of its own.
	Ruins bool
	Play  func(p *Play)
}
