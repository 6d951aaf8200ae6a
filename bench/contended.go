package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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

// tally is what the goroutines note while they hold the lock.
type tally struct {
	mu       sync.Mutex // for locks that do not exclude, and for the race detector
	over     bool       // the time is up: nothing counts any more
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
	if t.over {
		return
	}
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

func (t *tally) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
}

// races makes the name of every trial another one: what a subject leaves behind
// when its waiters give up does not get in the way of the next.
var races atomic.Int64

func (c contention) run(ctx context.Context, t trial) (figures, error) {
	clients, closeAll, err := t.open(c.clients)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	if err := warm(ctx, clients, c.goroutines); err != nil {
		return nil, err
	}
	return c.compete(ctx, clients, t)
}

// compete lets every goroutine lock and unlock until the time is up. What it
// returns covers that time and no more: waiters that are still in line then are
// told to give up, and those that do not hear are served, but not counted.
func (c contention) compete(ctx context.Context, clients []client, t trial) (figures, error) {
	notes := &tally{served: make([]int, c.goroutines)}
	errs := make([]error, c.goroutines)
	name := fmt.Sprint("bench/contended/", races.Add(1))
	waiting, giveUp := context.WithCancel(ctx)
	defer giveUp()
	requests, begin := t.subject.requests(), time.Now()
	var wg sync.WaitGroup
	for i := range c.goroutines {
		wg.Go(func() { errs[i] = c.worker(ctx, waiting, clients[i%len(clients)], name, notes, i) })
	}
	select {
	case <-time.After(t.each):
	case <-ctx.Done():
	}
	notes.stop()
	took := time.Since(begin)
	requests = t.subject.requests() - requests
	giveUp()
	if err := wait(ctx, &wg); err != nil {
		return nil, err
	}
	return notes.figures(took, requests), firstError(errs)
}

// worker locks and unlocks until waiting ends.
func (c contention) worker(ctx, waiting context.Context, cl client, name string, notes *tally, who int) error {
	for waiting.Err() == nil {
		h, err := cl.Lock(waiting, name)
		if err != nil {
			if waiting.Err() != nil {
				return nil //nolint:nilerr // it was told to give up
			}
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

func (t *tally) figures(took time.Duration, requests int64) figures {
	slices.Sort(t.handOver)
	at := func(percent int) float64 {
		if len(t.handOver) == 0 {
			return 0
		}
		return float64(t.handOver[len(t.handOver)*percent/100].Nanoseconds())
	}
	return figures{
		"rate":     float64(t.total()) / took.Seconds(),
		"requests": float64(requests) / float64(max(1, t.total())),
		"p50":      at(50),
		"p99":      at(99),
		"jain":     jain(t.served),
		"changes":  float64(t.changes) / float64(max(1, len(t.handOver))),
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
