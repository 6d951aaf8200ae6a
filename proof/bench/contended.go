package main

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstile/locker/internal/meter"
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
	notes := meter.New(c.goroutines)
	end := c.crowd(ctx, clients, fmt.Sprint("bench/contended/", races.Add(1)), notes)
	pause(ctx, c.leadIn(t.running))
	requests, begin := t.subject.requests(), time.Now()
	notes.Count(true)
	pause(ctx, t.each)
	notes.Count(false)
	took := time.Since(begin)
	requests = t.subject.requests() - requests
	if err := end(); err != nil {
		return nil, err
	}
	return contest(notes, took, requests), ctx.Err()
}

// crowd has all goroutines want a name, until end is called, which waits for them.
func (c contention) crowd(ctx context.Context, clients []client, name string, notes *meter.Meter) (end func() error) {
	errs := make([]error, c.goroutines)
	waiting, giveUp := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for i := range c.goroutines {
		wg.Go(func() { errs[i] = c.worker(ctx, waiting, clients[i%len(clients)], name, notes, i) })
	}
	return func() error {
		giveUp()
		if err := wait(ctx, &wg); err != nil {
			return err
		}
		return firstError(errs)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// worker locks and unlocks until waiting ends.
func (c contention) worker(ctx, waiting context.Context, cl client, name string, notes *meter.Meter, who int) error {
	for waiting.Err() == nil {
		h, err := cl.Lock(waiting, name)
		if err != nil {
			if waiting.Err() != nil {
				return nil //nolint:nilerr // it was told to give up
			}
			return err
		}
		notes.Granted(who, time.Now())
		if c.section > 0 {
			time.Sleep(c.section)
		}
		notes.Leaves(time.Now())
		if err := h.Unlock(ctx); err != nil {
			return err
		}
	}
	return nil
}

// contest is what a meter has counted in that time. Figures are not numbers where
// there is nothing to divide by: no lock was granted, or none was handed over.
func contest(m *meter.Meter, took time.Duration, requests int64) figures {
	locks := float64(m.Locks())
	return figures{
		"rate":     locks / took.Seconds(),
		"requests": float64(requests) / locks,
		"p50":      nanoseconds(&m.HandOver, 50),
		"p99":      nanoseconds(&m.HandOver, 99),
		"jain":     m.Jain(),
		"changes":  float64(m.Changes) / float64(m.HandOver.Len()),
	}
}

// nanoseconds is a percentile, and not a number if there is none.
func nanoseconds(h *meter.Histogram, percent int) float64 {
	if h.Len() == 0 {
		return math.NaN()
	}
	return float64(h.Percentile(percent))
}
