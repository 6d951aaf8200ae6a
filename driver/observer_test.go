package driver_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/lockertest"
)

// A test's FailNow ends a goroutine so.
func TestObserverThatEndsItsGoroutineHearsOfWhatFollows(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		var all told
		n := 0
		seen := locker.Observe(l, func(e locker.Event) {
			if n++; n == 2 {
				runtime.Goexit()
			}
			all.observe(e)
		})
		first := mustLock(t, seen)
		mustUnlock(t, first)
		second := mustLock(t, seen)
		mustUnlock(t, second)
		a, b := first.Token(), second.Token()
		if events := all.want(t, fmt.Sprintf("granted %d, granted %d, released %d", a, b, b)); len(events) != 3 || events[1].Missed != 1 {
			t.Errorf("%+v", events)
		}
		began := time.Now()
		if err := l.Close(); err != nil || time.Since(began) != 0 {
			t.Errorf("Close: %v after %v", err, time.Since(began))
		}
	})
}

func TestCloseWaitsForAnObserverThatTwoLockersShare(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		var all told
		seen := locker.WithObserver(func(e locker.Event) { time.Sleep(100 * time.Millisecond); all.observe(e) })
		other := lockertest.New()
		first := mustLock(t, l, seen) // it is being told when the next ones come
		second := mustLock(t, other, seen)
		_ = other.Close()
		all.mu.Lock()
		got := words(all.events)
		all.mu.Unlock()
		if want := fmt.Sprintf("granted %d, granted %d", first.Token(), second.Token()); got != want {
			t.Errorf("told at the end of Close  %s\nwant %s", got, want)
		}
		mustUnlock(t, first)
		mustUnlock(t, second)
	})
}

// asked is a store that is asked who holds a lock.
type asked struct {
	*probe
	inspect func(ctx context.Context) locker.Info
}

func (s asked) Inspect(ctx context.Context, _ string) (locker.Info, error) {
	return s.inspect(ctx), nil
}

// The second stands behind the first, and hears with it that the lock is taken.
func TestStoreIsAskedForWhomACallWaitsOnlyWhileItIsNotKnownToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all told
		var questions atomic.Int32
		free := make(chan struct{}, 2)
		p := &probe{acquire: func(_ context.Context, wait driver.Wait) error { wait(); <-free; return nil }}
		l := driver.New("probe", asked{p, func(context.Context) locker.Info { questions.Add(1); return locker.Info{Holder: "other"} }}, driver.Options{})
		seen := locker.WithObserver(all.observe)
		a, b := asking(t.Context(), l, seen, locker.WithTTL(time.Second)), asking(t.Context(), l, seen)
		for _, got := range []<-chan outcome{a, b} {
			free <- struct{}{}
			mustUnlock(t, granted(t, got))
		}
		free <- struct{}{}
		mustUnlock(t, mustLock(t, l)) // nobody wants to hear of it
		synctest.Wait()
		if n := questions.Load(); n != 1 {
			t.Errorf("the store was asked %d times", n)
		}
		all.want(t, "waiting 0 other, waiting 0, granted 1, released 1, granted 65, released 65")
	})
}

// Clients close the connection of a request whose context ends: with every lock that is
// granted at once, a pool would have to connect anew.
func TestQuestionForWhomACallWaitsEndsWithTheLockerAndNotWithTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctxs := make(chan context.Context, 1)
		p := &probe{acquire: func(_ context.Context, wait driver.Wait) error { wait(); return nil }}
		l := driver.New("probe", asked{p, func(ctx context.Context) locker.Info { ctxs <- ctx; <-ctx.Done(); return locker.Info{} }}, driver.Options{})
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "of the call"))
		lock, err := l.Lock(ctx, "a", locker.WithObserver(func(locker.Event) {}))
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		synctest.Wait()
		asked := <-ctxs
		if asked.Err() != nil || asked.Value(key{}) != "of the call" {
			t.Errorf("the question has ended with the call: %v; it has the value %v", asked.Err(), asked.Value(key{}))
		}
		mustUnlock(t, lock)
		began := time.Now()
		if _ = l.Close(); time.Since(began) != 0 || asked.Err() == nil {
			t.Errorf("Close took %v, the question: %v", time.Since(began), asked.Err())
		}
	})
}

func TestWaitIsToldWhateverTheStoreAnswers(t *testing.T) {
	for want, inspect := range map[string]func(ctx context.Context) locker.Info{
		"waiting 0 reader": func(context.Context) locker.Info {
			return locker.Info{Holders: []locker.Holder{{Text: "reader"}, {Text: "later"}}}
		},
		"waiting 0":  func(ctx context.Context) locker.Info { <-ctx.Done(); return locker.Info{} },
		"waiting 0 ": func(context.Context) locker.Info { panic("a hook of the client's") },
	} {
		synctest.Test(t, func(t *testing.T) {
			var all told
			free := make(chan struct{})
			p := &probe{acquire: func(_ context.Context, wait driver.Wait) error { wait(); <-free; return nil }}
			got := asking(t.Context(), driver.New("probe", asked{p, inspect}, driver.Options{}), locker.WithObserver(all.observe))
			time.Sleep(3 * time.Second)
			all.want(t, strings.TrimSpace(want))
			close(free)
			mustUnlock(t, granted(t, got))
		})
	}
}

func TestHolderWhoRenewsALockItselfIsNotLate(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		var all told
		lock := mustLock(t, l, locker.WithObserver(all.observe), locker.WithoutRenewal())
		time.Sleep(25 * time.Second)
		if err := lock.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, lock)
		all.want(t, fmt.Sprintf("granted %d, released %d 25s", lock.Token(), lock.Token()))
	})
}

func TestCleanUpIsToldToTheReaderWhoHeldTheLockLast(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		var first, last told
		a := mustLock(t, l, locker.WithShared(), locker.WithObserver(first.observe))
		b := mustLock(t, l, locker.WithShared(), locker.WithObserver(last.observe))
		mustUnlock(t, a)
		l.Link().Cut()
		if b.Unlock(t.Context()) == nil {
			t.Error("Unlock of a store that is away")
		}
		l.Link().Heal()
		time.Sleep(time.Minute)
		n := a.SharedToken()
		first.want(t, fmt.Sprintf("granted %d, released %d", n, n))
		last.want(t, fmt.Sprintf("passed %d, released %d 2s!, cleaned_up 0", n, n))
	})
}
