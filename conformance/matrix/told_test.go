package matrix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/lockstile/locker"
)

// failing is a Locker whose attempts end with an error.
type failing struct {
	locker.Locker
	err error
}

func (f failing) TryLock(context.Context, string, ...locker.Option) (*locker.Lock, error) {
	return nil, f.err
}

// otherwise is somebody else's lock: its errors are not those of the contract.
type otherwise struct {
	Peer
	err error
}

func (o otherwise) TryLock(context.Context, *locker.Request) (Holding, error) { return nil, o.err }

func TestOnlyALockerThatKnowsTheOutcomePromisesThatNothingIsHeld(t *testing.T) {
	silence := fmt.Errorf("%w: %w", locker.ErrUnavailable, context.DeadlineExceeded)
	unknown := fmt.Errorf("%w: %w", locker.ErrOutcomeUnknown, silence)
	for _, c := range []struct {
		name string
		peer Peer
		want bool
	}{
		{"a Locker, taken", AsPeer(failing{err: locker.ErrTaken}), true},
		{"a Locker, unavailable", AsPeer(failing{err: silence}), true},
		{"a Locker, before it asked", AsPeer(failing{err: errors.New("bad name")}), true},
		{"a Locker, unknown", AsPeer(failing{err: unknown}), false},
		{"another lock, taken", otherwise{err: locker.ErrTaken}, false},
		{"another lock, silence", otherwise{err: context.DeadlineExceeded}, false},
	} {
		w, r := &worker{peer: c.peer, out: newLines(io.Discard), held: make(map[string]Holding)}, report{}
		if l := w.lock(t.Context(), order{Name: "n"}, c.peer.TryLock, &r); l != nil || r.Kind != kindRefused {
			t.Errorf("%s: %+v", c.name, r)
		}
		if r.Nothing != c.want {
			t.Errorf("%s: it promises that nothing is held: %v", c.name, r.Nothing)
		}
	}
}

// Whatever a declaration leans on: what is not known must not be said.
func TestAnAttemptThatWasToldWhatIsNotTrueIsAFalseClaim(t *testing.T) {
	h, most := &History{Ended: second}, locker.Guarantees{Exclusion: ^locker.Assumptions(0), Tokens: ^locker.Assumptions(0)}
	if got, why := judge(most, locker.ServerUp, h); got != Kept {
		t.Errorf("%q (%s), not %q", got, why, Kept)
	}
	h.untrue("%s was told that it holds nothing", "A")
	if got, why := judge(most, locker.ServerUp, h); got != FalseClaim || why != "A was told that it holds nothing" {
		t.Errorf("%q (%s), not %q", got, why, FalseClaim)
	}
}
