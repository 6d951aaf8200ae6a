package conformance

import (
	"math"
	"strings"
	"time"

	"github.com/lockstile/locker"
)

var optionClauses = []Clause{
	{"bad-options", "A value that is silently clamped is not the one that the caller counts on.", badOptions},
	{"guarantees", "Programs choose and refuse backends by what they declare.", guarantees},
}

func badOptions(x *trial) {
	a, b, name := x.locker(), x.locker(), x.name()
	for _, bad := range []struct {
		word string // the error must have it
		opt  locker.Option
	}{
		{"ttl", locker.WithTTL(0)},
		{"ttl", locker.WithTTL(-time.Second)},
		{"ttl", locker.WithTTL(locker.MinTTL - time.Millisecond)},
		{"ttl", locker.WithTTL(locker.MaxTTL + time.Millisecond)},
		{"ttl", locker.WithTTL(x.h.TTL + time.Microsecond)},
		{"hold", locker.WithMaxHold(0)},
		{"hold", locker.WithMaxHold(-time.Second)},
		{"hold", locker.WithMinHold(-time.Second)},
		{"hold", locker.WithMinHold(locker.MaxTTL + time.Millisecond)},
		{"wait", locker.WithWait(0)},
		{"validity", locker.WithMinValidity(-time.Second)},
		{"validity", locker.WithMinValidity(math.MaxInt64)},
		{"zero Option", locker.Option{}},
		{"holder", locker.WithHolder("two\nlines")},
		{"holder", locker.WithHolder(strings.Repeat("h", locker.MaxHolder+1))},
	} {
		lock, err := a.Lock(x.patient(), name, bad.opt)
		if err == nil || lock != nil {
			x.failf("Lock with a bad %s returned %s and error %v", bad.word, had(lock), err)
		}
		if !strings.Contains(err.Error(), bad.word) || !strings.Contains(err.Error(), name) {
			x.failf("Lock with a bad %s returned %q, which does not speak of the %s and the lock's name", bad.word, err, bad.word)
		}
		if lock, err := a.TryLock(x.patient(), name, bad.opt); err == nil || lock != nil {
			x.failf("TryLock with a bad %s returned %s and error %v", bad.word, had(lock), err)
		}
		x.free(b, name, "after an attempt with a bad option")
	}
}

func guarantees(x *trial) {
	a, b := x.locker(), x.locker()
	g := a.Guarantees()
	if g != a.Guarantees() || g != b.Guarantees() {
		x.failf("clients with the same settings declare different guarantees: %+v, %+v", g, b.Guarantees())
	}
	if g.FreedBy < locker.FreedByExpiry || g.FreedBy > locker.FreedByTransaction {
		x.failf("Guarantees does not say what frees the lock of a dead holder: Release is %d", g.FreedBy)
	}
	if g.ServerFailures < 0 {
		x.failf("Guarantees tolerates %d failures", g.ServerFailures)
	}
	promises := !g.Exclusion.Has(locker.Unpromised)
	if err := locker.Require(a, locker.Efficiency); promises != (err == nil) {
		x.failf("it promises exclusion (while: %v), and Require says: %v", g.Exclusion, err)
	}
	if g.Exclusion&^locker.Unpromised != 0 && !promises || g.Tokens&^locker.Unpromised != 0 && g.Tokens.Has(locker.Unpromised) {
		x.failf("what is not promised assumes nothing: %+v", g)
	}
}
