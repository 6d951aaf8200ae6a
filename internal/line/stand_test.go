package line

import (
	"context"
	"errors"
	"testing"

	"github.com/lockstile/locker"
)

func TestStandingInLineEndsWithWhatALockReturns(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name         string
		ctx, closing context.Context
		want, cause  error
	}{
		{"the caller gives up", ended, t.Context(), locker.ErrTaken, context.Canceled},
		{"the Locker is closed", t.Context(), ended, locker.ErrClosed, locker.ErrClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			var lines Lines[string]
			front, err := lines.Stand(t.Context(), t.Context(), "n", "a")
			if err != nil {
				t.Fatal(err)
			}
			turn, err := lines.Stand(c.ctx, c.closing, "n", "b")
			if turn != nil || !errors.Is(err, c.want) || !errors.Is(err, c.cause) {
				t.Errorf("got %v, %v; want %v because of %v", turn, err, c.want, c.cause)
			}
			if errors.Is(err, locker.ErrTaken) && errors.Is(err, locker.ErrClosed) {
				t.Errorf("%v says both", err)
			}
			front.Leave()
			if n := lines.Len("n"); n != 0 {
				t.Errorf("%d are in line after all have gone", n)
			}
		})
	}
}
