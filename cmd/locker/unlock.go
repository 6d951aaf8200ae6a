package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/open"
)

// unlockCommand unlocks the lock of a handle, or takes one from its holders.
type unlockCommand struct {
	byHandle
	name        string
	force, json bool
	tokens      []uint64 // of holders; none: everybody's
}

func (c *unlockCommand) flags() []cli.Flag {
	return []cli.Flag{
		c.fileFlag(),
		boolFlag("force", "take the lock NAME from its holder", &c.force),
		&cli.Uint64SliceFlag{
			Name: "token", Destination: &c.tokens, HideDefault: true,
			Usage: "with --force, take it only from the holder that \"locker inspect\" shows with token `NUMBER`",
			Validator: func(all []uint64) error {
				if slices.Contains(all, 0) {
					return errors.New("not a token, which is a whole number above 0")
				}
				return nil
			},
		},
		jsonFlag(&c.json),
	}
}

func (c *unlockCommand) accept(args []string) (err error) {
	switch {
	case c.force:
		if c.name, err = c.oneName(args); err == nil && handles.MatchString(c.name) {
			err = errors.New("this is a handle: unlock it without --force, which takes a NAME")
		}
		return err
	case len(c.tokens) > 0:
		return errors.New("--token goes with --force")
	}
	err = c.byHandle.accept(args)
	if err != nil && len(args) == 1 && args[0] != "-" && c.file == "" && !handles.MatchString(args[0]) && locker.CheckName(args[0]) == nil {
		return fmt.Errorf("%w; to take the lock of that name from a holder that is dead or stuck, add --force: a live one goes on for a while without knowing", err)
	}
	return err
}

func (c *unlockCommand) do() error {
	if c.force {
		return c.ask(c.free)
	}
	return c.ask(func(ctx context.Context, store open.Backend) error {
		err := c.explain(locker.UnlockHandle(ctx, store, c.handle))
		if err == nil && c.json {
			err = answerJSON(unlockedJSON{Name: c.lock.Name, Held: true})
		}
		return err
	})
}

// free frees the lock, or what those have whose tokens were given, and says who held it.
func (c *unlockCommand) free(ctx context.Context, store open.Backend) error {
	info, err := store.Inspect(ctx, c.name) // who held it a moment before; whether anybody did, Break says
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if len(c.tokens) == 0 {
		broken, err := store.Break(ctx, c.name)
		if err != nil {
			return err
		}
		return c.print(broken, info.Holders)
	}
	broken := false
	for _, token := range c.tokens {
		one, err := store.BreakHolder(ctx, c.name, locker.Number(token))
		if err != nil {
			return err
		}
		broken = broken || one
	}
	return c.print(broken, slices.DeleteFunc(info.Holders, func(h locker.Holder) bool { return !slices.Contains(c.tokens, uint64(h.Number)) }))
}

type unlockedJSON struct {
	Name    string       `json:"name"`
	Held    bool         `json:"was_held"`
	Holders []holderJSON `json:"holders,omitempty"`
}

func (c *unlockCommand) print(broken bool, from []locker.Holder) error {
	if !broken {
		from = nil
	}
	found := "was not held"
	var held []string
	for _, h := range from {
		held = append(held, describe(h))
	}
	switch {
	case !broken && len(c.tokens) > 0:
		found = "was not held with such a token: \"locker inspect\" shows who holds it"
	case broken && held == nil:
		found = "was taken from somebody unknown"
	case broken:
		found = "was taken from its holder: " + strings.Join(held, "; ")
	}
	return tell(c.json, unlockedJSON{c.name, broken, holdersJSON(from)}, fmt.Sprintf("%q %s\n", c.name, found))
}
