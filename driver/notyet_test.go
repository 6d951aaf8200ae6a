package driver

import (
	"context"
	"errors"
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

// The store serves again, and its first lock is being given back. It says nothing of a
// minute any more.
func TestTryLockIsNotToldThatAStoreServesLaterWhenItServes(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		first := true
		b.onAcquire = func(context.Context) error {
			if first {
				first = false
				b.l.NotYet("a", b.l.lines["a"].front.h, errors.New("it serves in a minute"))
			}
			return nil
		}
		l := b.grant(t, "a")
		b.l.NotYet("a", b.l.lines["a"].front.h, errors.New("this is too late"))
		b.onRelease = func(context.Context, string) error {
			time.Sleep(time.Second)
			return nil
		}
		go func() { _ = l.Unlock(t.Context()) }()
		pass(time.Millisecond)
		next, err := b.l.TryLock(t.Context(), "a")
		if err != nil {
			t.Errorf("TryLock while the lock is given back: %v", err)
		} else {
			_ = next.Unlock(t.Context())
		}
		pass(time.Second)
	})
}

// serving is a store of which a test says what it does with each Lock of "a": it is
// given those that stand in front, one after another.
func serving(t *testing.T, b *backend, steps ...func(front *hold) error) {
	t.Helper()
	b.onAcquire = func(context.Context) error {
		step := steps[0]
		steps = steps[1:]
		return step(b.l.lines["a"].front.h)
	}
}

func TestStoreThatServesLaterIsOnlyHeardFromTheOneInFront(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b, soon := newBackend(), errors.New("it serves in a minute")
		serving(t, b, func(*hold) error {
			b.l.NotYet("a", new(hold), soon) // it was in front before
			time.Sleep(time.Second)
			return nil
		})
		go func() { b.grant(t, "a") }()
		pass(time.Millisecond)
		if _, err := b.l.TryLock(t.Context(), "a"); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("TryLock behind one that is granted the lock: %v", err)
		}
	})
}

func TestNextInLineHearsForItselfWhetherTheStoreServes(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b, soon := newBackend(), errors.New("it serves in a minute")
		serving(t, b, func(front *hold) error {
			b.l.NotYet("a", front, soon)
			time.Sleep(time.Second)
			return locker.ErrMismatch // those behind go on
		}, func(*hold) error {
			time.Sleep(time.Second)
			return nil
		})
		for range 2 {
			go func() { _, _ = b.l.Lock(t.Context(), "a") }()
			pass(time.Millisecond)
		}
		pass(time.Second)
		if _, err := b.l.TryLock(t.Context(), "a"); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("TryLock behind one that is granted the lock: %v", err)
		}
	})
}

func TestErrorBehindALockForAStoreThatServesLaterSaysWhatIsTrueAtItsEnd(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b, soon := newBackend(), errors.New("it serves in a minute")
		front := &call[*hold]{}
		hold := make(chan struct{})
		b.onAcquire = func(context.Context) error {
			front = b.l.lines["a"].front
			b.l.NotYet("a", front.h, soon)
			<-hold
			return nil
		}
		go func() { b.grant(t, "a") }()
		pass(time.Millisecond)
		ends := func(ctx context.Context) <-chan error {
			ended := make(chan error, 1)
			go func() {
				_, err := b.l.Lock(ctx, "a")
				ended <- err
			}()
			pass(time.Millisecond)
			return ended
		}
		ctx, cancel := context.WithCancel(t.Context())
		taken, closed := ends(ctx), ends(t.Context())
		b.l.mu.Lock()
		b.l.heard(front)
		b.l.mu.Unlock()
		cancel()
		if err := <-taken; !errors.Is(err, locker.ErrTaken) || errors.Is(err, soon) {
			t.Errorf("the lock was taken: %v", err)
		}
		go func() { _ = b.l.Close() }()
		if err := <-closed; !errors.Is(err, locker.ErrClosed) || errors.Is(err, soon) {
			t.Errorf("the Locker was closed: %v", err)
		}
		close(hold)
	})
}
