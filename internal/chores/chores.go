// Package chores is what a Locker does behind its callers' backs: clean-ups that
// go on when nobody waits for them any more, and that Close does wait for.
package chores

import (
	"context"
	"sync"
	"time"
)

const (
	// persistTime bounds the tries of one chore.
	persistTime = 10 * time.Second
	// tryTime bounds each try.
	tryTime = time.Second
)

// Chores counts what is under way. Its zero value is ready to use. It is no
// WaitGroup, for waiters that are ended begin their clean-ups while Close already
// waits, which a WaitGroup does not bear.
type Chores struct {
	mu   sync.Mutex
	busy int
	idle chan struct{} // closed when busy is 0 again; nil if nobody waits
}

// Go runs f in a goroutine that [Chores.Wait] waits for.
func (c *Chores) Go(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy++
	go func() {
		defer c.done()
		f()
	}()
}

// Len counts what is under way.
func (c *Chores) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.busy
}

func (c *Chores) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy--
	if c.busy == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// Wait returns when nothing is under way.
func (c *Chores) Wait() {
	for idle := c.wait(); idle != nil; idle = c.wait() {
		<-idle
	}
}

func (c *Chores) wait() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy == 0 {
		return nil
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	return c.idle
}

// Persist tries until the store confirms, for ten seconds at most, and reports
// whether it did. After the end of closing it tries once more.
func Persist(closing context.Context, f func(context.Context) error) bool {
	deadline := time.NewTimer(persistTime)
	defer deadline.Stop()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, tryTime) {
		last := closing.Err() != nil
		ctx, cancel := context.WithTimeout(context.Background(), tryTime)
		err := f(ctx)
		cancel()
		if err == nil || last {
			return err == nil
		}
		select {
		case <-time.After(pause):
		case <-closing.Done():
		case <-deadline.C:
			return false
		}
	}
}
