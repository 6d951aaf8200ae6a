package async_test

import (
	"context"
	"errors"
	"testing"

	"github.com/lockstile/locker/internal/async"
)

func TestCallIsLeftAtTheEndOfAContextAndGoesOn(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	goOn, why := make(chan struct{}), errors.New("why")
	call := async.Start(func() (int, error) { <-goOn; return 7, nil })
	cancel(why)
	if v, err := call.Wait(ctx); v != 0 || err != why {
		t.Errorf("while it is under way: %d, %v", v, err)
	}
	close(goOn)
	<-call.Ended()
	for range 100 { // of two channels that are ready, select takes either
		if v, err := call.Wait(ctx); v != 7 || err != nil {
			t.Fatalf("when it has returned: %d, %v", v, err)
		}
	}
	if err := async.Do(t.Context(), func() error { return why }); err != why {
		t.Error(err)
	}
	if _, err := async.Failed[int](why).Wait(ctx); err != why {
		t.Error(err)
	}
}
