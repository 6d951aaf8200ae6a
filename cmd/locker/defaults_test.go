package main

import (
	"testing"
	"time"
)

func TestDefaultsOfFlagsAreThoseOfTheHelp(t *testing.T) {
	t.Parallel()
	run, bench := &runCommand{}, &benchCommand{}
	declare(run)
	declare(bench)
	if run.ttl != 30*time.Second || run.takenExit != 75 {
		t.Errorf("of run: %v, %d", run.ttl, run.takenExit)
	}
	if bench.ttl != 30*time.Second || bench.time != 2*time.Second || bench.goroutines != 8 || bench.clients != 1 || bench.hold != 0 {
		t.Errorf("of bench: %+v", bench)
	}
}
