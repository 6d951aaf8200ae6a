package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/lockstile/locker/internal/meter"
)

// guest is one goroutine of another process that wants a lock which the goroutines of
// one process hand to each other.
type guest struct{ hosts int }

func (g guest) name() string { return fmt.Sprintf("guest-%d", g.hosts) }

func (g guest) about() string {
	return fmt.Sprintf("One name, %d goroutines in one client, and one in another, which is measured", g.hosts)
}

func (g guest) run(ctx context.Context, t trial) (figures, error) {
	clients, closeAll, err := t.open(2)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	if err := warm(ctx, clients, g.hosts); err != nil {
		return nil, err
	}
	hosts, name := contention{goroutines: g.hosts, clients: 1}, fmt.Sprint("bench/guest/", races.Add(1))
	end := hosts.crowd(ctx, clients[:1], name, meter.New(g.hosts))
	pause(ctx, hosts.leadIn(t.running))
	waits, err := g.visit(ctx, clients[1], name, 2*t.each)
	if err := errors.Join(err, end()); err != nil {
		return nil, err
	}
	return figures{"p50": nanoseconds(waits, 50), "p99": nanoseconds(waits, 99), "visits": float64(waits.Len())}, ctx.Err()
}

// starved is when a guest gives up: a library that gives the lock back to whoever had
// it last may never serve one.
const starved = 10 * time.Second

// visit locks and unlocks until the time is up, and returns how long each Lock took.
func (g guest) visit(ctx context.Context, cl client, name string, each time.Duration) (waits *meter.Histogram, err error) {
	waits = new(meter.Histogram)
	for end := time.Now().Add(each); time.Now().Before(end); {
		asked := time.Now()
		patient, cancel := context.WithTimeout(ctx, starved)
		h, err := cl.Lock(patient, name)
		cancel()
		waits.Add(time.Since(asked))
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return waits, nil
		case err != nil:
			return nil, err
		}
		if err := h.Unlock(ctx); err != nil {
			return nil, err
		}
	}
	return waits, nil
}

func guestTable(w io.Writer, load workload, results []result) {
	head(w, load, "", "wait p50 ms", "p99 ms", "visits")
	for _, r := range results {
		row(w, r.subject.name, number(r.median("p50")/1e6, 1), number(r.median("p99")/1e6, 1), number(r.median("visits"), 0))
	}
}
