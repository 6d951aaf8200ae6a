package locker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker/fencing"
)

// clock is the virtual clock of elapsed time. It runs with the bubble's, and
// can jump ahead of it: then timers do not fire, as after a machine's suspension.
type clock struct{ ahead atomic.Int64 }

func (c *clock) jump(d time.Duration) { c.ahead.Add(int64(d)) }

// virtual runs f in a synctest bubble whose clock is also that of [Instant].
func virtual(t *testing.T, f func(t *testing.T, c *clock)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, real, start := &clock{}, elapsed, time.Now()
		elapsed = func() time.Duration { return time.Hour + time.Since(start) + time.Duration(c.ahead.Load()) }
		t.Cleanup(func() {
			synctest.Wait()
			elapsed = real
		})
		f(t, c)
	})
}

// backend is the half of a Locker that is not the core's: its memory stands for
// the store, and it answers renewals and releases as a test tells it to.
type backend struct {
	keeper *Keeper

	mu       sync.Mutex
	held     map[string]bool
	token    fencing.Token
	renewals [][]string
	released []string
	options  int // of the last Lock or TryLock

	onRenew   func(ctx context.Context, name string) error // nil: renewed
	onRelease func(ctx context.Context, name string) error // nil: released
	onHold    func(*Hold)                                  // changes what is granted
}

func newBackend() *backend {
	b := &backend{held: make(map[string]bool)}
	b.keeper = NewKeeper(b.renew)
	return b
}

func (b *backend) renew(ctx context.Context, names []string) []error {
	b.mu.Lock()
	b.renewals = append(b.renewals, slices.Clone(names))
	answer := b.onRenew
	b.mu.Unlock()
	errs := make([]error, len(names))
	for i, name := range names {
		if answer != nil {
			errs[i] = answer(ctx, name)
		}
	}
	return errs
}

func (b *backend) release(ctx context.Context, name string) error {
	b.mu.Lock()
	b.released = append(b.released, name)
	b.held[name] = false
	answer := b.onRelease
	b.mu.Unlock()
	if answer != nil {
		return answer(ctx, name)
	}
	return nil
}

func (b *backend) Lock(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	req, err := NewRequest(name, opts...)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.options = len(opts)
	if b.held[name] {
		return nil, fmt.Errorf("backend: lock %q: %w", name, ErrTaken)
	}
	b.held[name] = true
	b.token++
	h := Hold{
		Request: req, Token: b.token, Since: Now(), Keeper: b.keeper, Lease: name,
		Release: func(ctx context.Context) error { return b.release(ctx, name) },
	}
	if b.onHold != nil {
		b.onHold(&h)
	}
	return NewLock(h), nil
}

func (b *backend) TryLock(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	return b.Lock(ctx, name, opts...)
}

func (b *backend) Guarantees() Guarantees {
	return Guarantees{Exclusion: PromptHolder | SteadyClocks, Tokens: DurableServer, Fair: true, Release: ByExpiry, Tolerates: 2}
}

// grant locks name, which must be free.
func (b *backend) grant(t testing.TB, name string, opts ...Option) *Lock {
	t.Helper()
	l, err := b.Lock(t.Context(), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (b *backend) renewed() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.renewals)
}

func (b *backend) releases() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.released)
}

// answerRenewals sets what renewals are answered from now on.
func (b *backend) answerRenewals(f func(ctx context.Context, name string) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onRenew = f
}

// always answers every renewal with err.
func always(err error) func(context.Context, string) error {
	return func(context.Context, string) error { return err }
}

// silent never answers: it returns when ctx ends, as a renewal has to.
func silent(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// pass lets d go by and everything happen that was due.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// isLost reports what Lost says, without a wait.
func isLost(l *Lock) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

// wantReason fails the test unless l was lost for this reason, and everything
// that tells of a loss tells of it.
func wantReason(t *testing.T, l *Lock, reason Reason) *LostError {
	t.Helper()
	lost, ok := l.Err().(*LostError)
	if !ok || lost.Reason != reason || lost.Name != l.Name() {
		t.Fatalf("Err is %v, want a loss of %q because %v", l.Err(), l.Name(), reason)
	}
	synctest.Wait()
	if !isLost(l) {
		t.Error("Lost is not closed")
	}
	if cause := context.Cause(l.Context()); cause != error(lost) {
		t.Errorf("the cause of Context is %v, want what Err returns", cause)
	}
	return lost
}

// wantHeld fails the test if l is not held.
func wantHeld(t *testing.T, l *Lock) {
	t.Helper()
	if err := l.Err(); err != nil {
		t.Fatalf("not held: %v", err)
	}
	if isLost(l) || l.Context().Err() != nil {
		t.Fatal("held, but Lost or Context says that it is not")
	}
}
