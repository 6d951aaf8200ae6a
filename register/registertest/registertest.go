// Package registertest is what the author of a [register.Store] runs: the contract of a Store, and then that of the locks on it,
// with faults.
package registertest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/lockertest"
	"github.com/lockstile/locker/register"
)

// Harness is what the suite needs from a Store.
type Harness struct {
	// New returns the Store as one more process would have it. It cleans up with t.Cleanup.
	New func(t testing.TB) register.Store

	// Options are those of the Lockers on it.
	Options register.Options
}

// Run checks the Store, and then the locks on it ([conformance.Run]), between which and the Store it cuts, delays and loses
// requests and answers.
func Run(t *testing.T, h Harness) {
	t.Helper()
	t.Run("store", func(t *testing.T) { checkStore(t, h) })
	t.Run("conformance", func(t *testing.T) {
		conformance.Run(t, conformance.Harness{New: func(t testing.TB) conformance.Process {
			link := lockertest.NewLink()
			f := &far{store: h.New(t), link: link}
			t.Cleanup(f.end)
			l, err := register.New(f.behind(), h.Options)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			return conformance.Process{Locker: l, Network: link}
		}})
	})
}

// behind returns the Store as it is reached through the link.
func (f *far) behind() register.Store {
	watcher, watches := f.store.(register.Watcher)
	lister, lists := f.store.(register.Lister)
	w, l := &farWatcher{f, watcher}, &farLister{f, lister}
	switch {
	case watches && lists:
		return struct {
			*far
			*farWatcher
			*farLister
		}{f, w, l}
	case watches:
		return struct {
			*far
			*farWatcher
		}{f, w}
	case lists:
		return struct {
			*far
			*farLister
		}{f, l}
	}
	return f
}

type far struct {
	store register.Store
	link  *lockertest.Link

	calls sync.RWMutex // each call of the Store holds it for reading
	ended bool
}

// end waits for the calls of the Store that are under way. A request that arrives later finds none.
func (f *far) end() {
	f.calls.Lock()
	defer f.calls.Unlock()
	f.ended = true
}

var errEnded = errors.New("the test has ended")

type answer[T any] struct {
	got T
	err error
}

func send[T any](ctx context.Context, f *far, do func(context.Context) (T, error)) (T, error) {
	a, err := lockertest.Send(ctx, f.link, func() answer[T] {
		f.calls.RLock()
		defer f.calls.RUnlock()
		if f.ended {
			return answer[T]{err: errEnded}
		}
		got, err := do(context.WithoutCancel(ctx)) // who asked may have given up
		return answer[T]{got, err}
	})
	if err != nil {
		return a.got, err
	}
	return a.got, a.err
}

// Get implements [register.Store].
func (f *far) Get(ctx context.Context, name string) (register.Entry, error) {
	return send(ctx, f, func(ctx context.Context) (register.Entry, error) { return f.store.Get(ctx, name) })
}

// Swap implements [register.Store].
func (f *far) Swap(ctx context.Context, name, version string, record []byte) (string, error) {
	return send(ctx, f, func(ctx context.Context) (string, error) { return f.store.Swap(ctx, name, version, record) })
}

type farWatcher struct {
	f       *far
	watcher register.Watcher
}

// Watch implements [register.Watcher].
func (w *farWatcher) Watch(ctx context.Context, name string, tell func(register.Entry)) error {
	return w.watcher.Watch(ctx, name, func(e register.Entry) { w.f.link.Push(func() { tell(e) }) })
}

type farLister struct {
	f      *far
	lister register.Lister
}

// List implements [register.Lister].
func (l *farLister) List(ctx context.Context, prefix string) (map[string]register.Entry, error) {
	return send(ctx, l.f, func(ctx context.Context) (map[string]register.Entry, error) { return l.lister.List(ctx, prefix) })
}
