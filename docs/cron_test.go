package docs_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/process"
	"github.com/lockstile/locker/internal/testserver"
)

const (
	ticks    = 15
	machines = 3
)

// skewedRedis returns a Redis whose clock the test steps. Its clock is what counts
// WithMinHold there, so a tick needs no real minute, and a slow machine changes nothing.
func skewedRedis(t *testing.T) (url string, step func(time.Duration)) {
	t.Helper()
	clock := testserver.NewClock(t)
	srv := testserver.RedisWithEnv(t, clock.Env())
	var ahead time.Duration
	return "redis://" + srv.Addr(), func(d time.Duration) {
		t.Helper()
		ahead += d
		if err := clock.Step(ahead); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCronProgramRunsOncePerTickOnThreeMachines(t *testing.T) {
	t.Parallel()
	all := onceATick(t, "nightly", ticks, "report made", `because=singlenode: lock "report": taken`)
	if failed := total(all, "error="); failed != 0 {
		t.Errorf("%d runs failed:\n%s%s%s", failed, all[0].Said(), all[1].Said(), all[2].Said())
	}
}

func TestGocronRunsAJobOnOneInstance(t *testing.T) {
	t.Parallel()
	onceATick(t, "jobs", 3, "report made", `not here: singlenode: lock "report": taken`)
}

// onceATick checks that a program which three machines start every second runs once in each
// minute of the store's clock. In each of them every machine comes twice when another run
// has it: the first of these may have been under way since the minute before, and at the
// second a run of its own has ended. The program says that it ran, or that it came then.
func onceATick(t *testing.T, program string, ticks int, ran, came string) (all []*process.Process) {
	t.Helper()
	url, step := skewedRedis(t)
	for range machines {
		all = append(all, start(t, []string{"LOCKER_BACKEND=" + url, "SCHEDULE=@every 1s"}, program))
	}
	for tick := 1; tick <= ticks; tick++ {
		if tick > 1 {
			step(time.Minute)
		}
		before := make([]int, len(all))
		for i, p := range all {
			before[i] = p.Count(came)
		}
		for i, p := range all {
			p.SaysTimes(came, before[i]+2)
		}
		if runs := total(all, ran); runs != tick {
			t.Fatalf("%d runs in %d ticks", runs, tick)
		}
	}
	for _, p := range all {
		p.Signal(syscall.SIGTERM)
		p.Ends(0)
	}
	return all
}

func total(all []*process.Process, said string) (n int) {
	for _, p := range all {
		n += p.Count(said)
	}
	return n
}
