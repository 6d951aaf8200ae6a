package fencing_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstile/locker/fencing"
)

// A holder is paused past the end of its lease; the next one writes; then the
// first wakes up and writes as if nothing had happened.
func Example() {
	ctx := context.Background()
	var storage fencing.Memory // guards what it stores
	balance := 0

	paused, _ := storage.Next(ctx, "account/7") // the token of the first lock
	current, _ := storage.Next(ctx, "account/7")

	err := storage.Write(ctx, "account/7", current, func() error { balance = 100; return nil })
	fmt.Println("current holder:", err)

	err = storage.Write(ctx, "account/7", paused, func() error { balance = 50; return nil })
	fmt.Println("paused holder: stale is", errors.Is(err, fencing.ErrStale))
	fmt.Println("balance:", balance)
	// Output:
	// current holder: <nil>
	// paused holder: stale is true
	// balance: 100
}
