package election_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/election"
	"github.com/lockstile/locker/lockertest"
)

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	err := election.Run(ctx, lockertest.New(), "billing", func(ctx context.Context, term *locker.Lock) error {
		fmt.Println("leads, token", term.Token())
		stop() // the program is told to end
		<-ctx.Done()
		return nil
	})
	fmt.Println(errors.Is(err, context.Canceled))
	// Output:
	// leads, token 1
	// true
}
