// Package guardtest has what every guard that knows readers must do, in the order in which
// it is worth knowing: the marks one by one, and what a lock's holders do under it. (Many
// questions at once are judged in the module proof, which has a checker of histories.)
package guardtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockstile/locker/fencing"
)

// Run is the contract, for a guard of a store on a server.
func Run(t *testing.T, g fencing.SharedGuard) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	seed := rand.Uint64()
	if err := Contract(ctx, g, 40, rand.New(rand.NewPCG(seed, 0))); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
}

// Contract returns what a guard does wrong. It walks a number of resources at random.
func Contract(ctx context.Context, g fencing.SharedGuard, walks int, rng *rand.Rand) error {
	prefix := fmt.Sprintf("contract %d ", rng.Uint32())
	if err := marks(ctx, g, prefix+"marks"); err != nil {
		return err
	}
	for i := range walks {
		if err := Walk(ctx, g, fmt.Sprint(prefix, i), rng); err != nil {
			return err
		}
	}
	return nil
}

const most = 1<<64 - 1

// steps has a write or a read for each row, and the number that a refusal must name; 0: it
// is accepted. Each row that is refused leaves the marks as they were.
var steps = []struct {
	reads bool
	n     uint64
	seen  uint64
	why   string
}{
	{true, 5, 0, "nobody has written"},
	{true, 3, 0, "an earlier reader may still hold, and readers do not shut each other out"},
	{true, 6, 0, "a later reader"},
	{false, 4, 6, "a write between two reads"},
	{true, 3, 0, "the write that was refused has left no mark"},
	{false, 5, 6, "a write older than the last reader, though not than the others"},
	{true, 4, 0, "nor has this one"},
	{false, 7, 0, "a later writer"},
	{false, 7, 0, "the same writer"},
	{true, 6, 7, "a reader whose lock has gone to a writer"},
	{false, 6, 7, "an earlier writer"},
	{true, 8, 0, "a later reader"},
	{true, 7, 0, "no lock has the number of a writer and a reader, and no mark is under it"},
	{false, 7, 8, "the writer has gone, and a reader has come"},
	{false, 8, 0, "not smaller than either mark"},
	{false, 1 << 53, 0, "the first that is not exact in every kind of number"},
	{true, 1<<53 + 1, 0, "one more"},
	{false, 1 << 53, 1<<53 + 1, "one less"},
	{true, most - 1, 0, "no sign, and the last but one"},
	{false, most - 2, most - 1, "one less"},
	{false, most, 0, "the last"},
	{true, most - 1, most, "one less"},
	{true, most, 0, "the last"},
	{true, 0, 0, "zero"},
	{false, 0, 0, "zero"},
}

func marks(ctx context.Context, g fencing.SharedGuard, resource string) error {
	for i, s := range steps {
		err := Ask(ctx, g, resource, s.reads, s.n)
		var stale *fencing.StaleError
		want := fencing.StaleError{Resource: resource, Token: fencing.Token(s.n), Seen: fencing.Token(s.seen), Reader: s.reads}
		wrong := false
		switch {
		case s.n == 0:
			wrong = !errors.Is(err, fencing.ErrZeroToken)
		case s.seen == 0:
			wrong = err != nil
		case errors.As(err, &stale):
			wrong = *stale != want
		default:
			wrong = !errors.Is(err, fencing.ErrStale) // over HTTP that is all
		}
		if wrong {
			return fmt.Errorf("step %d, %s (read %t, number %d, seen %d): %w", i, s.why, s.reads, s.n, s.seen, orNothing(err))
		}
	}
	for _, reads := range []bool{true, false} {
		if err := Ask(ctx, g, resource+" of nobody", reads, 0); !errors.Is(err, fencing.ErrZeroToken) {
			return fmt.Errorf("zero for a resource that was never seen: %w", orNothing(err))
		}
	}
	if err := Ask(ctx, g, resource+" of nobody", false, 1); err != nil {
		return fmt.Errorf("after it, another resource: %w", err)
	}
	if err := Ask(ctx, g, resource+" of a reader", true, 2); err != nil {
		return fmt.Errorf("a reader who comes first: %w", err)
	}
	if err := Ask(ctx, g, resource+" of a reader", false, 1); !errors.Is(err, fencing.ErrStale) {
		return fmt.Errorf("a write before the only reader: %w", orNothing(err))
	}
	if err := Ask(ctx, g, resource, false, most-1); !errors.Is(err, fencing.ErrStale) {
		return fmt.Errorf("an earlier writer, after other resources were used: %w", orNothing(err))
	}
	return nil
}

// Ask asks the guard whether a read or a write with the number n may happen.
func Ask(ctx context.Context, g fencing.SharedGuard, resource string, reads bool, n uint64) error {
	if reads {
		return g.CheckShared(ctx, resource, fencing.SharedToken(n))
	}
	return g.Check(ctx, resource, fencing.Token(n))
}

func orNothing(err error) error {
	if err == nil {
		return errors.New("it was accepted")
	}
	return err
}
