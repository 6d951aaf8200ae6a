package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"slices"
	"testing"
	"time"
)

// Clause is one thing that the contract promises.
type Clause struct {
	Name string // unique, fit for a subtest
	Why  string // what goes wrong for users of a backend that does not keep it

	check func(x *trial)
}

// crowded are the clauses that keep a whole machine busy. They run alone, because they
// would delay clauses that wait for leases of a second, and they have more patience.
var crowded = map[string]bool{
	"exclusion": true, "many-waiters": true, "many-waiters-one-client": true, "wait-cancelled-at-the-turn": true,
	"odd-names": true, "many-names": true, "tokens-under-contention": true,
	"turns-in-memory": true, "turns-ranges": true,
	"early": true, "shared-crowd": true, "slots-crowd": true, "impatient-neighbours": true, "goroutines": true, "goroutines-held": true, "connections": true,
}

// Clauses returns the contract.
func Clauses() []Clause {
	return slices.Concat(exclusionClauses, waitingClauses, queueClauses, unlockClauses,
		losingClauses, minHoldClauses, detachClauses, tokenClauses, turnClauses, nameClauses, optionClauses,
		faultClauses, leakClauses, extraClauses, sharedClauses, slotClauses, setClauses)
}

// skipped is the error of a clause that was not checked, because the harness or the
// backend lacks something.
type skipped struct{ Missing string }

func (s *skipped) Error() string { return "not checked: there is no " + s.Missing }

// verify checks the clause and returns nil if it is kept. It returns a [*skipped] if the
// harness or the backend lacks what the clause needs, and another error if the backend
// declares the guarantee all the same. Call it on the goroutine of the test t, because
// h.New may end that test. verify itself never ends it, so that a test can expect a broken
// backend to fail.
//
// A clause that would be kept if the machine had not stood still is played again, once: see
// the package doc. Then no other verify of the process is under way, so it must not be
// called within another one.
func (c Clause) verify(t testing.TB, h Harness) error {
	t.Helper()
	if h.New == nil {
		return errors.New("nothing can be checked: Harness.New is nil")
	}
	if h.meter == nil {
		h.meter = mine()
	}
	h.TTL = scaled(h.TTL, h.meter.factor)
	if h.patience == 0 {
		h.patience = 30 * time.Second
	}
	if crowded[c.Name] {
		h.patience *= 4
	}
	misses, err := c.beside(t, h)
	if len(misses) == 0 { // as of every clause that has failed
		return err
	}
	return c.again(t, h, misses)
}

// beside plays the clause beside others.
func (c Clause) beside(t testing.TB, h Harness) ([]miss, error) {
	t.Helper()
	playing.RLock()
	defer playing.RUnlock()
	return c.play(t, h)
}

// play plays the clause once. If it is kept but for times that it has missed because the
// machine stood still, play returns them.
func (c Clause) play(t testing.TB, h Harness) (misses []miss, err error) {
	t.Helper()
	x := &trial{t: t, h: h, label: suffix()}
	defer x.end()
	defer func() {
		switch stopped := recover().(type) {
		case nil:
		case verdict:
			err = stopped.err
		default:
			panic(stopped) // the backend's own
		}
	}()
	pprof.Do(t.Context(), pprof.Labels(labelKey, x.label), func(ctx context.Context) {
		x.ctx, x.cancel = context.WithCancel(ctx)
		c.check(x)
	})
	return x.misses, nil
}

// verdict ends a check from wherever it is, as FailNow ends a test: failf and skip panic
// with it, and Check recovers.
type verdict struct{ err error }

func (x *trial) failf(format string, args ...any) { panic(verdict{fmt.Errorf(format, args...)}) }

func (x *trial) skip(missing string) { panic(verdict{&skipped{missing}}) }

// skipUnless skips the clause, unless the backend has declared the guarantee that it
// checks. Then the clause fails, and add says what the author of the backend can add.
func (x *trial) skipUnless(declared bool, guarantee, missing, add string) {
	if declared {
		x.failf("it declares %s, which cannot be checked: there is no %s. %s", guarantee, missing, add)
	}
	x.skip(missing)
}

// isSkip reports whether err says that a clause was not checked.
func isSkip(err error) bool {
	var skipped *skipped
	return errors.As(err, &skipped)
}
