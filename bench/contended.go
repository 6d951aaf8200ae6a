package main

import (
	"context"
	"errors"
	"fmt"
	"math"
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
	counts   bool       // the start is over, and the time is not up
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
	last := t.last
	t.last = who
	if !t.counts {
		return
	}
	if !t.released.IsZero() {
		t.handOver = append(t.handOver, now.Sub(t.released))
		if who != last {
			t.changes++
		}
	}
	t.served[who]++
}

func (t *tally) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.released = time.Now()
}

func (t *tally) count(yes bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts = yes
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

// leadIn is how long they compete before it counts. It grows with their number,
// for who asks the server for himself needs a connection or a session for himself,
// and all ask at once in the beginning. That is a cost of starting, not of locking.
func (c contention) leadIn(r *running) time.Duration {
	return 100*time.Millisecond + time.Duration(c.goroutines)*max(r.joining, 3*time.Millisecond)
}

// compete lets every goroutine lock and unlock until the time is up. What it
// returns covers that time without the lead-in: waiters that are still in line then
// are told to give up, and those that do not hear are served, but not counted.
func (c contention) compete(ctx context.Context, clients []client, t trial) (figures, error) {
	notes := &tally{served: make([]int, c.goroutines)}
	errs := make([]error, c.goroutines)
	name := fmt.Sprint("bench/contended/", races.Add(1))
	waiting, giveUp := context.WithCancel(ctx)
	defer giveUp()
	var wg sync.WaitGroup
	for i := range c.goroutines {
		wg.Go(func() { errs[i] = c.worker(ctx, waiting, clients[i%len(clients)], name, notes, i) })
	}
	pause(ctx, c.leadIn(t.running))
	requests, begin := t.subject.requests(), time.Now()
	notes.count(true)
	pause(ctx, t.each)
	notes.count(false)
	took := time.Since(begin)
	requests = t.subject.requests() - requests
	giveUp()
	if err := wait(ctx, &wg); err != nil {
		return nil, err
	}
	return notes.figures(took, requests), errors.Join(ctx.Err(), firstError(errs))
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
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

// figures are not numbers where there is nothing to divide by: no lock was
// granted, or none was handed over.
func (t *tally) figures(took time.Duration, requests int64) figures {
	slices.Sort(t.handOver)
	return figures{
		"rate":     float64(t.total()) / took.Seconds(),
		"requests": float64(requests) / float64(t.total()),
		"p50":      percentile(t.handOver, 50),
		"p99":      percentile(t.handOver, 99),
		"jain":     jain(t.served),
		"changes":  float64(t.changes) / float64(len(t.handOver)),
	}
}

// percentile is the least of the sorted times that so many percent of them do not
// exceed, in nanoseconds.
func percentile(sorted []time.Duration, percent int) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return float64(sorted[(len(sorted)*percent+99)/100-1].Nanoseconds())
}

// jain is Jain's fairness index: 1 if everybody got the same, 1/n if one got
// everything (Jain, Chiu and Hawe, 1984). Of fewer locks than goroutines it cannot
// be more than their share, and of none it is not a number.
func jain(served []int) float64 {
	var sum, squares float64
	for _, s := range served {
		sum += float64(s)
		squares += float64(s) * float64(s)
	}
	return sum * sum / (float64(len(served)) * squares)
}
