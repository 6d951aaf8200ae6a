package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/election"
	"github.com/lockstile/locker/internal/process"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

// The test binary is also the instances of the program that is tested.
const (
	byLock     = "GOCRON_TEST_BY_LOCK"     // the Redis of an instance that has a Locker
	byElection = "GOCRON_TEST_BY_ELECTION" // of one that has an Elector
	stays      = "GOCRON_TEST_STAYS"       // a run does not end
)

func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case os.Getenv(byLock) != "":
		err = shares(ctx, open(os.Getenv(byLock)))
	case os.Getenv(byElection) != "":
		err = stands(ctx, open(os.Getenv(byElection)))
	default:
		os.Exit(m.Run())
	}
	if err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func open(addr string) locker.Locker {
	locks, err := singlenode.New(redis.NewClient(&redis.Options{Addr: addr}), singlenode.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return locks
}

// often is the time between two ticks of an instance. It is not in step with the others.
const often = 50 * time.Millisecond

// hold is a tick by the store's clock, which the test steps. So no machine is too slow.
const hold = time.Hour

// shares is an instance that has a Locker.
func shares(ctx context.Context, locks locker.Locker) error {
	l, err := NewLocker(locks, locker.WithMinHold(hold))
	if err != nil {
		return err
	}
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(l))
	if err != nil {
		return err
	}
	_, err = s.NewJob(gocron.DurationJob(often), l.Task("report", report), gocron.WithName("report"),
		gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
			if errors.Is(err, locker.ErrTaken) {
				fmt.Println("not here")
				return
			}
			fmt.Println(err)
		})))
	if err != nil {
		return err
	}
	s.Start()
	<-ctx.Done()
	return s.Shutdown()
}

// stands is an instance that has an Elector.
func stands(ctx context.Context, locks locker.Locker) error {
	c, err := election.New(locks, "scheduler", locker.WithTTL(5*time.Second))
	if err != nil {
		return err
	}
	e := NewElector(c)
	s, err := gocron.NewScheduler(gocron.WithDistributedElector(e), gocron.WithMonitor(monitor{}))
	if err != nil {
		return err
	}
	if _, err := s.NewJob(gocron.DurationJob(often), e.Task(report), gocron.WithName("report")); err != nil {
		return err
	}
	return e.Run(ctx, s)
}

func report(_ context.Context, lock *locker.Lock) error {
	fmt.Printf("runs, token %d\n", lock.Token())
	if os.Getenv(stays) != "" {
		select {}
	}
	return nil
}

// monitor says when a job is skipped, which with an Elector no listener hears.
type monitor struct{}

func (monitor) IncrementJob(_ uuid.UUID, _ string, _ []string, status gocron.JobStatus) {
	if status == gocron.Skip {
		fmt.Println("not here")
	}
}

func (monitor) RecordJobTiming(time.Time, time.Time, uuid.UUID, string, []string) {}

const runs = "runs, token"

// Goal: one run a tick, also in the tick after the holder's death. Method: the first instance
// is killed while its run goes on, and then the store's clock steps to the next tick, by
// which its lease has ended.
func TestAnotherInstanceRunsTheJobWhenTheOneThatHasTheLockIsKilled(t *testing.T) {
	t.Parallel()
	clock := testserver.NewClock(t)
	addr := testserver.RedisWithEnv(t, clock.Env()).Addr()
	dead := process.Again(t, byLock+"="+addr, stays+"=1")
	dead.Says(runs)
	all := []*process.Process{process.Again(t, byLock+"="+addr), process.Again(t, byLock+"="+addr)}
	for _, p := range all {
		p.SaysTimes("not here", 3)
	}
	dead.Signal(syscall.SIGKILL)
	dead.Ends(-1)
	for tick := 1; tick <= 5; tick++ {
		if err := clock.Step(time.Duration(tick) * hold); err != nil {
			t.Fatal(err)
		}
		all[0].Wait("one of them has run", func() bool { return count(all, runs) >= tick })
		for _, p := range all {
			p.SaysTimes("not here", p.Count("not here")+3)
		}
		if n := count(all, runs); n != tick {
			t.Fatalf("%d runs in %d ticks", n, tick)
		}
	}
	if n := dead.Count(runs); n != 1 {
		t.Errorf("the first instance has run %d times", n)
	}
	for _, p := range all {
		p.Signal(syscall.SIGTERM)
		p.Ends(0)
	}
}

func count(all []*process.Process, said string) (n int) {
	for _, p := range all {
		n += p.Count(said)
	}
	return n
}

var term = regexp.MustCompile(runs + ` \d+\n`)

// lastTerm returns what a leader says of each run.
func lastTerm(p *process.Process) string {
	all := term.FindAllString(p.Said(), -1)
	return all[len(all)-1]
}

// Goal: each term's jobs run in one process, in the order of terms. Method: the first leader
// is killed, the second is paused until the third leads and then goes on, the third is stopped.
func TestAnotherInstanceRunsAllJobsWhenTheLeaderIsKilledPausedOrStopped(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t).Addr()
	dead := process.Again(t, byElection+"="+addr)
	dead.Says(runs)
	paused := process.Again(t, byElection+"="+addr)
	paused.SaysTimes("not here", 3)
	dead.Signal(syscall.SIGKILL)
	dead.Ends(-1)
	paused.Says(runs)

	stopped := process.Again(t, byElection+"="+addr)
	stopped.SaysTimes("not here", 3)
	paused.Pause()
	before, of := paused.Count("not here"), lastTerm(paused)
	done := paused.Count(of)
	stopped.Says(runs)
	paused.Signal(syscall.SIGCONT)
	paused.SaysTimes("not here", before+3)
	if again := paused.Count(of) - done; again > 1 { // one may have begun before the pause
		t.Errorf("the leader that was paused has run %d jobs in its old term:\n%s", again, paused.Said())
	}
	stopped.Signal(syscall.SIGTERM)
	stopped.Ends(0)
	paused.Wait("it leads again", func() bool { return lastTerm(paused) != of })

	seen := make(map[string]*process.Process)
	for _, p := range []*process.Process{dead, paused, stopped} {
		for _, said := range term.FindAllString(p.Said(), -1) {
			if other := seen[said]; other != nil && other != p {
				t.Errorf("two processes say %q", said)
			}
			seen[said] = p
		}
	}
	if len(seen) < 4 {
		t.Errorf("only the terms %v", seen)
	}
}
