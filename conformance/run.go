// Package conformance is the contract of [locker.Locker] as a table of clauses,
// run against a real store. A backend that passes keeps what the contract says,
// also when the network between it and the store breaks.
//
//	func TestConformance(t *testing.T) {
//		srv := startYourServer(t)
//		conformance.Run(t, conformance.Harness{
//			New: func(t testing.TB) conformance.Client { // one more process, as far as the store can tell
//				p := conformance.NewProxy(t, srv.Addr())
//				return conformance.Through(newLocker(t, p.Addr()), p)
//			},
//		})
//	}
//
// Every clause says why it is there. A clause that a backend cannot keep is a
// guarantee to take out of its declaration ([locker.Guarantees]), not a test to
// skip. What a backend does not have (a network, [locker.Inspector],
// [locker.Breaker], a Close) is skipped, and the end of [Run] says what was missing.
// But a guarantee that is declared and cannot be checked fails, and says what to add
// to the [Harness]: Fair without an Inspector, any Release but ByProcess without a
// network, Exclusion without a network or a Breaker.
//
// Servers are not broken here. What a declaration says of their crashes, failovers
// and clocks (the assumptions of Exclusion and Tokens, and Tolerates) is not checked:
// that is what package matrix is for.
//
// No clause depends on how fast the machine is: all waits are for events, half
// a minute at most. Every clause uses names of its own, so one store serves all
// of them, several runs at once included.
package conformance

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstile/locker"
)

// Harness is what the suite needs of a backend.
type Harness struct {
	// New makes one more client of the store: with connections of its own,
	// and nothing else in common with other clients that the backend could
	// use to tell that they are one process. It cleans up with t.Cleanup.
	//
	// Where the store's client library has timeouts of its own, longer ones
	// show more: a backend must not lean on them to keep its callers' deadlines.
	New func(t testing.TB) Client

	// TTL is the lease of locks in clauses that wait for its end. The
	// default is one second. A backend with a higher floor sets that.
	TTL time.Duration

	patience time.Duration // bounds every wait for an event; specimens that hang need not take 30 s
}

// Client stands for one process that uses the store. The functions break and
// mend its network; nil skips the clauses that need them. [Through] fills them.
type Client struct {
	Locker locker.Locker

	Cut        func()     // nothing passes in either direction any more; connections stay open and silent
	CutReplies func()     // requests arrive, replies do not
	Stall      func()     // connections that are open now fall silent, new ones pass
	Heal       func()     // ends these: what was held back is lost with its connections, new ones pass
	Deliver    func()     // ends these: what was held back is delivered late, over the old connections
	Conns      func() int // connections to the store that are open now
}

// Run checks every clause, each in a subtest. Those that keep the machine busy run
// one after another, the others then in parallel as far as the -parallel flag
// allows; all have ended when Run returns. At the end it logs which clauses were not
// checked and what was missing.
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

// Run checks one clause in t, which is its own: a subtest of a suite that chooses
// its clauses. It makes t parallel where [Run] would.
func (c Clause) Run(t *testing.T, h Harness) {
	t.Helper()
	c.run(t, h, new(summary))
}

func (c Clause) run(t *testing.T, h Harness, sum *summary) {
	t.Helper()
	if !crowded[c.Name] {
		t.Parallel()
	}
	err := c.Check(t, h)
	var skipped *Skipped
	errors.As(err, &skipped)
	sum.note(c, skipped)
	switch {
	case skipped != nil:
		t.Skip(skipped)
	case err != nil:
		t.Errorf("%v\nwhy it matters: %s", err, c.Why)
	}
}

// Through returns a client whose connections go through ps, one for every
// server of the store. Without any it has no network to break.
func Through(l locker.Locker, ps ...*Proxy) Client {
	c := Client{Locker: l}
	if len(ps) == 0 {
		return c
	}
	all := func(f func(*Proxy)) func() {
		return func() {
			for _, p := range ps {
				f(p)
			}
		}
	}
	c.Cut, c.CutReplies, c.Stall = all((*Proxy).Cut), all((*Proxy).CutReplies), all((*Proxy).Stall)
	c.Heal, c.Deliver = all((*Proxy).Heal), all((*Proxy).Deliver)
	c.Conns = func() int {
		n := 0
		for _, p := range ps {
			n += p.Conns()
		}
		return n
	}
	return c
}
