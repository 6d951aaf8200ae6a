package gocronlock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/adapters/gocronlock"
	"github.com/lockstile/locker/lockertest"
)

func Example() {
	locks := lockertest.New() // or a backend's New, or open.URL
	shared, err := gocronlock.NewLocker(locks)
	if err != nil {
		log.Fatal(err)
	}
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(shared))
	if err != nil {
		log.Fatal(err)
	}
	made := make(chan struct{})
	_, err = scheduler.NewJob(
		gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()),
		shared.Task("report", func(_ context.Context, lock *locker.Lock) error {
			fmt.Println("report made under token", lock.Token())
			close(made)
			return nil
		}),
		gocron.WithName("report"), // the name of the lock
	)
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	<-made
	if err := scheduler.Shutdown(); err != nil {
		log.Fatal(err)
	}
	// Output: report made under token 1
}
