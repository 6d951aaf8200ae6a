package locker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/local"
	"github.com/lockstile/locker/lockertest"
)

// A holder that has lost its lock does not know yet, and writes. The storage
// refuses it by its token.
func Example() {
	dir, err := os.MkdirTemp("", "locks-*")
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

	ctx := context.Background()
	var storage fencing.Memory // stands for the storage that the lock protects
	var first fencing.Token
	err = locker.Do(ctx, locks, "invoices/42", func(ctx context.Context, lock *locker.Lock) error {
		first = lock.Token()
		return storage.Write(ctx, "invoices/42", first, func() error {
			fmt.Println("the first holder writes")
			return nil
		})
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = locker.Do(ctx, locks, "invoices/42", func(ctx context.Context, lock *locker.Lock) error {
		fmt.Println("the second token is greater:", lock.Token() > first)
		return nil
	}, locker.WithGuard(&storage, "invoices/42")) // claims the resource before the function runs
	if err != nil {
		fmt.Println(err)
		return
	}
	err = storage.Write(ctx, "invoices/42", first, func() error {
		fmt.Println("never printed")
		return nil
	})
	fmt.Println("the first holder's late write is refused:", errors.Is(err, fencing.ErrStale))
	// Output:
	// the first holder writes
	// the second token is greater: true
	// the first holder's late write is refused: true
}

// One process locks, and another one goes on: here, two Lockers on a store in memory.
func ExampleResume() {
	ctx := context.Background()
	locks := lockertest.New()
	first, err := locks.Lock(ctx, "deploy", locker.WithTTL(10*time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	handle, err := first.Detach(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(handle) // the text is string(handle)

	second, err := locker.Resume(ctx, locks.Another(), handle)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the second token is greater:", second.Token() > first.Token())
	if err := second.Unlock(ctx); err != nil {
		fmt.Println(err)
	}
	_, err = locker.Resume(ctx, locks, handle)
	fmt.Println("the handle is used up:", errors.Is(err, locker.ErrLost))
	// Output:
	// (handle of lock "deploy")
	// the second token is greater: true
	// the handle is used up: true
}
