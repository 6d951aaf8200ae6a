package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"
)

// workload is one way to use locks.
type workload struct {
	name  string
	about string
	takes func(subject) bool
	run   func(context.Context, trial) (figures, error)
	table func(io.Writer, workload, []result)
	once  bool // one round is enough
	reach bool // it needs the servers' addresses
}

// trial is one workload of one subject in one round.
type trial struct {
	running *running
	subject subject
	each    time.Duration
	quick   bool
}

// patience bounds one trial, whatever its subject does.
const patience = 5 * time.Minute

// measure runs the workload within a bounded time. Goroutines that still run after that
// are left to themselves: their clients are closed and nobody waits for them.
func (w workload) measure(ctx context.Context, t trial) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	runtime.GC() // the last subject's garbage
	return w.run(ctx, t)
}

// wait returns when wg is done, or with an error when ctx ends: some libraries' Lock takes
// no context.
func wait(ctx context.Context, wg *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("goroutines still wait: %w", context.Cause(ctx))
	}
}

// many is n, or a tenth of it for a quick run.
func (t trial) many(n int) int {
	if t.quick {
		return n / 10
	}
	return n
}

// open opens so many clients, each with connections of its own.
func (t trial) open(n int) (clients []client, closeAll func(), err error) {
	closeAll = func() {
		for _, c := range clients {
			c.Close()
		}
	}
	for range n {
		c, err := t.subject.open()
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		clients = append(clients, c)
	}
	return clients, closeAll, nil
}

// figures are what was measured, by name.
type figures map[string]float64

type result struct {
	subject subject
	rounds  []figures
	failed  bool
}

func everybody(s subject) bool      { return s.kind != inner }
func contenders(s subject) bool     { return s.kind != floor && !s.alone }
func realLocks(s subject) bool      { return contenders(s) && s.kind != inner }
func inGreatNumbers(s subject) bool { return s.kind == ours && s.scales }

func workloads() []workload {
	loads := []workload{
		{name: "uncontended-1", about: "Lock and unlock, uncontended, one goroutine", takes: everybody, run: uncontended(1), table: uncontendedTable},
		{name: "uncontended-64", about: "Lock and unlock, uncontended, 64 goroutines with a name each", takes: everybody, run: uncontended(64), table: uncontendedTable},
	}
	for _, c := range []contention{
		{2, 1, 0}, {8, 1, 0}, {64, 1, 0}, {64, 8, 0}, {8, 8, 0}, {1000, 8, 0}, {64, 1, time.Millisecond}, {64, 8, time.Millisecond},
	} {
		loads = append(loads, workload{name: c.name(), about: c.about(), takes: contenders, run: c.run, table: contendedTable})
	}
	g := guest{64}
	loads = append(loads, workload{name: g.name(), about: g.about(), takes: realLocks, run: g.run, table: guestTable})
	for _, p := range []processContest{{8, 0, 0}, {8, time.Millisecond, 0}, {8, 0, 500 * time.Microsecond}} {
		loads = append(loads, workload{name: p.name(), about: p.about(), takes: realLocks, run: p.run, table: contendedTable, reach: true})
	}
	k := kinds{64, 4, time.Millisecond, 8}
	loads = append(loads, workload{name: k.name(), about: k.about(), takes: inGreatNumbers, run: k.run, table: kindsTable})
	return append(loads,
		workload{name: "held", about: "Very many locks held and renewed", takes: inGreatNumbers, run: holdMany, table: plainTable, once: true},
		workload{name: "waiters", about: "Very many waiters on one name", takes: inGreatNumbers, run: waitMany, table: plainTable, once: true},
		workload{name: "names", about: "A great many names, each locked once", takes: inGreatNumbers, run: lockManyNames, table: plainTable, once: true},
	)
}
