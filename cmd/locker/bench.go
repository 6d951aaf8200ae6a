package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstile/locker/open"
)

var benchCommand = command{
	name:  "bench",
	about: "measure the locks of a store, and check that they exclude",
	more: `
Three workloads, each for --time after a warm-up of --time at most: one goroutine
locks and unlocks a name of its own; so do all goroutines, a name each; and all
goroutines want one name. A hand-over is the time from the call of Unlock to the
return of the next Lock. Fairness is Jain's index: 1 if all goroutines got as
many locks, 1/NUMBER if one got all. A lock has changed hands if its holder is
another goroutine than the last. The --ttl matters to figures only where --hold
is so long that locks are renewed. --json has the same figures, in seconds.

This is load: the store is asked as often as it answers, from --goroutines
goroutines at once and over the connections of --clients clients, and whoever
else uses it is slower meanwhile. On a store that others depend on, begin with
a short --time and few goroutines. A --hold gives it pauses in the last workload
only. All names begin with "lockstile-bench/" and a random part, so nobody else's
lock is touched. There are as many as goroutines, and each leaves in the store
what any unused name leaves: with "local:" a small file, with Redis a counter
that expires.

Whoever is granted a lock is checked against whoever holds it, and its token
against the last one. A signal ends the measuring early: all locks are given back
and what was measured so far is printed, marked as cut short. The exit status is
128 + n then, 1 if two held a name at once or a token did not increase, 70 if a
lock was lost, and 69 if the store failed on the way: no figures are printed in
these three cases.
`,
	flags: []string{"b", "ttl", "time", "goroutines", "clients", "hold", "json"},
	do:    bench,
}

// exitBroken is the status of "bench" for a lock that does not keep its promise,
// as that of "compare" is.
const exitBroken = 1

func bench(in invocation) (int, error) {
	if err := in.bench.check(in); err != nil {
		return exitUsage, fmt.Errorf("bench: %w; \"locker help bench\" says more", err)
	}
	var report *benchReport
	var err error
	ended := until(catch(), func(ctx context.Context) { report, err = benchAll(ctx, in) })
	switch {
	case errors.Is(err, errBroken):
		return exitBroken, fmt.Errorf("bench: %w", err)
	case err != nil:
		return statusOf(err), err
	}
	if ended != nil {
		report.CutShort = true
	}
	if status, err := report.print(in); err != nil || ended == nil {
		return status, err
	}
	return ended.status(), fmt.Errorf("bench: cut short: %w", ended)
}

// benchAll opens the clients, measures, and closes them. The end of ctx is no
// error: the report has what was measured until then.
func benchAll(ctx context.Context, in invocation) (report *benchReport, err error) {
	report = newBenchReport(in)
	var clients []open.Backend
	for range in.bench.clients {
		b, err := connect(ctx, in)
		if err != nil {
			if cerr := shutAll(clients); ctx.Err() == nil {
				return nil, errors.Join(err, cerr)
			}
			return report, nil //nolint:nilerr // it was told to give up
		}
		clients = append(clients, b)
	}
	err = report.measure(ctx, newBenchRun(in, clients))
	if cerr := shutAll(clients); err == nil {
		err = cerr
	}
	return report, err
}

// shutAll returns one error at most: the others mostly say the same.
func shutAll(clients []open.Backend) (err error) {
	errs := make(chan error)
	for _, c := range clients {
		go func() { errs <- shut(c) }()
	}
	for range clients {
		if e := <-errs; err == nil {
			err = e
		}
	}
	return err
}
