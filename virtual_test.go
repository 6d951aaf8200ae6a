package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/contract"
)

// clock is the virtual clock of elapsed time. It runs with the bubble's, and
// can jump ahead of it: then timers do not fire, as after a machine's suspension.
type clock struct{ ahead atomic.Int64 }

func (c *clock) jump(d time.Duration) { c.ahead.Add(int64(d)) }

// now is what the clock shows, in a bubble or outside.
func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// virtual runs f in a synctest bubble, on whose clock the locks of f's backends end.
func virtual(t *testing.T, f func(t *testing.T, c *clock)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, bubble()) })
}

// bubble sets back the clock, and returns it.
func bubble() *clock {
	elapsed.ahead.Store(0)
	return &elapsed
}

// elapsed is the clock of all backends.
var elapsed clock

// backend is a Locker whose locks end when a test says so, or with their TTL. Package
// driver has the tests of what becomes of a lock.
type backend struct {
	mu       sync.Mutex
	held     map[string]bool
	token    fencing.Token
	released []string
	options  int // of the last Lock or TryLock
	slot     int // of all locks, from 1; 0: none
	tries    int // calls of TryLock

	onLock    func(name string)                            // nil: nothing
	onLimit   func(h *hold, s *contract.Settings)          // nil: nothing
	onUnlock  func(name string)                            // nil: nothing
	onRelease func(ctx context.Context, name string) error // nil: released
}

func newBackend() *backend { return &backend{held: make(map[string]bool)} }

func (b *backend) Lock(_ context.Context, name string, opts ...Option) (*Lock, error) {
	s, err := ParseOptions(contract.Key{}, nil, name, opts)
	if err == nil && s.Guard != nil {
		err = errors.New("backend: WithGuard works with Do")
	}
	if err != nil {
		return nil, err
	}
	if b.onLock != nil {
		b.onLock(name)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.options = len(opts)
	if b.held[name] {
		return nil, fmt.Errorf("backend: lock %q: %w", name, ErrTaken)
	}
	b.held[name] = true
	b.token++
	h := &hold{backend: b, name: name, req: s, token: b.token, end: elapsed.now().Add(s.TTL - contract.Drift(s.TTL)), lost: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	if s.NoRenewal {
		time.AfterFunc(h.end.Sub(elapsed.now()), func() { _ = h.Err() })
	}
	return NewLock(contract.Key{}, h), nil
}

func (b *backend) TryLock(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	b.tries++
	return b.Lock(ctx, name, opts...)
}

func (b *backend) Guarantees() Guarantees {
	return Guarantees{Exclusion: PromptHolder | SteadyClocks, Tokens: DurableServer, Fair: true, FreedBy: FreedByExpiry, ServerFailures: 2}
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

// grant locks name, which must be free.
func (b *backend) grant(t testing.TB, name string, opts ...Option) *Lock {
	t.Helper()
	l, err := b.Lock(t.Context(), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (b *backend) releases() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.released)
}

// hold is a lock of a backend's.
type hold struct {
	backend *backend
	name    string
	req     contract.Settings
	token   fencing.Token
	end     time.Time // unless it is renewed, which always works
	lost    chan struct{}
	ctx     context.Context
	cancel  context.CancelCauseFunc

	mu  sync.Mutex
	err error
}

// lose ends a lock that a backend granted.
func lose(l *Lock, reason Reason) {
	h := l.held.(*hold)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lose(reason)
}

// lose ends it, and frees its name. The mutex is held.
func (h *hold) lose(reason Reason) {
	if h.err != nil {
		return
	}
	h.over(&LostError{Name: h.name, Reason: reason})
	close(h.lost)
	h.backend.mu.Lock()
	h.backend.held[h.name] = false
	h.backend.mu.Unlock()
}

// over ends it. The mutex is held.
func (h *hold) over(why error) {
	h.err = why
	h.cancel(why)
}

func (h *hold) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.req.NoRenewal && !elapsed.now().Before(h.end) {
		h.lose(ReasonExpired)
	}
	return h.err
}

func (h *hold) Unlock(ctx context.Context) error {
	if h.backend.onUnlock != nil {
		h.backend.onUnlock(h.name)
	}
	if err := h.Err(); err != nil {
		return err
	}
	h.mu.Lock()
	h.over(&contract.Unlocked{Name: h.name})
	h.mu.Unlock()
	return h.backend.release(ctx, h.name)
}

func (h *hold) Name() string                { return h.name }
func (h *hold) Slot() int                   { return h.backend.slot - 1 }
func (h *hold) Context() context.Context    { return h.ctx }
func (h *hold) Lost() <-chan struct{}       { return h.lost }
func (h *hold) Deadline() time.Time         { return time.Now().Add(h.end.Sub(elapsed.now())) }
func (h *hold) Renew(context.Context) error { return h.Err() }
func (h *hold) Detach(context.Context) (d contract.Detached, err error) {
	return d, errors.ErrUnsupported
}

func (h *hold) Token() fencing.Token {
	if h.req.Shared {
		return 0
	}
	return h.token
}

func (h *hold) SharedToken() fencing.SharedToken {
	if !h.req.Shared {
		return 0
	}
	return fencing.SharedToken(h.token)
}

func (h *hold) ForgetMinHold() {}

func (h *hold) Limit(s *contract.Settings) error {
	err := h.Err()
	if h.backend.onLimit != nil {
		h.backend.onLimit(h, s)
	}
	return err
}

// wantHeld fails the test if l is not held.
func wantHeld(t *testing.T, l *Lock) {
	t.Helper()
	if err := l.Err(); err != nil {
		t.Fatalf("not held: %v", err)
	}
	select {
	case <-l.Lost():
		t.Fatal("held, but Lost says that it is not")
	case <-l.Context().Done():
		t.Fatal("held, but Context says that it is not")
	default:
	}
}
