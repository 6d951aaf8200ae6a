package driver

import (
	"context"
	"time"

	"github.com/lockstile/locker/internal/contract"
)

const (
	// persistTime bounds all tries of a clean-up.
	persistTime = 10 * time.Second
	// tryTime bounds each try.
	tryTime = time.Second
)

// Go runs f in the background, for a Store. Close waits for it, for two seconds at most.
func (l *Locker[H]) Go(f func()) { l.background.run(f) }

// UnderWay is for the tests of this module: how many calls of Go and clean-ups are under way, and
// what observers have still to hear.
func (l *Locker[H]) UnderWay(contract.Key) int { return l.background.len() }

// Closing returns a context that ends with Close.
func (l *Locker[H]) Closing() context.Context { return l.closing }

// cleanUp removes what a lease has left in the store, in the background. The caller has
// counted it as a use of the lease. A clean-up that is asked for while one is under way
// is left to that one, which goes round again.
func (l *Locker[H]) cleanUp(a *lease[H]) {
	if a.cleaning.Add(1) > 1 {
		return
	}
	l.background.run(func() {
		for n := a.cleaning.Load(); n > 0; {
			if left := l.takeDoubt(a); left.left() {
				began, ok := l.now(), l.clear(a)
				l.reportCleanUp(a.ended, began, ok)
				if !ok {
					l.giveDoubt(a, left)
				}
			}
			left := a.cleaning.Add(-n)
			for range n {
				l.done(a)
			}
			n = left
		}
	})
}

// takeDoubt returns what a lease may have in the store, for a clean-up to remove: nothing if it
// depends on a session that has ended, with which the store frees it, by one request and not by
// ten thousand. It forgets that before the clean-up begins: a renewal that worked meanwhile has
// put something there again.
func (l *Locker[H]) takeDoubt(a *lease[H]) doubt {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.session != nil && a.session.over {
		return doubt{}
	}
	left := a.doubt
	a.doubt = doubt{}
	return left
}

// giveDoubt notes what a clean-up could not remove.
func (l *Locker[H]) giveDoubt(a *lease[H], left doubt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.unsure, a.there = a.unsure || left.unsure, a.there || left.there
}

// doubt is what an attempt may have in the store.
type doubt struct {
	unsure bool // a request that was not answered may have been carried out, or may yet be; or there is a place in a queue
	there  bool // the lock was granted, and was not given back
}

func (d doubt) left() bool { return d.unsure || d.there }

// done ends one use of a lease. The last one ends its attempt.
func (l *Locker[H]) done(a *lease[H]) {
	l.mu.Lock()
	a.uses--
	last := a.uses == 0
	l.mu.Unlock()
	if last {
		l.store.End(a.h)
	}
}

// withdraw removes what h has left in the store, and reports whether the store has
// confirmed it.
func (l *Locker[H]) withdraw(h H) bool {
	return l.Persist(func(ctx context.Context) error { return l.store.Withdraw(ctx, h) })
}

// Finish is for a Store's End, where what is left of h would last as long as a session
// that others keep. It calls Withdraw in the background until that has worked or the
// Locker is closed.
func (l *Locker[H]) Finish(h H) {
	l.background.run(func() {
		for l.closing.Err() == nil && !l.withdraw(h) {
		}
	})
}

// Persist calls f until it returns nil, for ten seconds at most, and reports whether it
// did. Each call has a second. After Close it goes on for as long as Close waits.
func (l *Locker[H]) Persist(f func(ctx context.Context) error) bool {
	all, cancel := context.WithTimeout(context.Background(), persistTime)
	defer cancel()
	defer context.AfterFunc(l.closing, func() { time.AfterFunc(releaseTime, cancel) })()
	closing := l.closing.Done()
	for pause, longest := 10*time.Millisecond, tryTime; ; pause = min(2*pause, longest) {
		ctx, end := context.WithTimeout(all, tryTime)
		err := Caught(func() error { return f(ctx) })
		end()
		if err == nil {
			return true
		}
		select {
		case <-time.After(pause):
		case <-closing:
			closing, pause, longest = nil, 5*time.Millisecond, 100*time.Millisecond
		case <-all.Done():
			return false
		}
	}
}
