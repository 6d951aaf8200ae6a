package dial

import (
	"context"
	"errors"
	"testing"
)

// Hosts are down one after the other, as in an upgrade. That is no reason to give up: at each time
// one of them could be connected to.
func TestHostThatIsBackIsNotGivenUp(t *testing.T) {
	down := errors.New("connection refused")
	d := newDialed([]string{"a", "b"})
	ctx, leave := d.within(t.Context())
	defer leave()
	d.note("a", down)
	d.note("a", nil)
	d.note("b", down)
	select {
	case <-d.failed:
		t.Error("all are given up, and one is up")
	default:
	}
	d.note("a", down)
	if <-ctx.Done(); !errors.Is(context.Cause(ctx), down) {
		t.Error(context.Cause(ctx))
	}
}
