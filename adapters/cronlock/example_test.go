package cronlock_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/robfig/cron/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/adapters/cronlock"
	"github.com/lockstile/locker/lockertest"
)

// tick stands for cron, which calls Run at each tick.
func tick(job cron.Job) { job.Run() }

func ExampleNewWrapper() {
	locks := lockertest.New()                                     // or a backend's New, or open.URL
	logger := cron.VerbosePrintfLogger(log.New(os.Stdout, "", 0)) // it tells of skipped runs, too
	once, err := cronlock.NewWrapper(locks, "report", logger)
	if err != nil {
		log.Fatal(err)
	}
	job := cron.NewChain(once).Then(cron.FuncJob(func() { fmt.Println("report made") }))
	tick(job)
	tick(job) // within the minimum hold
	// Output:
	// report made
	// skip, job=report, because=lockertest: lock "report": taken by another holder
}

func ExampleNewJob() {
	locks := lockertest.New() // or a backend's New, or open.URL
	job, err := cronlock.NewJob(context.Background(), locks, "report", func(_ context.Context, lock *locker.Lock) error {
		fmt.Println("report made under token", lock.Token())
		return nil
	}, cron.DefaultLogger)
	if err != nil {
		log.Fatal(err)
	}
	tick(job)
	// Output: report made under token 1
}
