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
	manyNames   = 1_000_000

	// holdFor is how long many locks are held, and renewed meanwhile.
	holdFor = time.Minute
)

// hold takes many locks and keeps them for a minute.
func hold(ctx context.Context, t trial) (figures, error) {
	clients, closeAll, err := t.open(1)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	before, goroutines := heap(), runtime.NumGoroutine()
	locks := make([]held, manyHeld)
	if err := spread(manyHeld, 64, func(i int) (err error) {
		locks[i], err = clients[0].Lock(ctx, nameOf(i))
		return err
	}); err != nil {
		return nil, err
	}
	f := figures{
		"bytes a lock":      (heap() - before) / manyHeld,
		"goroutines a lock": float64(runtime.NumGoroutine()-goroutines) / manyHeld,
	}
	requests := t.subject.requests()
	select {
	case <-time.After(holdFor):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f["requests a second while held"] = float64(t.subject.requests()-requests) / holdFor.Seconds()
	f["locks lost"] = 0
	for _, h := range locks {
		if h.Unlock(ctx) != nil {
			f["locks lost"]++
		}
	}
	return f, nil
}

// herd lets many goroutines wait for one name and serves them all.
func herd(ctx context.Context, t trial) (figures, error) {
	clients, closeAll, err := t.open(1)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	first, err := clients[0].Lock(ctx, "bench/herd")
	if err != nil {
		return nil, err
	}
	before, goroutines := heap(), runtime.NumGoroutine()
	var order []int // guarded by the lock
	var begun atomic.Int64
	errs := make([]error, manyWaiters)
	var wg sync.WaitGroup
	for i := range manyWaiters {
		at := begun.Load()
		wg.Go(func() {
			begun.Add(1)
			h, err := clients[0].Lock(ctx, "bench/herd")
			if err == nil {
				order = append(order, i)
				err = h.Unlock(ctx)
			}
			errs[i] = err
		})
		for begun.Load() == at {
			runtime.Gosched()
		}
	}
	f := figures{
		"bytes a waiter":               (heap() - before) / manyWaiters,
		"goroutines a waiter, its own": float64(runtime.NumGoroutine()-goroutines) / manyWaiters,
	}
	requests, begin := t.subject.requests(), time.Now()
	if err := first.Unlock(ctx); err != nil {
		return nil, err
	}
	wg.Wait()
	f["µs a turn"] = float64(time.Since(begin).Microseconds()) / manyWaiters
	f["requests a turn"] = float64(t.subject.requests()-requests) / manyWaiters
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	for i := 1; i < len(order); i++ {
		if order[i] < order[i-1] {
			f["served out of turn"]++
		}
	}
	f["served"] = float64(len(order))
	return f, nil
}

// parade locks a great many names, each once.
func parade(ctx context.Context, t trial) (figures, error) {
	clients, closeAll, err := t.open(1)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	f := figures{}
	server := func() float64 {
		if t.running.memory == nil {
			return 0
		}
		return float64(t.running.memory())
	}
	begin := time.Now()
	for quarter := 1; quarter <= 4; quarter++ {
		if err := spread(manyNames/4, 64, func(i int) error {
			return once(ctx, clients[0], fmt.Sprintf("bench/%d/%d", quarter, i))
		}); err != nil {
			return nil, err
		}
		f[fmt.Sprintf("client MB after quarter %d", quarter)] = heap() / (1 << 20)
		f[fmt.Sprintf("server MB after quarter %d", quarter)] = server() / (1 << 20)
	}
	f["µs a name"] = float64(time.Since(begin).Microseconds()) / manyNames
	return f, nil
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
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
