package driver

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockstile/locker"
)

// The servers of a store will serve in a minute. A Lock waits for that, and so do those
// behind it; a TryLock does not, whether it came before the store has said so or after.
func TestTryLockDoesNotWaitBehindALockForAStoreThatServesLater(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		soon, serves := errors.New("it serves in a minute"), false
		b.onAcquire = func(context.Context) error {
			if !serves {
				time.Sleep(time.Second)
				b.l.NotYet("a", b.l.lines["a"].front.h, soon)
				time.Sleep(time.Minute)
				serves = true
			}
			return nil
		}
		granted := make(chan *locker.Lock, 2)
		for range 2 {
			go func() {
				lock, err := b.l.Lock(t.Context(), "a")
				if err != nil {
					t.Error(err)
				}
				granted <- lock
			}()
			pass(time.Millisecond)
		}
		began := time.Now()
		try := func(at time.Duration, want error) {
			t.Helper()
			_, err := b.l.TryLock(t.Context(), "a")
			if !errors.Is(err, want) || want == soon && (!errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrTaken)) {
				t.Errorf("TryLock: %v", err)
			}
			if d := time.Since(began).Round(time.Second); d != at {
				t.Errorf("TryLock returned after %v, want %v", d, at)
			}
		}
		try(time.Second, soon)
		try(time.Second, soon)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.l.Lock(ctx, "a"); !errors.Is(err, soon) || !errors.Is(err, locker.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, locker.ErrTaken) {
			t.Errorf("a Lock behind it whose ctx ended: %v", err)
		}
		lock := <-granted
		try(61*time.Second, locker.ErrTaken)
		b.l.NotYet("a", b.l.lines["a"].front.h, soon) // too late
		try(61*time.Second, locker.ErrTaken)
		_ = lock.Unlock(t.Context())
		_ = (<-granted).Unlock(t.Context())
		b.l.NotYet("a", nil, soon) // of nobody
		if _, err := b.l.TryLock(t.Context(), "a"); err != nil {
			t.Error(err)
		}
	})
}

// What the one in front was told is not what the next one is: a TryLock behind that one
// waits for its answer.
func TestWhyAStoreServesLaterIsForgottenWithTheOneItWasToldTo(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		first := true
		b.onAcquire = func(ctx context.Context) error {
			if first {
				first = false
				b.l.NotYet("a", b.l.lines["a"].front.h, errors.New("it serves in a minute"))
				<-ctx.Done()
				return ctx.Err()
			}
			time.Sleep(time.Second)
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _, _ = b.l.Lock(ctx, "a") })
		pass(time.Millisecond)
		all.Go(func() {
			lock, err := b.l.Lock(t.Context(), "a")
			if err != nil {
				t.Error(err)
				return
			}
			pass(time.Second)
			_ = lock.Unlock(t.Context())
		})
		pass(time.Millisecond)
		cancel()
		pass(time.Millisecond)
		if _, err := b.l.TryLock(t.Context(), "a"); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("TryLock behind one that asks: %v", err)
		}
		all.Wait()
	})
}
