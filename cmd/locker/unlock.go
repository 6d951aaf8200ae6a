package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/open"
)

const unlockHelp = `
Use it only if you know that the holder is dead or stuck. A live holder goes on
until its next renewal, because it does not know: for that time two may work at
once. The next holder's token is greater all the same, and a guarded storage
refuses the old one.
A lock that is shared or has slots is taken from all its holders, unless --token
names some of them.
The exit status is 0 whether anybody held the lock or not, and 75 if the name is a
key of Redis that has no expiry and that locker did not write: it may be data.
`

type unlockCommand struct {
	oneLock
	force, json bool
	tokens      []locker.Number // none: everybody's
}

func (c *unlockCommand) flags(fs flagSet) {
	c.oneLock.flags(fs)
	fs.BoolVar(&c.force, "force", false, "confirm that the lock is to be taken from its holder")
	fs.Func("token", "take it only from the holder that \"locker inspect\" shows with token `NUMBER`; may be\ngiven several times", c.token)
	fs.json(&c.json)
}

func (c *unlockCommand) token(text string) error {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		return errors.New("not a token, which is a whole number above 0")
	}
	c.tokens = append(c.tokens, locker.Number(n))
	return nil
}

func (c *unlockCommand) do() (int, error) {
	if !c.force {
		return exitUsage, fmt.Errorf("unlock: the lock %q is given back by its holder; add --force to take it from one that is dead or stuck: "+
			"a live one goes on for a while without knowing", c.name)
	}
	return c.ask(func(ctx context.Context, store open.Backend) error {
		broken, err := c.free(ctx, store)
		if err != nil {
			return err
		}
		return c.print(broken)
	})
}

// free frees the lock, or what those have whose tokens were given, and reports whether anybody
// held it so.
func (c *unlockCommand) free(ctx context.Context, store open.Backend) (broken bool, err error) {
	if len(c.tokens) == 0 {
		return store.Break(ctx, c.name)
	}
	for _, number := range c.tokens {
		one, err := store.BreakHolder(ctx, c.name, number)
		if err != nil {
			return broken, err
		}
		broken = broken || one
	}
	return broken, nil
}

func (c *unlockCommand) print(broken bool) (err error) {
	found := "was not held"
	switch {
	case broken && len(c.tokens) > 0:
		found = "was taken from whoever held it with a token that you gave"
	case broken:
		found = "was taken from whoever held it"
	case len(c.tokens) > 0:
		found = "was not held with such a token: \"locker inspect\" shows who holds it"
	}
	if c.json {
		_, err = answerJSON(struct {
			Name string `json:"name"`
			Held bool   `json:"was_held"`
		}{c.name, broken})
	} else {
		_, err = answer(fmt.Sprintf("%q %s\n", c.name, found))
	}
	return err
}
