package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	manyHeld    = 10_000
	manyWaiters = 10_000

	// holdFor is how long many locks are held. A renewal is due after a third of the
	// TTL, so each is renewed twice; in a quick run, once.
	holdFor      = ttl * 3 / 4
	holdForQuick = ttl * 2 / 5
)

// holdMany takes many locks and keeps them for a while.
func holdMany(ctx context.Context, t trial) (figures, error) {
	clients, closeAll, err := t.open(1)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	if err := warm(ctx, clients, 2*t.many(manyHeld)); err != nil { // a connection weighs more than a lock
		return nil, err
	}
	before, goroutines := heap(), runtime.NumGoroutine()
	n := t.many(manyHeld)
	locks := make([]held, n)
	if err := spread(n, 64, func(i int) (err error) {
		locks[i], err = clients[0].Lock(ctx, nameOf(i))
		return err
	}); err != nil {
		return nil, err
	}
	f := figures{
		"bytes a lock":      (heap() - before) / float64(n),
		"goroutines a lock": float64(runtime.NumGoroutine()-goroutines) / float64(n),
		"locks":             float64(n),
	}
	while := holdFor
	if t.quick {
		while = holdForQuick
	}
	requests := t.subject.requests()
	select {
	case <-time.After(while):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f["requests a second while held"] = float64(t.subject.requests()-requests) / while.Seconds()
	var lost atomic.Int64
	_ = spread(n, 64, func(i int) error {
		if locks[i].Unlock(ctx) != nil {
			lost.Add(1)
		}
		return nil
	})
	f["locks lost"] = float64(lost.Load())
	return f, nil
}

// waiters are goroutines that wait for one lock.
type waiters struct {
	order []int // in which they were served; guarded by the lock
	errs  []error
	wg    sync.WaitGroup
}

// waitMany lets many goroutines wait for one name and serves them all.
func waitMany(ctx context.Context, t trial) (figures, error) {
	clients, closeAll, err := t.open(1)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	first, err := clients[0].Lock(ctx, "bench/waiters")
	if err != nil {
		return nil, err
	}
	n := t.many(manyWaiters)
	before, goroutines := heap(), runtime.NumGoroutine()
	w := &waiters{errs: make([]error, n)}
	w.start(ctx, clients[0])
	f := figures{
		"bytes a waiter":               (heap() - before) / float64(n),
		"goroutines a waiter, its own": float64(runtime.NumGoroutine()-goroutines) / float64(n),
	}
	requests, begin := t.subject.requests(), time.Now()
	if err := first.Unlock(ctx); err != nil {
		return nil, err
	}
	if err := wait(ctx, &w.wg); err != nil {
		return nil, err
	}
	f["µs a turn"] = float64(time.Since(begin).Microseconds()) / float64(n)
	f["requests a turn"] = float64(t.subject.requests()-requests) / float64(n)
	f["served"] = float64(len(w.order))
	f["served out of turn"] = 0
	for i := 1; i < len(w.order); i++ {
		if w.order[i] < w.order[i-1] {
			f["served out of turn"]++
		}
	}
	return f, firstError(w.errs)
}

// start starts one goroutine after the other, each when the one before it runs.
func (w *waiters) start(ctx context.Context, cl client) {
	var begun atomic.Int64
	for i := range w.errs {
		at := begun.Load()
		w.wg.Go(func() {
			begun.Add(1)
			h, err := cl.Lock(ctx, "bench/waiters")
			if err == nil {
				w.order = append(w.order, i)
				err = h.Unlock(ctx)
			}
			w.errs[i] = err
		})
		for begun.Load() == at {
			runtime.Gosched()
		}
	}
}

// lockManyNames locks a great many names, each once.
func lockManyNames(ctx context.Context, t trial) (figures, error) {
	clients, closeAll, err := t.open(1)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	f := figures{}
	n := t.many(t.running.names)
	begin := time.Now()
	for quarter := 1; quarter <= 4; quarter++ {
		if err := spread(n/4, 64, func(i int) error {
			return once(ctx, clients[0], fmt.Sprintf("bench/%d/%d", quarter, i))
		}); err != nil {
			return nil, err
		}
		f[fmt.Sprintf("client MB after quarter %d", quarter)] = heap() / (1 << 20)
		if t.running.memory != nil {
			f[fmt.Sprintf("server MB after quarter %d", quarter)] = float64(t.running.memory()) / (1 << 20)
		}
	}
	f["µs a name"] = float64(time.Since(begin).Microseconds()) / float64(n)
	f["names"] = float64(n)
	return f, t.forgotten(ctx, f)
}

// forgotten measures what a store still keeps of names that nobody has used for a while,
// where the store says when it forgets them.
func (t trial) forgotten(ctx context.Context, f figures) error {
	if t.running.forgets == 0 || t.quick {
		return nil
	}
	select {
	case <-time.After(t.running.forgets):
	case <-ctx.Done():
		return ctx.Err()
	}
	f["server MB when they are forgotten"] = float64(t.running.memory()) / (1 << 20)
	return nil
}

// heap is the live memory, in bytes.
func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// spread calls f for 0 to n-1 over so many goroutines.
func spread(n, goroutines int, f func(i int) error) error {
	var next atomic.Int64
	errs := make([]error, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if errs[g] = f(i); errs[g] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return firstError(errs)
}

// firstError returns one error: ten thousand goroutines mostly have the same one.
func firstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
