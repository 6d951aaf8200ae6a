package driver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstile/locker/driver"
)

// The clock of a suspended machine is none of testing/synctest's, so this waits in fact:
// for events, and asks of the clock only that what ends does not end early.
func TestPatienceEndsWhenNothingWasHeardForSoLong(t *testing.T) {
	t.Parallel()
	const patience = 50 * time.Millisecond
	silent := errors.New("silent")
	begun := driver.Now()
	ctx, cancel := driver.Patient(t.Context(), patience, func() driver.Instant {
		return min(driver.Now(), begun.Add(4*patience)) // an answer all the time, and then none
	}, silent)
	defer cancel()
	<-ctx.Done()
	if took := driver.Now().Sub(begun); took < 5*patience || !errors.Is(context.Cause(ctx), silent) {
		t.Errorf("it ended after %v: %v", took, context.Cause(ctx))
	}
}
