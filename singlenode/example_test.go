package singlenode_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing/redisfence"
	"github.com/lockstile/locker/singlenode"
)

func Example() {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	locks, err := singlenode.New(rdb, singlenode.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	guard, err := redisfence.NewGuard(rdb)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = locker.Do(ctx, locks, "invoices/42", func(ctx context.Context, lock *locker.Lock) error {
		_, err := guard.Do(ctx, "balance:42", lock.Token(), "SET", 1250)
		return err
	}, locker.WithGuard(guard, "balance:42"))
	if err != nil {
		fmt.Println(err)
	}
}
