package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

func newBench(b *backend) *benchCommand { return &benchCommand{backend: b} }

func (c *benchCommand) flags() []cli.Flag {
	const most = 10_000
	long := durationFlag("time", "measure each of the three workloads for `DURATION`", &c.time)
	long.Value, long.HideDefault = 2*time.Second, false
	hold := durationFlag("hold", "where all want one name, each holds it for `DURATION`", &c.hold)
	hold.HideDefault, hold.Validator = false, func(d time.Duration) error {
		if d < 0 {
			return errors.New("below zero")
		}
		return nil
	}
	return []cli.Flag{
		long,
		numberFlag("goroutines", "`NUMBER` of goroutines that lock at the same time", &c.goroutines, 1, most, 8),
		numberFlag("clients", "spread the goroutines over `NUMBER` clients, each with its own connections,\n\tas so many processes would have", &c.clients, 1, most, 1),
		hold,
		ttlFlag(&c.ttl, "with a lease of `DURATION`"),
		jsonFlag(&c.json),
	}
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
	report := &benchReport{Backend: strings.TrimSuffix(c.kind(), ":"), TTL: c.ttl.Seconds(), Workloads: []figures{}}
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
