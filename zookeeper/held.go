package zookeeper

import (
	"errors"
	"sync"

	"github.com/lockstile/locker"
)

var (
	errShorter  = errors.New("the server that the client has changed to grants a shorter session timeout")
	errFarewell = errors.New("the connection was closed")
)

// books are about the locks that hang on one connection. They are kept by the
// Session, which is the first to see what ends them all: the zk client tells
// nobody that it was closed, and renewals come too late, for the server lets the
// next waiter in at once.
type books struct {
	mu   sync.Mutex
	held map[*attempt]*locker.Lock
	ends int // how often all locks were lost
	last locker.LostError
}

// since returns what tells note whether all locks were lost in between.
func (b *books) since() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ends
}

func (b *books) note(a *attempt, lock *locker.Lock) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ends != a.ends {
		locker.Lose(lock, b.last.Reason, b.last.Cause)
		return
	}
	if b.held == nil {
		b.held = make(map[*attempt]*locker.Lock)
	}
	b.held[a] = lock
}

func (b *books) forget(a *attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.held, a)
}

// loseAll returns when nobody believes in a lock any more.
func (b *books) loseAll(reason locker.Reason, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ends++
	b.last = locker.LostError{Reason: reason, Cause: cause}
	for a, lock := range b.held {
		locker.Lose(lock, reason, cause)
		delete(b.held, a)
	}
}

func (l *Locker) note(a *attempt, lock *locker.Lock) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.session != nil && !a.left { // it may be lost already
		l.session.books.note(a, lock)
	}
}

// done passes the turn on. a.mu is held.
func (l *Locker) done(a *attempt) {
	a.left = true
	if l.session != nil {
		l.session.books.forget(a)
	}
	a.turn.Leave()
}
