package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/open"
)

const benchHelp = `
bench runs three workloads, each for --time after a warm-up of --time at most. In
the first, one goroutine locks and unlocks a name of its own. In the second, all
goroutines do that, each with its own name. In the third, all goroutines want the
same name. A hand-over is the time from the call of
Unlock to the return of the next Lock. Fairness is Jain's index: 1 if all
goroutines got equally many locks, 1/NUMBER if one got them all. A lock has
changed hands if its holder is another goroutine than the last. --ttl changes the
figures only where --hold is so long that locks are renewed. --json prints the
same figures, in seconds.

This is load: the store is asked as often as it answers, by --goroutines
goroutines at once over the connections of --clients clients, and is slower
meanwhile for everybody else. On a store that others depend on, begin with a
short --time and few goroutines. --hold gives it pauses in the last workload
only. All names begin with "lockstile-bench/" and a random part, so nobody else's
lock is touched. There is a name for each goroutine, and it leaves in the store
what any unused name leaves: with "local:" a small file, with Redis a counter
that expires.

Every lock is checked: nobody else may hold the name, and its token must be
greater than the last one. A signal ends the measuring early: bench gives back
all locks and prints what it has measured, marked as cut short, and the exit
status is 128 + n. It is 1 if two held a name at once or a token did not increase,
70 if a lock was lost, and 69 if the store failed on the way; no figures are
printed then.
`

type benchCommand struct {
	backend
	ttl, time, hold     time.Duration
	goroutines, clients int
	json                bool
}

func (c *benchCommand) flags(fs flagSet) {
	const most = 10_000
	c.time, c.goroutines, c.clients = 2*time.Second, 8, 1
	c.backend.flags(fs)
	fs.ttl(&c.ttl)
	fs.Func("time", "measure each of the three workloads for `DURATION`; default 2s", positive(&c.time))
	fs.Func("goroutines", "`NUMBER` of goroutines that lock at the same time; default 8", number(&c.goroutines, 1, most))
	fs.Func("clients", "spread the goroutines over `NUMBER` clients, each with its own connections,\nas so many processes would have; default 1", number(&c.clients, 1, most))
	fs.Func("hold", "where all want one name, each holds it for `DURATION`; default 0s", notNegative(&c.hold))
	fs.json(&c.json)
}

func (c *benchCommand) accept(args []string) error {
	if err := c.backend.accept(args); err != nil {
		return err
	}
	if c.clients > c.goroutines {
		return fmt.Errorf("--clients %d is more than --goroutines %d: some would have nothing to do", c.clients, c.goroutines)
	}
	_, err := driver.NewRequest(nil, benchPrefix, locker.WithTTL(c.ttl))
	return err
}

func (c *benchCommand) do() (int, error) {
	scheme, _, _ := strings.Cut(c.url(), ":")
	report := &benchReport{Backend: scheme, TTL: c.ttl.Seconds(), Workloads: []figures{}}
	var err error
	ended := until(catch(), func(ctx context.Context) { err = c.measure(ctx, report) })
	switch {
	case errors.Is(err, errBroken):
		return exitBroken, fmt.Errorf("bench: %w", err)
	case err != nil:
		return statusOf(err), err
	}
	report.CutShort = ended != nil
	if status, err := report.print(c.json); err != nil || ended == nil {
		return status, err
	}
	return ended.status(), fmt.Errorf("bench: cut short: %w", ended)
}

// measure opens the clients, measures, and closes them. The end of ctx is no
// error: the report has what was measured until then.
func (c *benchCommand) measure(ctx context.Context, report *benchReport) (err error) {
	var clients []open.Backend
	defer func() {
		if cerr := shutAll(clients); err == nil {
			err = cerr
		}
	}()
	for range c.clients {
		client, err := c.connect(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil //nolint:nilerr // it was told to give up
		case err != nil:
			return err
		}
		clients = append(clients, client)
	}
	return c.play(ctx, clients, report)
}

// play runs the workloads, until the end of ctx.
func (c *benchCommand) play(ctx context.Context, clients []open.Backend, report *benchReport) error {
	names := benchNames(c.goroutines)
	for _, w := range []workload{
		{goroutines: 1, clients: 1},
		{goroutines: c.goroutines, clients: c.clients},
		{goroutines: c.goroutines, clients: c.clients, oneName: true, hold: c.hold},
	} {
		if ctx.Err() != nil {
			break
		}
		r := c.newRace(w, clients, names)
		took, err := r.run(ctx)
		if err != nil {
			return err
		}
		if ctx.Err() != nil && r.meter.Locks() == 0 {
			break // it was still warming up
		}
		report.Workloads = append(report.Workloads, r.figures(took))
	}
	for i := range names {
		report.Checked += names[i].seen
	}
	return nil
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
