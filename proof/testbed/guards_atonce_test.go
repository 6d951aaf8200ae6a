package testbed_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/guardtest"
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

// Method: several goroutines ask every guard at once, and porcupine looks for an order of their
// questions, one that agrees with their times, in which two marks give the same answers.
func TestAnswersAtOnceAreThoseOfTwoMarks(t *testing.T) {
	all := guards(t)
	all["memory"] = new(fencing.Memory)
	for storage, guard := range all {
		t.Run(storage, func(t *testing.T) {
			for i := range 5 {
				ops := askAtOnce(t, guard, fmt.Sprint("at once ", i))
				if porcupine.CheckOperationsTimeout(two, ops, time.Minute) == porcupine.Illegal {
					t.Errorf("the answers to %d questions at once are those of no order: %+v", len(ops), ops)
				}
			}
		})
	}
}

func askAtOnce(t *testing.T, g fencing.SharedGuard, resource string) []porcupine.Operation {
	t.Helper()
	const clients, questions = 6, 20
	start := time.Now()
	var all sync.WaitGroup
	var mu sync.Mutex
	var ops []porcupine.Operation
	for c := range clients {
		all.Go(func() {
			for i := range questions {
				q := question{rand.IntN(2) == 0, uint64(2*i + 1 + rand.IntN(8))}
				called := time.Since(start)
				err := guardtest.Ask(t.Context(), g, resource, q.reads, q.n)
				returned := time.Since(start)
				if err != nil && !errors.Is(err, fencing.ErrStale) {
					t.Error(err)
				}
				mu.Lock()
				ops = append(ops, porcupine.Operation{ClientId: c, Input: q, Call: int64(called), Output: err != nil, Return: int64(returned)})
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return ops
}
