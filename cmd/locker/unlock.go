package main

import (
	"context"
	"fmt"

	"github.com/lockstile/locker/open"
)

const unlockHelp = `
Use it only if you know that the holder is dead or stuck. A live holder goes on
until its next renewal, because it does not know: for that time two may work at
once. The next holder's token is greater all the same, and a guarded storage
refuses the old one.
The exit status is 0 whether anybody held the lock or not.
`

type unlockCommand struct {
	oneLock
	force, json bool
}

func (c *unlockCommand) flags(fs flagSet) {
	c.oneLock.flags(fs)
	fs.BoolVar(&c.force, "force", false, "confirm that the lock is to be taken from its holder")
	fs.json(&c.json)
}

func (c *unlockCommand) do() (int, error) {
	if !c.force {
		return exitUsage, fmt.Errorf("unlock: the lock %q is given back by its holder; add --force to take it from one that is dead or stuck: "+
			"a live one goes on for a while without knowing", c.name)
	}
	return c.ask(func(ctx context.Context, store open.Backend) error {
		broken, err := store.Break(ctx, c.name)
		if err != nil {
			return err
		}
		return c.print(broken)
	})
}

func (c *unlockCommand) print(broken bool) (err error) {
	found := "was not held"
	if broken {
		found = "was taken from its holder"
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
