package lockertest

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// client is a [driver.Store]: it asks the server, and waits.
type client struct {
	server *server
	link   *Link
}

func (c *client) Guarantees() locker.Guarantees {
	return locker.Guarantees{
		Exclusion: locker.PromptHolder, Tokens: locker.ServerUp, Fair: true, FreedBy: locker.FreedByExpiry, KeepsMinHold: true, Detaches: true, Shared: true, Slots: true,
	}
}

func (c *client) Begin(req *driver.Request) (*attempt, error) {
	return &attempt{req: req, id: rand.Text(), word: make(chan struct{}, 1), link: c.link}, nil
}

var errWithdrawn = errors.New("the attempt was withdrawn")

func (c *client) Acquire(ctx context.Context, a *attempt, wait driver.Wait) (driver.Grant, driver.Left, error) {
	left := driver.Nothing
	for {
		since := c.server.now()
		got, err := Send(ctx, c.link, func() answer { return c.server.acquire(a, wait != nil) })
		switch {
		case errors.Is(err, locker.ErrRefused):
			return driver.Grant{}, left, err
		case err != nil:
			return driver.Grant{}, driver.Unsure, err
		case got.withdrawn:
			return driver.Grant{}, driver.Unsure, errWithdrawn
		case got.mismatch != nil:
			return driver.Grant{}, left, got.mismatch
		case got.number != 0:
			return driver.Grant{First: got.number, Count: a.req.Tokens(tokens), Slot: got.slot, Since: since}, left, nil
		case wait == nil:
			return driver.Grant{}, left, nil
		}
		left = driver.Unsure // a place in the queue
		ctx = wait()
		look := time.NewTimer(got.left)
		select {
		case <-a.word:
		case <-look.C:
		case <-ctx.Done():
		}
		look.Stop()
		if ctx.Err() != nil {
			return driver.Grant{}, left, context.Cause(ctx)
		}
	}
}

func (c *client) Renew(ctx context.Context, as []*attempt) []error {
	errs, err := Send(ctx, c.link, func() []error {
		errs := make([]error, len(as))
		for i, a := range as {
			errs[i] = c.server.renew(a)
		}
		return errs
	})
	if err != nil {
		return slices.Repeat([]error{err}, len(as))
	}
	return errs
}

func (c *client) Release(ctx context.Context, a *attempt, keep time.Duration) error {
	lost, err := Send(ctx, c.link, func() error { return c.server.release(a, keep) })
	if err != nil {
		return err
	}
	return lost
}

func (c *client) Withdraw(ctx context.Context, a *attempt) error {
	_, err := Send(ctx, c.link, func() bool { c.server.withdraw(a); return true })
	return err
}

func (c *client) ID(a *attempt) string { return a.id }

func (c *client) Resume(ctx context.Context, a *attempt, ids []string) (driver.Grant, driver.Left, error) {
	since := c.server.now()
	number, err := Send(ctx, c.link, func() uint64 { return c.server.resume(a, ids) })
	switch {
	case err != nil:
		return driver.Grant{}, driver.UnsureIf(!errors.Is(err, locker.ErrRefused)), err
	case number == 0:
		return driver.Grant{}, driver.Nothing, &locker.LostError{Reason: locker.ReasonTakenOver}
	}
	return driver.Grant{First: number, Count: tokens, Since: since}, driver.Unsure, nil
}

func (c *client) Adopt(a *attempt, id string) error {
	a.id, a.adopted = id, true
	return nil
}

func (c *client) Inspect(ctx context.Context, name string) (locker.Info, error) {
	return Send(ctx, c.link, func() locker.Info { return c.server.inspect(name) })
}

func (c *client) List(ctx context.Context, prefix string) ([]locker.Info, error) {
	return Send(ctx, c.link, func() []locker.Info { return c.server.list(prefix) })
}

func (c *client) Break(ctx context.Context, name string, number locker.Number) (bool, error) {
	return Send(ctx, c.link, func() bool {
		holders := c.server.free(name, true, func(h *hold) bool { return number == 0 || locker.Number(h.of.number) == number })
		return len(holders) > 0
	})
}
