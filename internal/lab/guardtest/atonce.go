package guardtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockstile/locker/fencing"
)

// question is what a guard was asked.
type question struct {
	reads bool
	n     uint64
}

// two is what a guard with two marks does, one question after the other.
var two = porcupine.Model{
	Init: func() any { return [2]uint64{} },
	Step: func(state, input, output any) (bool, any) {
		seen, q, refused := state.([2]uint64), input.(question), output.(bool)
		written, read := seen[0], seen[1]
		switch {
		case q.n < written || !q.reads && q.n < read:
			return refused, seen
		case q.reads:
			return !refused, [2]uint64{written, max(read, q.n)}
		}
		return !refused, [2]uint64{q.n, read}
	},
}

// atOnce asks from several goroutines, and returns an error unless the answers are those of
// two marks, in some order of the questions that agrees with their times.
func atOnce(ctx context.Context, g fencing.SharedGuard, resource string, rng *rand.Rand) error {
	const clients, questions = 6, 20
	start := time.Now()
	var all sync.WaitGroup
	var mu sync.Mutex
	var ops []porcupine.Operation
	var failed error
	for c := range clients {
		own := rand.New(rand.NewPCG(rng.Uint64(), 0))
		all.Go(func() {
			for i := range questions {
				q := question{own.IntN(2) == 0, uint64(2*i + 1 + own.IntN(8))}
				called := time.Since(start)
				err := check(ctx, g, resource, q.reads, q.n)
				returned := time.Since(start)
				mu.Lock()
				if err != nil && !errors.Is(err, fencing.ErrStale) {
					failed = err
				}
				ops = append(ops, porcupine.Operation{
					ClientId: c, Input: q, Call: int64(called), Output: err != nil, Return: int64(returned),
				})
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if failed == nil && porcupine.CheckOperationsTimeout(two, ops, time.Minute) == porcupine.Illegal {
		failed = fmt.Errorf("the answers to %d questions at once are those of no order: %+v", len(ops), ops)
	}
	return failed
}
