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
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// Locker is one process's view of a store in memory. It implements [locker.Locker],
// [locker.Inspector], [locker.Breaker], [locker.Lister] and [locker.Resumer].
type Locker struct {
	driver.Methods
	locks  *driver.Locker[*attempt]
	server *server
	link   *Link
}

// New returns a Locker on a store of its own.
func New() *Locker {
	began := time.Now().Add(-time.Hour) // so that no reading is the zero Instant
	return newLocker(&server{names: make(map[string]*entry), now: func() driver.Instant { return driver.Instant(time.Since(began)) }})
}

// Another returns a Locker on the same store, which takes it for another process.
func (l *Locker) Another() *Locker { return newLocker(l.server) }

func newLocker(s *server) *Locker {
	l := &Locker{server: s, link: NewLink()}
	l.locks = driver.New("lockertest", &client{s, l.link}, driver.Options{Clock: s.now})
	l.Methods = l.locks
	return l
}

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
