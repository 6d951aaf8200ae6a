package lockertest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/lockertest"
)

// What does a program do when its lock is lost, when somebody else has it, and when the store is away?
func Example() {
	ctx, locks := context.Background(), lockertest.New()
	defer locks.Close()
	work := func(ctx context.Context, _ *locker.Lock) error {
		locks.Lose("invoices/42")
		<-ctx.Done()
		return context.Cause(ctx)
	}
	err := locker.Do(ctx, locks, "invoices/42", work)
	fmt.Println("lost:", errors.Is(err, locker.ErrLost))

	locks.Take("invoices/42")
	err = locker.TryDo(ctx, locks, "invoices/42", work)
	fmt.Println("taken:", errors.Is(err, locker.ErrTaken))

	locks.Link().Cut()
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err = locker.TryDo(soon, locks, "invoices/43", work)
	fmt.Println("away:", errors.Is(err, locker.ErrUnavailable))
	locks.Link().Heal()
	// Output:
	// lost: true
	// taken: true
	// away: true
}
