package driver

import (
	"context"
	"sync"
	"time"
)

const (
	// persistTime bounds the tries of one clean-up.
	persistTime = 10 * time.Second
	// tryTime bounds each try.
	tryTime = time.Second
)

// Go runs f in the background, for a Store: Close waits for it.
func (l *Locker[H]) Go(f func()) { l.chores.run(f) }

// UnderWay counts what Go runs, and the clean-ups.
func (l *Locker[H]) UnderWay() int {
	l.chores.mu.Lock()
	defer l.chores.mu.Unlock()
	return l.chores.busy
}

// Closing ends with Close.
func (l *Locker[H]) Closing() context.Context { return l.closing }

// cleanUp removes what a lease has left in the store, in the background. It is one
// of the lease's uses. Two of them come one after the other.
func (l *Locker[H]) cleanUp(a *lease[H]) {
	if a.cleaning.Add(1) > 1 {
		return // who cleans up already sees to it
	}
	l.chores.run(func() {
		for n := a.cleaning.Load(); n > 0; {
			l.withdraw(a.h)
			left := a.cleaning.Add(-n)
			for range n {
				l.done(a)
			}
			n = left
		}
	})
}

// done ends one use of a lease. After the last one the store forgets it.
func (l *Locker[H]) done(a *lease[H]) {
	l.mu.Lock()
	a.uses--
	last := a.uses == 0
	l.mu.Unlock()
	if last {
		l.store.End(a.h)
	}
}

// withdraw removes what h has left in the store, and reports whether that was
// confirmed.
func (l *Locker[H]) withdraw(h H) bool {
	return !l.store.Left(h) || l.Persist(func(ctx context.Context) error { return l.store.Withdraw(ctx, h) })
}

// Persist calls f, with a second's time, until it returns nil, for ten seconds at
// most, and reports whether it did. When the Locker has been closed it is called once
// more.
func (l *Locker[H]) Persist(f func(ctx context.Context) error) bool {
	deadline := time.NewTimer(persistTime)
	defer deadline.Stop()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, tryTime) {
		last := l.closing.Err() != nil
		ctx, cancel := context.WithTimeout(context.Background(), tryTime)
		err := f(ctx)
		cancel()
		if err == nil || last {
			return err == nil
		}
		select {
		case <-time.After(pause):
		case <-l.closing.Done():
		case <-deadline.C:
			return false
		}
	}
}

// chores counts what is done in the background. It is no WaitGroup: waiters that Close
// ends begin their clean-ups while it already waits, and a WaitGroup must not be added
// to then.
type chores struct {
	mu   sync.Mutex
	busy int
	free chan struct{} // closed when busy is 0 again; nil if nobody waits
}

// run calls f in a goroutine.
func (c *chores) run(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy++
	go func() {
		defer c.done()
		f()
	}()
}

func (c *chores) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy--
	if c.busy == 0 && c.free != nil {
		close(c.free)
		c.free = nil
	}
}

// idle returns a channel that is closed when nothing is under way.
func (c *chores) idle() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.free == nil {
		c.free = make(chan struct{})
		if c.busy == 0 {
			close(c.free)
			free := c.free
			c.free = nil
			return free
		}
	}
	return c.free
}
