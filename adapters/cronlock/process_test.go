package cronlock

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/robfig/cron/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/process"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

// The test binary is also the machines that share a job.
const (
	store = "CRON_TEST_REDIS"
	stays = "CRON_TEST_STAYS" // a run does not end
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(store); addr != "" {
		if err := program(addr); err != nil {
			log.Fatal(err)
		}
		return
	}
	os.Exit(m.Run())
}

// hold is a tick by the store's clock, which the test steps. So no machine is too slow.
const hold = time.Hour

// often has a machine come every 50 ms, not in step with the others.
type often struct{}

func (often) Next(now time.Time) time.Time { return now.Add(50 * time.Millisecond) }

// program is what each machine runs.
func program(addr string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	locks, err := singlenode.New(redis.NewClient(&redis.Options{Addr: addr}), singlenode.Options{})
	if err != nil {
		return err
	}
	once, err := NewWrapper(locks, "report", cron.VerbosePrintfLogger(log.Default()), locker.WithMinHold(hold))
	if err != nil {
		return err
	}
	schedule := cron.New()
	schedule.Schedule(often{}, cron.NewChain(once).Then(cron.FuncJob(func() {
		fmt.Println("the report is made")
		if os.Getenv(stays) != "" {
			select {}
		}
	})))
	schedule.Start()
	<-ctx.Done()
	<-schedule.Stop().Done()
	return nil
}

const (
	made    = "the report is made"
	skipped = "because=singlenode: lock \"report\": taken"
)

// Goal: one run a tick, also in the tick after the holder's death. Method: the first machine
// is killed while its run goes on, and then the store's clock steps to the next tick, by
// which its lease has ended.
func TestAnotherMachineRunsTheJobWhenTheOneThatHasTheLockIsKilled(t *testing.T) {
	t.Parallel()
	clock := testserver.NewClock(t)
	addr := testserver.RedisWithEnv(t, clock.Env()).Addr()
	dead := process.Again(t, store+"="+addr, stays+"=1")
	dead.Says(made)
	all := []*process.Process{process.Again(t, store+"="+addr), process.Again(t, store+"="+addr)}
	for _, p := range all {
		p.SaysTimes(skipped, 3)
	}
	dead.Signal(syscall.SIGKILL)
	dead.Ends(-1)
	runs := func() int { return all[0].Count(made) + all[1].Count(made) }
	for tick := 1; tick <= 5; tick++ {
		if err := clock.Step(time.Duration(tick) * hold); err != nil {
			t.Fatal(err)
		}
		all[0].Wait("one of them has run", func() bool { return runs() >= tick })
		for _, p := range all {
			p.SaysTimes(skipped, p.Count(skipped)+3)
		}
		if n := runs(); n != tick {
			t.Fatalf("%d runs in %d ticks", n, tick)
		}
	}
	if n := dead.Count(made); n != 1 {
		t.Errorf("the first machine has run %d times", n)
	}
	for _, p := range all {
		p.Signal(syscall.SIGTERM)
		p.Ends(0)
	}
}
