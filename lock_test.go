package locker

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockstile/locker/internal/contract"
)

func TestUnlockReleasesOnceAndReportsItsFirstResult(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		refused := errors.New("refused")
		b.onRelease = func(context.Context, string) error { return refused }
		l := b.grant(t, "a")
		for range 3 {
			if err := l.Unlock(t.Context()); err != refused {
				t.Errorf("Unlock: %v", err)
			}
		}
		if b.releases() != 1 {
			t.Errorf("%d releases", b.releases())
		}
	})
}

type key struct{}

func TestBoundContextHasTheValuesOfItsParentAndEndsWithItOrWithTheLock(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		parent, end := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
		for _, c := range []struct {
			end  func(l *Lock, stop context.CancelFunc)
			want error
		}{
			{func(l *Lock, _ context.CancelFunc) { lose(l, ReasonForced) }, ErrLost},
			{func(l *Lock, _ context.CancelFunc) { _ = l.Unlock(t.Context()) }, ErrUnlocked},
			{func(_ *Lock, stop context.CancelFunc) { stop() }, context.Canceled},
			{func(*Lock, context.CancelFunc) { end(errShutdown) }, errShutdown},
		} {
			l := b.grant(t, "a")
			ctx, stop := l.Bind(parent)
			if ctx.Err() != nil || ctx.Value(key{}) != "value" {
				t.Errorf("a bound context: %v, value %v", ctx.Err(), ctx.Value(key{}))
			}
			c.end(l, stop)
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), c.want) {
				t.Errorf("it ended because of %v, want %v", context.Cause(ctx), c.want)
			}
			stop()
			_ = l.Unlock(t.Context())
			if over, stop := l.Bind(t.Context()); !contract.IsAny(context.Cause(over), ErrLost, ErrUnlocked) {
				t.Errorf("a context bound to a lock that is over: %v", context.Cause(over))
			} else {
				stop()
			}
		}
	})
}

// A lock that is held for days may have many jobs bound to it, one after another.
func TestContextOfAJobThatIsDoneIsNotKeptByTheLock(t *testing.T) {
	lock, freed := newBackend().grant(t, "a"), make(chan struct{})
	func() {
		job := &LostError{Name: "the job"}
		runtime.AddCleanup(job, func(struct{}) { close(freed) }, struct{}{})
		_, stop := lock.Bind(context.WithValue(t.Context(), key{}, job))
		stop()
	}()
	wantCollected(t, freed, "what was bound to a lock, and is done,")
	wantHeld(t, lock)
}

var errShutdown = errors.New("the program shuts down")

// A deferred Unlock comes after the one that panicked, and its nil would say that
// the lock is free.
func TestUnlockAfterOneThatPanickedIsAnUnknownOutcome(t *testing.T) {
	for name, stop := range map[string]func(){
		"panic":  func() { panic("a hook of the client's") },
		"goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, _ *clock) {
				b := newBackend()
				b.onRelease = func(context.Context, string) error { stop(); return nil }
				l := b.grant(t, "a")
				ended := make(chan any)
				go func() {
					defer func() { ended <- recover() }()
					_ = l.Unlock(t.Context())
					t.Error("Unlock returned")
				}()
				if panicked := <-ended; (panicked != nil) != (name == "panic") {
					t.Errorf("Unlock panicked with %v", panicked)
				}
				for range 2 {
					if err := l.Unlock(t.Context()); !errors.Is(err, ErrOutcomeUnknown) || !strings.Contains(err.Error(), `"a"`) {
						t.Errorf("Unlock: %v", err)
					}
				}
				if b.releases() != 1 {
					t.Errorf("%d releases", b.releases())
				}
			})
		})
	}
}

func TestConcurrentUnlocksReleaseOnceAndAllWaitForIt(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		const n = 20
		b := newBackend()
		var started, wg sync.WaitGroup
		var over atomic.Bool
		refused := errors.New("refused")
		b.onRelease = func(context.Context, string) error {
			started.Wait() // until everybody is about to unlock
			over.Store(true)
			return refused
		}
		l := b.grant(t, "a")
		started.Add(n)
		for range n {
			wg.Go(func() {
				started.Done()
				if err := l.Unlock(t.Context()); err != refused || !over.Load() {
					t.Errorf("Unlock: %v; the release was over: %v", err, over.Load())
				}
			})
		}
		wg.Wait()
		if b.releases() != 1 {
			t.Errorf("%d releases", b.releases())
		}
	})
}
