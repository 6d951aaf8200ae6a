package local_test

import (
	"context"
	"fmt"
	"os"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/local"
)

func Example() {
	dir, err := os.MkdirTemp("", "locks-*") // in real life: local.DefaultDir()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	locks, err := local.New(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	err = locker.Do(context.Background(), locks, "backup", func(ctx context.Context, lock *locker.Lock) error {
		fmt.Println("nobody else on this host runs the backup now")
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: nobody else on this host runs the backup now
}
