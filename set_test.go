package locker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/lockertest"
)

// steps is a Locker that does something when it has locked a name.
type steps struct {
	locker.Locker
	after func(name string, err error)
}

func (s steps) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	lock, err := s.Locker.Lock(ctx, name, opts...)
	s.after(name, err)
	return lock, err
}

func (s steps) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	lock, err := s.Locker.TryLock(ctx, name, opts...)
	s.after(name, err)
	return lock, err
}

// hears is a Locker that looks at a call of Lock before it locks.
type hears struct {
	locker.Locker
	before func(ctx context.Context) error
}

func (h hears) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	if err := h.before(ctx); err != nil {
		return nil, err
	}
	return h.Locker.Lock(ctx, name, opts...)
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// wantFree fails the test unless other can lock each of the names at once.
func wantFree(t *testing.T, other locker.Locker, names ...string) {
	t.Helper()
	for _, name := range names {
		lock, err := other.TryLock(t.Context(), name)
		if err != nil {
			t.Errorf("%q is not free: %v", name, err)
			continue
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// wantError fails the test unless err is each of want, is none of unwanted, and says it in
// one line with the word.
func wantError(t *testing.T, err error, word string, want, unwanted []error) {
	t.Helper()
	for _, target := range want {
		if !errors.Is(err, target) {
			t.Errorf("%v\nis not: %v", err, target)
		}
	}
	for _, target := range unwanted {
		if errors.Is(err, target) {
			t.Errorf("%v\nis: %v", err, target)
		}
	}
	if err != nil && (!strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "\n")) {
		t.Errorf("%q is not one line with %q", err, word)
	}
}

func TestASetHasAllNamesOnceInOrder(t *testing.T) {
	locks := lockertest.New()
	var order []string
	set := must[*locker.Set](t)(locker.LockAll(t.Context(), steps{locks, func(name string, _ error) { order = append(order, name) }}, []string{"c", "a", "b", "a"}))
	want := []string{"a", "b", "c"}
	clear(set.Locks()) // they are the caller's
	if !slices.Equal(order, want) || !slices.Equal(names(set), want) {
		t.Errorf("locked %q, Locks %q, want %q", order, names(set), want)
	}
	for _, name := range want {
		if lock, err := set.Lock(name); err != nil || lock.Name() != name || lock.Token() == 0 || lock.Err() != nil {
			t.Errorf("Lock(%q) is %v, %v", name, lock, err)
		}
		if _, err := locks.Another().TryLock(t.Context(), name); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if lock, err := set.Lock("other"); lock != nil || err == nil || !strings.Contains(err.Error(), `has no lock "other"`) {
		t.Errorf("Lock(other) %v, %v", lock, err)
	}
	if set.Err() != nil || set.Context().Err() != nil {
		t.Errorf("Err %v, context %v", set.Err(), set.Context().Err())
	}
	for range 2 {
		if err := set.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock: %v", err)
		}
	}
	wantFree(t, locks.Another(), want...)
	<-set.Context().Done()
	select {
	case <-set.Lost():
		t.Error("Unlock has closed Lost")
	default:
	}
	if !errors.Is(set.Err(), locker.ErrUnlocked) || errors.Is(set.Err(), locker.ErrLost) || context.Cause(set.Context()) != set.Err() {
		t.Errorf("Err %v, the context's cause %v", set.Err(), context.Cause(set.Context()))
	}
}

// Method: each has its first lock for a second before it asks for the next one. If they
// asked in the order in which the names are given, each would wait for the other.
func TestProgramsThatNameTheSameLocksInAnotherOrderDoNotDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		done := make(chan error)
		for _, names := range [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "c", "a"}} {
			slow := steps{locks.Another(), func(string, error) { time.Sleep(time.Second) }}
			go func() {
				var err error
				for range 5 {
					err = errors.Join(err, locker.DoAll(ctx, slow, names, func(context.Context, *locker.Set) error { return nil }))
				}
				done <- err
			}()
		}
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestASetThatCannotBeCompleteLeavesNothing(t *testing.T) {
	calls := map[string]func(context.Context, locker.Locker, []string, ...locker.Option) (*locker.Set, error){
		"LockAll": locker.LockAll, "TryLockAll": locker.TryLockAll,
	}
	for name, call := range calls {
		for _, names := range [][]string{{"a", "b", "c"}, {"b"}} {
			t.Run(fmt.Sprintf("%s of %d", name, len(names)), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					locks := lockertest.New()
					locks.Take("b")
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					set, err := call(ctx, locks, names, locker.WithMinHold(time.Second))
					if set != nil || err == nil {
						t.Fatal("there is a Set, or no error")
					}
					wantError(t, err, `"b"`, []error{locker.ErrTaken}, []error{locker.ErrOutcomeUnknown, locker.ErrUnavailable})
					if strings.HasPrefix(err.Error(), "locker: lock 3 names: ") != (len(names) == 3) || strings.Contains(err.Error(), "lock 1 names") {
						t.Errorf("of %d names: %v", len(names), err)
					}
					wantFree(t, locks.Another(), "a", "c")
				})
			})
		}
	}
}

func TestTheWaitIsThatOfTheWholeSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, start := lockertest.New(), time.Now()
		locks.Take("a")
		locks.Take("b")
		time.AfterFunc(6*time.Second, func() { locks.Free("a") })
		_, err := locker.LockAll(t.Context(), locks, []string{"a", "b"}, locker.WithWait(10*time.Second))
		wantError(t, err, `"b"`, []error{locker.ErrTaken, context.DeadlineExceeded}, nil)
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("it took %v", took)
		}
		if _, err := locker.TryLockAll(t.Context(), locks, []string{"a"}, locker.WithWait(time.Second)); err == nil {
			t.Error("TryLockAll takes WithWait")
		}
	})
}

// Goal: a name that nobody was asked about is not called taken.
func TestASetWhoseTimeIsOverBetweenTwoNamesIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		slow := steps{locks, func(string, error) { time.Sleep(time.Minute) }}
		_, err := locker.LockAll(t.Context(), slow, []string{"a", "b"}, locker.WithWait(time.Second))
		wantError(t, err, `"b"`, []error{locker.ErrUnavailable, context.DeadlineExceeded}, []error{locker.ErrTaken})
		wantFree(t, locks.Another(), "a", "b")

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = locker.LockAll(ended, locks, []string{"a", "b"})
		wantError(t, err, "", []error{context.Canceled}, []error{locker.ErrTaken, locker.ErrUnavailable})
	})
}

// What a backend refuses before it asks its store is no failure of the store.
func TestASetThatABackendRefusesIsNotUnavailable(t *testing.T) {
	refused := errors.New("the lease is too short for this store")
	_, err := locker.LockAll(t.Context(), hears{nil, func(context.Context) error { return refused }}, []string{"a", "b"})
	wantError(t, err, "too short", []error{refused}, []error{locker.ErrUnavailable, locker.ErrTaken, locker.ErrOutcomeUnknown})
}

func TestASetLeavesNothingInTheContextOfItsCall(t *testing.T) {
	var asked context.Context
	locks := hears{lockertest.New(), func(ctx context.Context) error { asked = ctx; return nil }}
	set := must[*locker.Set](t)(locker.LockAll(t.Context(), locks, []string{"a"}))
	if asked.Err() == nil {
		t.Error("LockAll has returned, and the context in which it asked goes on")
	}
	if err := set.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestASetIsLostWhenOneOfItsLocksIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		set := must[*locker.Set](t)(locker.LockAll(t.Context(), locks, []string{"a", "b", "c"}))
		locks.Lose("b")
		var lost *locker.LostError
		if !errors.As(set.Err(), &lost) || lost.Name != "b" || lost.Reason != locker.ReasonTakenOver {
			t.Errorf("Err %v", set.Err())
		}
		<-set.Lost()
		<-set.Context().Done()
		if context.Cause(set.Context()) != set.Err() {
			t.Errorf("the context's cause is %v", context.Cause(set.Context()))
		}
		locks.Free("b") // nobody has it
		for range 2 {
			wantError(t, set.Unlock(t.Context()), `"b"`, []error{locker.ErrLost}, nil)
		}
		wantFree(t, locks.Another(), "a", "b", "c")
	})
}

// Method: the clock has passed the end of validity, and no timer has fired yet.
func TestASetThatIsUnlockedAfterItsEndWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		set := must[*locker.Set](t)(locker.LockAll(t.Context(), locks, []string{"a", "b"}, locker.WithMaxHold(time.Second)))
		time.Sleep(time.Second)
		wantError(t, set.Unlock(t.Context()), `"a"`, []error{locker.ErrLost}, nil)
		<-set.Lost()
	})
}

func TestASetThatLosesALockBeforeItIsCompleteStopsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, start := lockertest.New(), time.Now()
		locks.Take("b")
		time.AfterFunc(3*time.Second, func() { locks.Lose("a") })
		_, err := locker.LockAll(t.Context(), locks, []string{"a", "b"})
		wantError(t, err, `"a"`, []error{locker.ErrUnavailable, locker.ErrLost}, []error{locker.ErrTaken, locker.ErrOutcomeUnknown})
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// Method: the answers stop while "b" is waited for.
func TestASetThatMayHaveLeftSomethingSaysSoWhateverElseHasHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		locks.Take("b")
		time.AfterFunc(3*time.Second, func() {
			locks.Link().Cut()
			locks.Lose("a")
		})
		_, err := locker.LockAll(t.Context(), locks, []string{"a", "b"})
		wantError(t, err, `"b"`, []error{locker.ErrOutcomeUnknown, locker.ErrLost}, nil)
		locks.Link().Heal()
		_ = locks.Close() // waits for the clean-up
	})
}

// Goal: "a" was to be kept for an hour already when "b" was found to be lost.
func TestASetThatIsLostWhenItIsCompleteKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		losing := steps{locks, func(name string, _ error) {
			if name == "c" {
				locks.Lose("b")
			}
		}}
		_, err := locker.LockAll(t.Context(), losing, []string{"a", "b", "c"}, locker.WithMinHold(time.Hour))
		wantError(t, err, `"b"`, []error{locker.ErrUnavailable, locker.ErrLost}, []error{locker.ErrOutcomeUnknown})
		wantFree(t, locks.Another(), "a", "b", "c")
	})
}

func TestHoldsCountFromTheCompleteSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		other := locks.Another()
		late := func(opts ...locker.Option) (*locker.Set, time.Time) { // "b" is there after ten seconds
			locks.Take("b")
			time.AfterFunc(10*time.Second, func() { locks.Free("b") })
			return must[*locker.Set](t)(locker.LockAll(t.Context(), locks, []string{"a", "b"}, opts...)), time.Now()
		}
		set, complete := late(locker.WithMaxHold(5 * time.Second))
		<-set.Lost()
		var lost *locker.LostError
		if held := time.Since(complete); held != 5*time.Second || !errors.As(set.Err(), &lost) || lost.Reason != locker.ReasonMaxHold {
			t.Errorf("held for %v: %v", held, set.Err())
		}
		wantError(t, set.Unlock(t.Context()), `"a"`, []error{locker.ErrLost}, nil)
		synctest.Wait() // the store hears of it in the background
		wantFree(t, other, "a", "b")

		set, complete = late(locker.WithMinHold(time.Minute))
		if err := set.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		for _, name := range names(set) {
			lock := must[*locker.Lock](t)(other.Lock(t.Context(), name))
			if kept := time.Since(complete); kept < time.Minute || kept > time.Minute+time.Second {
				t.Errorf("%q was kept for %v", name, kept)
			}
			if err := lock.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestEachLockOfACompleteSetHasTheValidityThatIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		locks.Take("b")
		time.AfterFunc(10*time.Second, func() { locks.Free("b") })
		_, err := locker.LockAll(t.Context(), locks, []string{"a", "b"}, locker.WithoutRenewal(), locker.WithMinValidity(25*time.Second))
		wantError(t, err, "25s", []error{locker.ErrUnavailable}, []error{locker.ErrLost, locker.ErrOutcomeUnknown})
		wantFree(t, locks.Another(), "a", "b")
	})
}

func TestWhatASetCannotHaveIsRefusedBeforeTheStoreIsAsked(t *testing.T) {
	locks := lockertest.New()
	var many []string
	for i := range locker.MaxSet + 1 {
		many = append(many, fmt.Sprint(i))
	}
	for what, call := range map[string]struct {
		names []string
		opts  []locker.Option
	}{
		"no names": {},
		"65 names": {names: many},
		"an empty": {names: []string{"a", ""}},
		"no text":  {names: []string{"a", "b\xff"}}, // the last one
		"a guard":  {[]string{"a"}, []locker.Option{locker.WithGuard(&fencing.Memory{})}},
		"a nil":    {[]string{"a"}, []locker.Option{{}}},
		"too much": {[]string{"a"}, []locker.Option{locker.WithMinHold(time.Minute), locker.WithMaxHold(time.Second)}},
	} {
		if set, err := locker.LockAll(t.Context(), locks, call.names, call.opts...); err == nil || set != nil {
			t.Errorf("%s: %v, %v", what, set, err)
		}
		if set, err := locker.TryLockAll(t.Context(), locks, call.names, call.opts...); err == nil || set != nil {
			t.Errorf("%s: TryLockAll: %v, %v", what, set, err)
		}
		called := false
		err := locker.DoAll(t.Context(), locks, call.names, func(context.Context, *locker.Set) error { called = true; return nil }, call.opts...)
		if err == nil || called {
			t.Errorf("%s: DoAll: %v, called: %v", what, err, called)
		}
	}
	if n := locks.Link().Requests(); n > 0 {
		t.Errorf("%d requests were sent", n)
	}
	set := must[*locker.Set](t)(locker.LockAll(t.Context(), locks, append(many[1:], many[1])))
	if err := set.Unlock(t.Context()); err != nil || len(set.Locks()) != 64 {
		t.Errorf("of %d names: %v", len(set.Locks()), err)
	}
}

// Method: the store's answers stop when it has said that "b" is taken.
func TestASetThatCouldNotBeGivenBackHasAnUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		locks.Take("d")
		cut := steps{locks, func(name string, _ error) {
			if name == "d" {
				locks.Link().Cut()
			}
		}}
		start := time.Now()
		_, err := locker.TryLockAll(t.Context(), cut, []string{"a", "b", "c", "d"})
		wantError(t, err, `"d"`, []error{locker.ErrOutcomeUnknown, locker.ErrTaken}, nil)
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("it took %v", took)
		}
		locks.Link().Deliver()
		synctest.Wait()
		wantFree(t, locks.Another(), "a", "b", "c")
	})
}

func TestUnlockOfASetTellsInOneLineWhatTheStoreDidNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		var names []string
		for i := range 20 {
			names = append(names, fmt.Sprintf("orders/%02d", i))
		}
		set := must[*locker.Set](t)(locker.LockAll(t.Context(), locks, names))
		locks.Link().Cut()
		start := time.Now()
		err := set.Unlock(t.Context())
		wantError(t, err, `"orders/00"`, []error{locker.ErrUnavailable}, []error{locker.ErrLost})
		wantError(t, err, "and 19 more of the locks", nil, nil)
		if took := time.Since(start); took != 2*time.Second || len(err.Error()) > 300 {
			t.Errorf("after %v: %v", took, err)
		}
		locks.Link().Heal()
		_ = locks.Close() // waits for the clean-up
	})
}

func TestASetCostsNoGoroutine(t *testing.T) {
	locks := lockertest.New()
	before := runtime.NumGoroutine()
	wantBefore := func(when string) {
		for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d goroutines before, %d %s", before, runtime.NumGoroutine(), when)
			}
		}
	}
	set := must[*locker.Set](t)(locker.LockAll(t.Context(), locks, []string{"a", "b", "c"}))
	wantBefore("while it is held")
	if err := set.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	wantBefore("afterwards")
}

func TestDoAllEndsItsFunctionWhenALockIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		type key struct{}
		err := locker.DoAll(context.WithValue(t.Context(), key{}, "value"), locks, []string{"b", "a"}, func(ctx context.Context, set *locker.Set) error {
			if ctx.Value(key{}) != "value" || set.Err() != nil || ctx.Err() != nil {
				t.Errorf("value %v, Err %v, context %v", ctx.Value(key{}), set.Err(), ctx.Err())
			}
			locks.Lose("a")
			<-ctx.Done()
			return context.Cause(ctx)
		})
		wantError(t, err, `"a"`, []error{locker.ErrLost}, nil)
		if strings.Count(err.Error(), `"a"`) != 1 {
			t.Errorf("said twice: %v", err)
		}
		wantFree(t, locks.Another(), "a", "b")

		sorry, within := errors.New("sorry"), t.Context()
		err = locker.DoAll(t.Context(), locks, []string{"a"}, func(ctx context.Context, _ *locker.Set) error { within = ctx; return sorry })
		if err != sorry || context.Cause(within) != context.Canceled {
			t.Errorf("DoAll returns %v, and the context of its function: %v", err, context.Cause(within))
		}
	})
}

// names are those of the locks of a Set, in its order.
func names(set *locker.Set) (all []string) {
	for _, lock := range set.Locks() {
		all = append(all, lock.Name())
	}
	return all
}

func TestTryDoAllCallsNothingIfSomebodyHasOneOfTheLocks(t *testing.T) {
	locks, calls := lockertest.New(), 0
	fn := func(ctx context.Context, set *locker.Set) error {
		if calls++; ctx.Err() != nil || len(set.Locks()) != 2 {
			t.Errorf("called with %d locks, %v", len(set.Locks()), ctx.Err())
		}
		return nil
	}
	if err := locker.TryDoAll(t.Context(), locks, []string{"a", "b"}, fn); err != nil || calls != 1 {
		t.Errorf("%v, %d calls", err, calls)
	}
	wantFree(t, locks.Another(), "a", "b")
	held := must[*locker.Lock](t)(locks.Another().TryLock(t.Context(), "b"))
	if err := locker.TryDoAll(t.Context(), locks, []string{"a", "b"}, fn); !errors.Is(err, locker.ErrTaken) || calls != 1 {
		t.Errorf("%v, %d calls", err, calls)
	}
	wantFree(t, locks.Another(), "a")
	_ = held.Unlock(t.Context())
}

// A Set is held until the first of its locks ends, and so is work that is bound to it.
func TestASetIsValidForAsLongAsTheFirstOfItsLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		set := must[*locker.Set](t)(locker.LockAll(t.Context(), locks, []string{"a", "b"}, locker.WithoutRenewal()))
		time.Sleep(10 * time.Second)
		end := set.Deadline()
		for _, lock := range set.Locks()[1:] {
			if err := lock.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if first := set.Locks()[0].Deadline(); !set.Deadline().Equal(end) || !end.Equal(first) {
			t.Errorf("valid until %v, and its first lock until %v", set.Deadline(), first)
		}
		ctx, stop := set.Bind(t.Context())
		defer stop()
		if ctx.Err() != nil {
			t.Error(context.Cause(ctx))
		}
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, locker.ErrLost) || !time.Now().Equal(end) {
			t.Errorf("it ended %v after the Set because of %v", time.Since(end), cause)
		}
		_ = set.Unlock(t.Context())
	})
}
