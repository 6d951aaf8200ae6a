package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// uncontended locks and unlocks names that nobody else wants.
func uncontended(goroutines int) func(context.Context, trial) (figures, error) {
	return func(ctx context.Context, t trial) (figures, error) {
		clients, closeAll, err := t.open(1)
		if err != nil {
			return nil, err
		}
		defer closeAll()
		if err := warm(ctx, clients, goroutines); err != nil {
			return nil, err
		}
		return t.loop(ctx, goroutines, func(i int) error { return once(ctx, clients[0], nameOf(i)) })
	}
}

// warm makes connections, sessions and scripts for so many goroutines, but for no more at
// once than servers bear. A request that has to dial first may take longer than a lock
// allows, so it is repeated.
func warm(ctx context.Context, clients []client, goroutines int) error {
	return spread(goroutines, min(goroutines, 64), func(i int) (err error) {
		for range 5 {
			if err = once(ctx, clients[i%len(clients)], nameOf(i)); err == nil {
				return nil
			}
		}
		return err
	})
}

func nameOf(i int) string { return fmt.Sprint("bench/", i) }

func once(ctx context.Context, c client, name string) error {
	h, err := c.Lock(ctx, name)
	if err != nil {
		return err
	}
	return h.Unlock(ctx)
}

// loop calls op in so many goroutines until the time is up.
func (t trial) loop(ctx context.Context, goroutines int, op func(i int) error) (figures, error) {
	var (
		wg   sync.WaitGroup
		ops  atomic.Int64
		fail atomic.Pointer[error]
		mem  [2]runtime.MemStats
	)
	requests, cpu := t.subject.requests(), readCPU()
	runtime.ReadMemStats(&mem[0])
	begin := time.Now()
	for i := range goroutines {
		wg.Go(func() {
			for time.Since(begin) < t.each && ctx.Err() == nil {
				if err := op(i); err != nil {
					fail.Store(&err)
					return
				}
				ops.Add(1)
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	runtime.ReadMemStats(&mem[1])
	n := float64(ops.Load())
	work := readCPU().since(cpu, n)
	if err := fail.Load(); err != nil {
		return nil, *err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return figures{
		"time":     float64(took.Nanoseconds()) / n,
		"requests": float64(t.subject.requests()-requests) / n,
		"allocs":   float64(mem[1].Mallocs-mem[0].Mallocs) / n,
		"client":   work.client,
		"servers":  work.servers,
	}, nil
}
