package driver

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/contract"
)

// clock is the virtual clock of elapsed time. It runs with the bubble's, and
// can jump ahead of it: then timers do not fire, as after a machine's suspension.
type clock struct {
	start time.Time
	ahead atomic.Int64
}

func (c *clock) jump(d time.Duration) { c.ahead.Add(int64(d)) }

func (c *clock) now() Instant {
	return Instant(time.Hour + time.Since(c.start) + time.Duration(c.ahead.Load()))
}

// ticking is the clock of the test that runs: none of them is parallel.
var ticking *clock

// virtual runs f in a synctest bubble whose clock is also that of the Lockers.
func virtual(t *testing.T, f func(t *testing.T, c *clock)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ticking = &clock{start: time.Now()}
		f(t, ticking)
		synctest.Wait()
	})
}

// backend is a Store whose memory stands for the store: it answers renewals and
// releases as a test tells it to.
type backend struct {
	l *Locker[*hold]

	mu        sync.Mutex
	token     uint64
	renewals  [][]string
	released  []string
	ended     map[string]int
	lasting   bool            // so are locks from now on
	session   *session[*hold] // of the attempts from now on, or nil
	took      time.Duration   // each grant
	count     uint32          // of its tokens; 0 for one
	keeps     bool
	exclusive bool            // it has no other kinds
	kept      []time.Duration // what releases asked for

	onAcquire func(ctx context.Context) error              // nil: granted
	onRenew   func(ctx context.Context, name string) error // nil: renewed
	onRelease func(ctx context.Context, name string) error // nil: released
}

// hold is an attempt at the backend.
type hold struct {
	req   *Request
	there atomic.Bool // the store has it
}

func newBackend() *backend {
	b := &backend{ended: make(map[string]int)}
	b.l = New("backend", b, Options{Clock: ticking.now})
	return b
}

func (b *backend) Guarantees() locker.Guarantees {
	return locker.Guarantees{KeepsMinHold: b.keeps, Shared: !b.exclusive, Slots: !b.exclusive}
}

func (b *backend) Begin(req *Request) (*hold, error) { return &hold{req: req}, nil }

func (b *backend) Acquire(ctx context.Context, h *hold, _ Wait) (Grant, Left, error) {
	if b.session != nil && b.session.join() {
		h.req.session = b.session
	}
	if b.onAcquire != nil {
		if err := b.onAcquire(ctx); err != nil {
			return Grant{}, Nothing, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	count := max(b.count, 1)
	b.token += uint64(count)
	h.there.Store(true)
	return Grant{First: b.token - uint64(count) + 1, Count: count, Since: b.l.Now().Add(-b.took), Lasting: b.lasting}, Nothing, nil
}

func (b *backend) Renew(ctx context.Context, hs []*hold) []error {
	var names []string
	for _, h := range hs {
		names = append(names, h.req.Name)
	}
	b.mu.Lock()
	b.renewals = append(b.renewals, slices.Clone(names))
	answer := b.onRenew
	b.mu.Unlock()
	errs := make([]error, len(names))
	for i, name := range names {
		if answer != nil {
			errs[i] = answer(ctx, name)
		}
		hs[i].there.Store(hs[i].there.Load() || errs[i] == nil)
	}
	return errs
}

func (b *backend) Release(ctx context.Context, h *hold, keep time.Duration) error {
	b.mu.Lock()
	b.kept = append(b.kept, keep)
	b.released = append(b.released, h.req.Name)
	answer := b.onRelease
	b.mu.Unlock()
	if answer != nil {
		return answer(ctx, h.req.Name)
	}
	return nil
}

func (b *backend) Withdraw(ctx context.Context, h *hold) error {
	h.there.Store(false)
	return b.Release(ctx, h, 0)
}

func (b *backend) End(h *hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended[h.req.Name]++
}

// grant locks name, which must be free.
func (b *backend) grant(t testing.TB, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	l, err := b.l.TryLock(t.Context(), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func lose(l *locker.Lock, reason locker.Reason, cause error) {
	a := locker.HeldOf(contract.Key{}, l).(*turn[*hold]).lease
	a.locker.Lose(l.Name(), a.h, reason, cause)
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
func isLost(l *locker.Lock) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

// wantReason fails the test unless l was lost for this reason, and Err, Lost and
// Context all say so.
func wantReason(t *testing.T, l *locker.Lock, reason locker.Reason) *locker.LostError {
	t.Helper()
	lost, ok := l.Err().(*locker.LostError)
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
func wantHeld(t *testing.T, l *locker.Lock) {
	t.Helper()
	if err := l.Err(); err != nil {
		t.Fatalf("not held: %v", err)
	}
	if isLost(l) || l.Context().Err() != nil {
		t.Fatal("held, but Lost or Context says that it is not")
	}
}
