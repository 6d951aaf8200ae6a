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

// finish ends an attempt. Its session counts it no more, or if a minimum hold has keep left, from
// then on: the session keeps the lock. What could not be removed would last as long as the session,
// which others keep: remove, which is nil if nothing is left, is called in the background until it
// works, the session ends or the Locker is closed.
func (l *Locker[H]) finish(h H, req *request, keep time.Duration, remove func() bool) {
	s, _ := req.session.(*session[H])
	if s != nil && keep > 0 {
		time.AfterFunc(keep, req.leave)
	} else {
		req.leave()
	}
	if s == nil || remove == nil {
		l.endOf(h)
		return
	}
	l.background.run(func() {
		for l.closing.Err() == nil && !s.frees() && !remove() {
		}
		l.endOf(h)
	})
}

// endOf tells the Store that an attempt is over.
func (l *Locker[H]) endOf(h H) {
	if s, ok := any(l.store).(Ender[H]); ok {
		s.End(h)
	}
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
