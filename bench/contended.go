package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// contention is many goroutines that want one name.
type contention struct {
	goroutines, clients int
	section             time.Duration // how long each holds it
}

func (c contention) name() string {
	return fmt.Sprintf("contended-%d-%d-%v", c.goroutines, c.clients, c.section)
}

func (c contention) about() string {
	clients := "in one client"
	if c.clients > 1 {
		clients = fmt.Sprintf("over %d clients", c.clients)
	}
	return fmt.Sprintf("One name, %d goroutines %s, held for %v", c.goroutines, clients, c.section)
}

// tally is what the goroutines note while they hold the lock, which is why it
// needs no mutex; between two holders it is the lock that orders them.
type tally struct {
	mu       sync.Mutex // for locks that do not exclude, and for the race detector
	released time.Time
	last     int
	handOver []time.Duration
	changes  int
	served   []int
}

func (t *tally) granted(who int) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.released.IsZero() {
		t.handOver = append(t.handOver, now.Sub(t.released))
		if who != t.last {
			t.changes++
		}
	}
	t.last = who
	t.served[who]++
}

func (t *tally) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.released = time.Now()
}

func (c contention) run(ctx context.Context, t trial) (figures, error) {
	clients, closeAll, err := t.open(c.clients)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	for i, cl := range clients {
		if err := once(ctx, cl, nameOf(i)); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, t.each+30*time.Second)
	defer cancel()
	requests := t.subject.requests()
	notes, took, err := c.compete(ctx, clients, t.each)
	if err != nil {
		return nil, err
	}
	f := notes.figures(took)
	f["requests"] = float64(t.subject.requests()-requests) / float64(notes.total())
	return f, nil
}

// compete lets every goroutine lock and unlock until the time is up. What it
// returns covers that time and no more: the waiters that are still in line then
// are served, but no longer counted.
func (c contention) compete(ctx context.Context, clients []client, each time.Duration) (*tally, time.Duration, error) {
	notes := &tally{served: make([]int, c.goroutines)}
	errs := make([]error, c.goroutines)
	begin := time.Now()
	var wg sync.WaitGroup
	for i := range c.goroutines {
		wg.Go(func() { errs[i] = c.worker(ctx, clients[i%len(clients)], notes, i, begin.Add(each)) })
	}
	wg.Wait()
	took := time.Since(begin)
	for _, err := range errs {
		if err != nil {
			return nil, 0, err
		}
	}
	return notes, took, nil
}

func (c contention) worker(ctx context.Context, cl client, notes *tally, who int, end time.Time) error {
	for time.Now().Before(end) {
		h, err := cl.Lock(ctx, "bench/contended")
		if err != nil {
			return err
		}
		notes.granted(who)
		if c.section > 0 {
			time.Sleep(c.section)
		}
		notes.release()
		if err := h.Unlock(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (t *tally) total() (n int) {
	for _, s := range t.served {
		n += s
	}
	return n
}

func (t *tally) figures(took time.Duration) figures {
	slices.Sort(t.handOver)
	at := func(percent int) float64 {
		if len(t.handOver) == 0 {
			return 0
		}
		return float64(t.handOver[len(t.handOver)*percent/100].Nanoseconds())
	}
	return figures{
		"rate":    float64(t.total()) / took.Seconds(),
		"p50":     at(50),
		"p99":     at(99),
		"jain":    jain(t.served),
		"changes": float64(t.changes) / float64(max(1, len(t.handOver))),
	}
}

// jain is Jain's fairness index: 1 if everybody got the same, 1/n if one got
// everything (Jain, Chiu and Hawe, 1984).
func jain(served []int) float64 {
	var sum, squares float64
	for _, s := range served {
		sum += float64(s)
		squares += float64(s) * float64(s)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(served)) * squares)
}
