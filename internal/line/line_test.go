package line

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// waiter is a goroutine in Enter.
type waiter struct {
	id     int
	cancel context.CancelCauseFunc
	turn   *Turn[int]
	err    error
	served bool // Enter has returned
}

var errGone = errors.New("walked away")

// queueUp starts n waiters whose asks are 1 to n, in that order, and returns
// when all of them wait. It must run in a synctest bubble.
func queueUp(s *Lines[int], n int) []*waiter {
	waiters := make([]*waiter, n)
	for i := range waiters {
		ctx, cancel := context.WithCancelCause(context.Background())
		w := &waiter{id: i + 1, cancel: cancel}
		waiters[i] = w
		go func() {
			w.turn, w.err = s.Enter(ctx, "n", w.id)
			w.served = true
		}()
		synctest.Wait()
	}
	return waiters
}

// serve passes the turn on from t until the line is empty and returns who got it.
func serve(t *Turn[int], waiters []*waiter) []int {
	var order []int
	for {
		t.Leave()
		synctest.Wait()
		t = nil
		for _, w := range waiters {
			if w.turn != nil && !w.turn.left {
				t = w.turn
				order = append(order, w.id)
			}
		}
		if t == nil {
			return order
		}
	}
}

// inBubble hands f an empty line and the turn at its front, and checks that
// nothing is left of the line afterwards.
func inBubble(t *testing.T, f func(t *testing.T, s *Lines[int], front *Turn[int])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var s Lines[int]
		front, ok := s.TryEnter("n", 0)
		if !ok {
			t.Fatal("TryEnter of an empty line was refused")
		}
		f(t, &s, front)
		if len(s.names) != 0 {
			t.Errorf("%d names are left in the map", len(s.names))
		}
	})
}

func TestTurnsComeInOrderOfArrival(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Lines[int], front *Turn[int]) {
		waiters := queueUp(s, 5)
		if got, want := serve(front, waiters), []int{1, 2, 3, 4, 5}; !slices.Equal(got, want) {
			t.Errorf("served %v, want %v", got, want)
		}
	})
}

func TestNobodyElseIsServedBeforeTheTurnIsPassedOn(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Lines[int], front *Turn[int]) {
		waiters := queueUp(s, 2)
		for _, w := range waiters {
			if w.served {
				t.Errorf("waiter %d was served while the turn was taken", w.id)
			}
		}
		front.Leave()
		synctest.Wait()
		if !waiters[0].served || waiters[1].served {
			t.Errorf("after one Leave: first served %v, second served %v", waiters[0].served, waiters[1].served)
		}
		waiters[0].turn.Leave()
		synctest.Wait()
		waiters[1].turn.Leave()
	})
}

func TestNamesDoNotWaitForEachOther(t *testing.T) {
	var s Lines[int]
	a, okA := s.TryEnter("a", 1)
	b, okB := s.TryEnter("b", 2)
	if !okA || !okB {
		t.Fatal("two names stood in one line")
	}
	a.Leave()
	if _, ok := s.TryEnter("b", 3); ok {
		t.Error("leaving one line freed another")
	}
	b.Leave()
}

func TestTryEnterTakesOnlyAFreeTurn(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Lines[int], front *Turn[int]) {
		if turn, ok := s.TryEnter("n", 7); ok || turn != nil {
			t.Errorf("TryEnter of a taken line: %v, %v", turn, ok)
		}
		waiters := queueUp(s, 1)
		front.Leave()
		if _, ok := s.TryEnter("n", 7); ok {
			t.Error("TryEnter overtook the waiter who has the turn")
		}
		synctest.Wait()
		waiters[0].turn.Leave()
		turn, ok := s.TryEnter("n", 7)
		if !ok || turn.Ask() != 7 {
			t.Fatalf("TryEnter of an empty line: %v, %v", turn, ok)
		}
		turn.Leave()
	})
}

func TestEnterOfAnEmptyLineIgnoresItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var s Lines[int]
	turn, err := s.Enter(ctx, "n", 1)
	if err != nil {
		t.Fatal(err) // the turn is there; whoever gets it looks at ctx itself
	}
	turn.Leave()
}

func TestAWaiterCanWalkAwayFromAnyPlace(t *testing.T) {
	for name, c := range map[string]struct {
		leave []int
		want  []int
	}{
		"first":             {[]int{1}, []int{2, 3, 4}},
		"middle":            {[]int{2}, []int{1, 3, 4}},
		"last":              {[]int{4}, []int{1, 2, 3}},
		"the last two":      {[]int{4, 3}, []int{1, 2}},
		"two neighbours":    {[]int{2, 3}, []int{1, 4}},
		"all but the first": {[]int{3, 2, 4}, []int{1}},
		"all":               {[]int{2, 4, 1, 3}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *Lines[int], front *Turn[int]) {
				waiters := queueUp(s, 4)
				for _, id := range c.leave {
					w := waiters[id-1]
					w.cancel(errGone)
					synctest.Wait()
					if !w.served || w.turn != nil || !errors.Is(w.err, errGone) {
						t.Errorf("waiter %d: turn %v, error %v; want the cause of its context", id, w.turn, w.err)
					}
				}
				late := queueUp(s, 1)[0] // comes to the end of what is left
				late.id = 9
				got := serve(front, append(waiters, late))
				if want := append(c.want, 9); !slices.Equal(got, want) {
					t.Errorf("served %v, want %v", got, want)
				}
			})
		})
	}
}

func TestAPickedWaiterGetsTheTurnThoughItsContextEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Lines[int], front *Turn[int]) {
		waiters := queueUp(s, 2)
		if ask, ok := front.Next(); !ok || ask != 1 {
			t.Fatalf("Next: %v, %v", ask, ok)
		}
		waiters[0].cancel(errGone)
		synctest.Wait()
		if waiters[0].served {
			t.Fatal("a picked waiter came back before the turn was passed on")
		}
		if got, want := serve(front, waiters), []int{1, 2}; !slices.Equal(got, want) {
			t.Errorf("served %v, want %v", got, want)
		}
		if waiters[0].err != nil {
			t.Errorf("the picked waiter got the error %v with its turn", waiters[0].err)
		}
	})
}

func TestAWaiterWhoHasTheTurnCannotWalkAway(t *testing.T) {
	var s Lines[int]
	front, _ := s.TryEnter("n", 0)
	w := &Turn[int]{lines: &s, name: "n", ask: 1}
	s.append(w)
	front.Leave()
	if s.walkAway(w) {
		t.Error("the turn went to a waiter who walked away with it")
	}
	w.Leave()
}

func TestPickingAgainReturnsTheSameWaiter(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Lines[int], front *Turn[int]) {
		if _, ok := front.Next(); ok {
			t.Error("Next found somebody in an empty line")
		}
		waiters := queueUp(s, 3)
		for range 2 {
			if ask, ok := front.Next(); !ok || ask != 1 {
				t.Errorf("Next: %v, %v; want 1", ask, ok)
			}
			waiters[1].cancel(errGone) // the one behind may still go
			synctest.Wait()
		}
		if got, want := serve(front, waiters), []int{1, 3}; !slices.Equal(got, want) {
			t.Errorf("served %v, want %v", got, want)
		}
		if _, ok := front.Next(); ok {
			t.Error("Next after Leave found somebody")
		}
	})
}

// A second Leave by somebody who no longer has the turn must not pass on the
// turn of somebody else, nor forget the line.
func TestLeavingTwiceCountsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Lines[int], front *Turn[int]) {
		waiters := queueUp(s, 2)
		front.Leave()
		front.Leave()
		synctest.Wait()
		if waiters[1].served {
			t.Fatal("the second Leave served the second waiter")
		}
		if got, want := serve(waiters[0].turn, waiters), []int{2}; !slices.Equal(got, want) {
			t.Errorf("served %v, want %v", got, want)
		}
		again, _ := s.TryEnter("n", 5)
		front.Leave()
		if _, ok := s.TryEnter("n", 6); ok {
			t.Error("a late Leave emptied a line that somebody else had entered")
		}
		again.Leave()
	})
}

// A holder may keep its Lock, and with it its turn, for as long as it likes.
func TestATurnThatWasLeftKeepsNobodyElse(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Lines[int], front *Turn[int]) {
		waiters := queueUp(s, 3)
		serve(front, waiters)
		for _, turn := range []*Turn[int]{front, waiters[0].turn, waiters[1].turn, waiters[2].turn} {
			if turn.next != nil || turn.before != nil || turn.last != nil && turn.last != turn {
				t.Errorf("turn %d still points to its neighbours", turn.Ask())
			}
		}
	})
}

func TestTenThousandWaitersWalkAwayInAnyOrder(t *testing.T) {
	const n = 10_000
	var s Lines[int]
	front, _ := s.TryEnter("n", -1)
	waiters := make([]*Turn[int], n)
	for i := range waiters {
		waiters[i] = &Turn[int]{lines: &s, name: "n", ask: i}
		s.append(waiters[i])
	}
	stay := make(map[int]bool)
	for k, i := range rand.Perm(n) {
		if k%10 == 0 {
			stay[i] = true
		} else if !s.walkAway(waiters[i]) {
			t.Fatalf("waiter %d could not walk away", i)
		}
	}
	turn := front
	for i := range n {
		if !stay[i] {
			continue
		}
		if ask, ok := turn.Next(); !ok || ask != i {
			t.Fatalf("next is %d, %v; want %d", ask, ok, i)
		}
		turn.Leave()
		<-waiters[i].ready
		turn = waiters[i]
	}
	turn.Leave()
	if len(s.names) != 0 {
		t.Error("the line is not empty at the end")
	}
}

// TestOneHasTheTurnAtATime lets goroutines enter, try, pick and walk away at
// random; the race detector and a plain counter watch.
func TestOneHasTheTurnAtATime(t *testing.T) {
	var s Lines[int]
	holding := map[string]*int{"a": new(int), "b": new(int)}
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			for i := range 200 {
				name := []string{"a", "b"}[rand.IntN(2)]
				ctx, cancel := context.WithCancel(t.Context())
				if rand.IntN(3) == 0 {
					go cancel()
				}
				turn, err := s.Enter(ctx, name, g*1000+i)
				cancel()
				if err != nil {
					continue
				}
				if *holding[name]++; *holding[name] != 1 {
					t.Errorf("%d have the turn of %s", *holding[name], name)
				}
				if rand.IntN(2) == 0 {
					turn.Next()
				}
				*holding[name]--
				turn.Leave()
			}
		})
	}
	wg.Wait()
	if len(s.names) != 0 {
		t.Errorf("%d names are left in the map", len(s.names))
	}
}

func BenchmarkWalkAway(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("of_%d", n), func(b *testing.B) {
			var s Lines[int]
			front, _ := s.TryEnter("n", -1)
			defer front.Leave()
			waiters := make([]*Turn[int], n)
			for b.Loop() {
				for i := range waiters {
					waiters[i] = &Turn[int]{lines: &s, name: "n", ask: i}
					s.append(waiters[i])
				}
				for i := range waiters {
					s.walkAway(waiters[n-1-i])
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/waiter")
		})
	}
}
