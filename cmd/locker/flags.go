package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/lockstile/locker"
)

// In the texts of flags, a line end with a tab stays in the column of the help.

func boolFlag(name, usage string, to *bool) cli.Flag {
	return &cli.BoolFlag{Name: name, Usage: usage, Destination: to}
}

func jsonFlag(to *bool) cli.Flag { return boolFlag("json", "print JSON, one object a line", to) }

// durationFlag is a flag whose value, if it is given, is above zero.
func durationFlag(name, usage string, to *time.Duration) *cli.DurationFlag {
	return &cli.DurationFlag{Name: name, Usage: usage, Destination: to, HideDefault: true, Validator: func(d time.Duration) error {
		if d <= 0 {
			return errors.New("not above zero")
		}
		return nil
	}}
}

func ttlFlag(to *time.Duration, usage string) cli.Flag {
	f := durationFlag("ttl", usage, to)
	f.Value, f.HideDefault = locker.DefaultTTL, false
	return f
}

// numberFlag takes a whole number from least to most. With a default of -1 there is none.
func numberFlag(name, usage string, to *int, least, most, byDefault int) cli.Flag {
	return &cli.IntFlag{Name: name, Usage: usage, Destination: to, Value: byDefault, HideDefault: byDefault < least, Validator: func(n int) error {
		if n < least || n > most {
			return fmt.Errorf("not a whole number from %d to %d", least, most)
		}
		return nil
	}}
}

func holderFlag(to *string) cli.Flag {
	return &cli.StringFlag{Name: "holder", Usage: "`TEXT` that \"locker inspect\" shows as the holder, in place of the process and the machine", Destination: to}
}

// oneLock is a command on one lock of a store.
type oneLock struct {
	*backend
	name string
}

func (c *oneLock) accept(args []string) error {
	words, err := atMost(1, args)
	switch {
	case err != nil:
		return err
	case len(words) == 0:
		return errors.New("NAME is missing")
	}
	c.name = words[0]
	if err := locker.CheckName(c.name); err != nil {
		return err
	}
	return c.check()
}
