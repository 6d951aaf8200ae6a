package driver

import (
	"context"
	"math"
	"time"
)

// Patient returns a context that ends, with silent as its cause, when the store has
// answered nothing for as long as patience: since the call of Patient, or since the time
// that heard returns, if that is later. It is for stores that are asked over a connection
// where one request waits for another: with a thousand names at once the last one waits
// for long, and a store that answers the others is not silent.
func Patient(ctx context.Context, patience time.Duration, heard func() Instant, silent error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	began := Now()
	var timer *time.Timer
	timer = time.AfterFunc(math.MaxInt64, func() {
		if left := patience - Now().Sub(max(began, heard())); left > 0 {
			timer.Reset(left)
			return
		}
		cancel(silent)
	})
	timer.Reset(patience)
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}
