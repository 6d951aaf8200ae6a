package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/open"
)

type benchCommand struct {
	*backend
	ttl, time, hold     time.Duration
	goroutines, clients int
	json                bool
}

func (c *benchCommand) flags() []cli.Flag {
	const most = 10_000
	hold := durationFlag("hold", "where all want one name, each holds it for `DURATION`; default: not at all", &c.hold, 0)
	hold.Validator = nil // 0 is the default; accept refuses what is less
	return []cli.Flag{
		durationFlag("time", "measure each of the three workloads for `DURATION`", &c.time, 2*time.Second),
		numberFlag("goroutines", "`NUMBER` of goroutines that lock at the same time", &c.goroutines, 1, most, 8),
		numberFlag("clients", "spread the goroutines over `NUMBER` clients, each with its own connections,\n\tas so many processes would have", &c.clients, 1, most, 1),
		hold,
		durationFlag("ttl", "with a lease of `DURATION`", &c.ttl, locker.DefaultTTL),
		jsonFlag(&c.json),
	}
}

func (c *benchCommand) accept(args []string) error {
	if err := c.backend.accept(args); err != nil {
		return err
	}
	switch {
	case c.hold < 0:
		return fmt.Errorf("--hold %v is below zero", c.hold)
	case c.clients > c.goroutines:
		return fmt.Errorf("--clients %d is more than --goroutines %d: some would have nothing to do", c.clients, c.goroutines)
	}
	_, err := driver.NewRequest(nil, benchPrefix, locker.WithTTL(c.ttl))
	return err
}

func (c *benchCommand) do() error {
	report := &benchReport{Backend: strings.TrimSuffix(c.kind(), ":"), TTL: c.ttl.Seconds(), Workloads: []figures{}}
	var err error
	ended := until(catch(), func(ctx context.Context) { err = c.measure(ctx, report) })
	switch {
	case errors.Is(err, errBroken):
		return fmt.Errorf("bench: %w", err)
	case err != nil:
		return err
	}
	report.CutShort = ended != nil
	if err := tell(c.json, report, report.text()); err != nil || ended == nil {
		return err
	}
	return exit{ended.status(), fmt.Errorf("bench: cut short: %w", ended)}
}

// measure opens the clients, measures, and closes them. The end of ctx is no
// error: the report has what was measured until then.
func (c *benchCommand) measure(ctx context.Context, report *benchReport) (err error) {
	var clients []open.Backend
	defer func() { err = cmp.Or(err, shutAll(clients)) }()
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
		r := c.newRace(w, clients, names)
		took, err := r.run(ctx)
		if err != nil {
			return err
		}
		if ctx.Err() != nil && r.meter.Locks() == 0 {
			break // it was still warming up, or had not begun
		}
		report.Workloads = append(report.Workloads, r.figures(took))
	}
	for i := range names {
		report.Checked += names[i].seen
	}
	return nil
}

// shutAll returns one error at most: the others mostly say the same.
func shutAll(clients []open.Backend) error {
	var all sync.WaitGroup
	errs := make([]error, len(clients))
	for i, c := range clients {
		all.Go(func() { errs[i] = shut(c) })
	}
	all.Wait()
	return cmp.Or(errs...)
}
