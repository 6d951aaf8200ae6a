package driver

import "sync"

// background counts calls, or the work that goes on when no caller waits for it any more, so
// that Close can wait. It is no WaitGroup: more may begin while Close waits already, and the
// count may be 0 before, which a WaitGroup forbids.
type background struct {
	mu   sync.Mutex
	busy int
	idle *sync.Cond // busy is 0
	done func()     // ends one
}

func newBackground() *background {
	b := &background{}
	b.idle, b.done = sync.NewCond(&b.mu), b.end
	return b
}

// run runs f in a goroutine that wait waits for.
func (b *background) run(f func()) {
	done := b.begin()
	go func() {
		defer done()
		f()
	}()
}

// begin has wait wait until done is called.
func (b *background) begin() (done func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy++
	return b.done
}

func (b *background) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy--
	if b.busy == 0 {
		b.idle.Broadcast()
	}
}

// len returns how many are under way.
func (b *background) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.busy
}

// wait returns when none is under way.
func (b *background) wait() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.busy > 0 {
		b.idle.Wait()
	}
}
