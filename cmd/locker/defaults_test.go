package main

import (
	"testing"
	"time"
)

// asked returns what a command line asks for.
func asked[C command](t *testing.T, args ...string) C {
	t.Helper()
	p := newProgram()
	if err := p.parse(args); err != nil {
		t.Fatal(err)
	}
	c, ok := p.chosen.(C)
	if !ok {
		t.Fatalf("%q is %T", args, p.chosen)
	}
	return c
}

func TestDefaultsOfFlagsAreThoseOfTheHelp(t *testing.T) {
	t.Parallel()
	run, bench, lock := asked[*runCommand](t, "run", "x", "--", "true"), asked[*benchCommand](t, "bench"), asked[*lockCommand](t, "lock", "x")
	if run.ttl != 30*time.Second || run.takenExit != 75 || run.slots != 0 || run.statusFD != 0 {
		t.Errorf("of run: %v, %d", run.ttl, run.takenExit)
	}
	if bench.ttl != 30*time.Second || bench.time != 2*time.Second || bench.goroutines != 8 || bench.clients != 1 || bench.hold != 0 {
		t.Errorf("of bench: %+v", bench)
	}
	if lock.ttl != 10*time.Minute {
		t.Errorf("of lock: %v", lock.ttl)
	}
}
