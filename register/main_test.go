package register_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/locktest"
	"github.com/lockstile/locker/register"
	"github.com/lockstile/locker/register/registertest"
)

// script is a Store on which a test decides what becomes of requests, and counts them. It neither watches nor lists.
type script struct {
	register.Store

	mu                   sync.Mutex
	gets, swaps, refused int
	onGet                func(name string) (register.Entry, error)
	onSwap               func(name, version string, record []byte) (string, error)
}

func (s *script) Get(ctx context.Context, name string) (register.Entry, error) {
	s.mu.Lock()
	on := s.onGet
	if name != register.ProbeName {
		s.gets++
	}
	s.mu.Unlock()
	if on != nil && name != register.ProbeName {
		return on(name)
	}
	return s.Store.Get(ctx, name)
}

func (s *script) Swap(ctx context.Context, name, version string, record []byte) (newVersion string, err error) {
	s.mu.Lock()
	on := s.onSwap
	s.mu.Unlock()
	if name == register.ProbeName {
		return s.Store.Swap(ctx, name, version, record)
	}
	if on != nil {
		newVersion, err = on(name, version, record)
	} else {
		newVersion, err = s.Store.Swap(ctx, name, version, record)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.swaps++; errors.Is(err, register.ErrChanged) {
		s.refused++
	}
	return newVersion, err
}

// get and swap say what becomes of requests from now on; nil is what the Store does.
func (s *script) get(f func(name string) (register.Entry, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onGet = f
}

func (s *script) swap(f func(name, version string, record []byte) (string, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onSwap = f
}

// counts returns how many requests there were since the last call.
func (s *script) counts() (gets, swaps, refused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gets, swaps, refused = s.gets, s.swaps, s.refused
	s.gets, s.swaps, s.refused = 0, 0, 0
	return gets, swaps, refused
}

// watching is a script whose Store pushes.
type watching struct {
	*script
	watcher register.Watcher
}

func (w watching) Watch(ctx context.Context, name string, tell func(register.Entry)) error {
	return w.watcher.Watch(ctx, name, tell)
}

// aged are the options of a Store that says how old a record is.
var aged = register.Options{Age: true}

// process returns a Locker as another process has it, on the clock of package time, which may be a virtual one.
func process(t testing.TB, s register.Store, opts register.Options) *register.Locker {
	t.Helper()
	if opts.Poll == 0 {
		opts.Poll = 20 * time.Millisecond
	}
	if opts.Limit == 0 {
		opts.Limit = 64 << 10
	}
	opts.Backend = "register"
	l := register.NewWithClock(s, opts, func() driver.Instant { return driver.Instant(time.Since(epoch)) })
	t.Cleanup(func() { _ = l.Close() })
	return l
}

var epoch = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC) // before that of a virtual clock

var soon, lock, unlock = locktest.Soon, locktest.Lock, locktest.Unlock

func TestMemory(t *testing.T) {
	m := new(registertest.Memory)
	registertest.Run(t, registertest.Harness{New: func(testing.TB) register.Store { return m }, Options: aged})
}

// unlisted is a Store that can do no more than it has to.
type unlisted struct{ register.Store }

func TestMemoryThatPushesNothingAndHasNoClock(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	s := unlisted{new(registertest.Memory)}
	registertest.Run(t, registertest.Harness{New: func(testing.TB) register.Store { return s }, Options: register.Options{Poll: 20 * time.Millisecond}})
}
