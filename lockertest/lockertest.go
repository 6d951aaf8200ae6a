// Package lockertest is a [locker.Locker] in memory, for tests of programs that use
// locks. It needs no server, and a test can tell it that a lock is taken or lost, or that
// the store does not answer.
//
//	locks := lockertest.New()
//	go program(locks)
//	locks.Lose("invoices/42") // what does program do now?
//
// Its locks exclude each other, have tokens, leases and waiters, and pass the conformance
// suite as those of every backend do. They end with the process. If New was called inside a
// bubble of testing/synctest (the function that synctest.Test runs), leases end by the bubble's
// clock. Close the Locker before the bubble ends, and do not use one from outside in a bubble.
package lockertest

import (
	"context"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// Locker is one process's view of a store in memory.
type Locker struct {
	locks  *driver.Locker[*attempt]
	server *server
	link   *Link
}

var (
	_ locker.Locker    = (*Locker)(nil)
	_ locker.Inspector = (*Locker)(nil)
	_ locker.Breaker   = (*Locker)(nil)
	_ locker.Lister    = (*Locker)(nil)
)

// New returns a Locker on a store of its own.
func New() *Locker {
	began := time.Now().Add(-time.Hour) // so that no reading is the zero Instant
	return newLocker(&server{names: make(map[string]*entry), now: func() driver.Instant { return driver.Instant(time.Since(began)) }})
}

// Another returns a Locker on the same store, which takes it for another process.
func (l *Locker) Another() *Locker { return newLocker(l.server) }

func newLocker(s *server) *Locker {
	l := &Locker{server: s, link: newLink()}
	l.locks = driver.New("lockertest", &client{s, l.link}, driver.Options{Clock: s.now})
	return l
}

// Lock implements [locker.Locker].
func (l *Locker) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	return l.locks.Lock(ctx, name, opts...)
}

// TryLock implements [locker.Locker].
func (l *Locker) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	return l.locks.TryLock(ctx, name, opts...)
}

// Guarantees implements [locker.Locker].
func (l *Locker) Guarantees() locker.Guarantees { return l.locks.Guarantees() }

// Inspect implements [locker.Inspector].
func (l *Locker) Inspect(ctx context.Context, name string) (locker.Info, error) {
	return l.locks.Inspect(ctx, name)
}

// Break implements [locker.Breaker].
func (l *Locker) Break(ctx context.Context, name string) (bool, error) {
	return l.locks.Break(ctx, name)
}

// BreakHolder implements [locker.Breaker].
func (l *Locker) BreakHolder(ctx context.Context, name string, number locker.Number) (bool, error) {
	return l.locks.BreakHolder(ctx, name, number)
}

// List implements [locker.Lister].
func (l *Locker) List(ctx context.Context, prefix string) ([]locker.Info, error) {
	return l.locks.List(ctx, prefix)
}

// Close makes waiters and further calls return [locker.ErrClosed]. Locks that are held
// stay held.
func (l *Locker) Close() error { return l.locks.Close() }

// Link returns what lies between this Locker and its store.
func (l *Locker) Link() *Link { return l.link }

// Lose takes the lock called name from the goroutines of this Locker that hold it. Their
// [locker.Lock] is lost at once. Their contexts end a moment later: wait for ctx.Done(), or in a bubble call
// synctest.Wait. Lose reports whether there was such a goroutine. What stays
// taken for the rest of a [locker.WithMinHold] is nobody's any more, and stays taken.
func (l *Locker) Lose(name string) bool {
	holders := l.server.free(name, false, func(h *hold) bool { return h.state == held && h.of.link == l.link })
	for _, a := range holders {
		l.locks.Lose(name, a, locker.ReasonTakenOver, nil)
	}
	return len(holders) > 0
}

// Take makes the lock called name taken, by nobody, until Free. A goroutine that holds it
// finds out at its next renewal.
func (l *Locker) Take(name string) { l.server.take(name) }

// Free ends Take. If others hold the lock instead, it is taken from them.
func (l *Locker) Free(name string) { l.server.free(name, false, func(*hold) bool { return true }) }
