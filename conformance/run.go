// Package conformance is the contract of [locker.Locker] as a table of clauses, which run
// against a real store. A backend that passes keeps the contract, also when the network
// between it and the store breaks.
//
//	func TestConformance(t *testing.T) {
//		srv := startYourServer(t)
//		conformance.Run(t, conformance.Harness{
//			New: func(t testing.TB) conformance.Process { // stands for one more process
//				p := conformance.NewProxy(t, srv.Addr())
//				return conformance.Process{Locker: newLocker(t, p.Addr()), Network: p}
//			},
//		})
//	}
//
// Every clause says why it is there. If a backend cannot keep a clause, take the guarantee
// out of its declaration ([locker.Guarantees]); do not skip the test. Clauses that need
// what a backend does not have (a network, [locker.Inspector], [locker.Breaker], a Close)
// are skipped, and at its end [Run] says what was missing. But if a guarantee is declared
// and cannot be checked, the run fails, and the error says what to add to the [Harness].
// Fair needs an Inspector, every FreedBy but FreedByProcess needs a network, and Exclusion needs
// a network or a Breaker.
//
// A machine that stands still for a while is no reason for a clause to fail. A process of its
// own, which the suite starts from the test binary, notes when it does. Where something came
// later than a clause allows, by no more than the machine stood still for meanwhile, the
// clause is played again, once, with no other clause beside it, and a line on the standard
// error, which begins with "stalled:", says so. (Go hides it where several packages pass, but not
// with -json.) Nothing else is ever played again: two holders
// at once, tokens that do not increase, what a call leaves behind and a wrong error fail at
// once. Of one process, three clauses may be played again, and none if the environment has
// LOCKER_TEST_NO_REPLAY.
//
// Servers are not broken here. Package matrix checks what a declaration says about their
// crashes, failovers and clocks (the assumptions of Exclusion and Tokens, and ServerFailures).
//
// No clause depends on the speed of the machine: all waits are for events, for half a
// minute at most. Every clause uses names of its own, so one store can serve all of them,
// and several runs at once.
package conformance

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstile/locker"
)

// Harness is what the suite needs from a backend.
type Harness struct {
	// New makes one more client of the store, as another process would: it has
	// connections of its own, and shares nothing with the other clients. It
	// cleans up with t.Cleanup.
	//
	// If the store's client library has timeouts of its own, set long ones: a
	// backend must keep its callers' deadlines without them. If a call that is cancelled may take as long
	// as they last, because the client cannot be interrupted, ten seconds are long enough.
	New func(t testing.TB) Process

	// TTL is the lease of locks in clauses that wait for its end. The
	// default is one second. A backend with a higher floor sets that. On a
	// slow machine a TTL is twice or four times as long, but grows to no
	// more than four seconds.
	TTL time.Duration

	patience time.Duration // bounds every wait for an event; shorter for specimens that hang
	meter    *meter        // of stalls; that of this process unless a test has its own
}

// Process stands for one process that uses the store.
type Process struct {
	Locker locker.Locker

	// Network is the process's way to the store. Clauses that break it are skipped if it is nil.
	Network
}

// Run checks every clause, each in a subtest. Those that keep the machine busy run one
// after another, and then the others in parallel, as the -parallel flag allows. All have
// ended when Run returns. At the end it logs which clauses were not checked and what was
// missing.
func Run(t *testing.T, h Harness) {
	t.Helper()
	var sum summary
	t.Run("clause", func(t *testing.T) { // returns when its parallel subtests have ended
		for _, c := range Clauses() {
			t.Run(c.Name, func(t *testing.T) { c.run(t, h, &sum) })
		}
	})
	sum.show(t)
}

// Run checks one clause in t, a subtest of its own, for a suite that chooses its clauses.
// It makes t parallel if [Run] would.
func (c Clause) Run(t *testing.T, h Harness) {
	t.Helper()
	c.run(t, h, new(summary))
}

func (c Clause) run(t *testing.T, h Harness, sum *summary) {
	t.Helper()
	if !crowded[c.Name] {
		t.Parallel()
	}
	begun := time.Now()
	err := c.verify(t, h)
	var skipped *skipped
	errors.As(err, &skipped)
	sum.note(c, skipped, time.Since(begun))
	switch {
	case skipped != nil:
		t.Skip(skipped)
	case err != nil:
		t.Errorf("%v\nwhy it matters: %s", err, c.Why)
	}
}
