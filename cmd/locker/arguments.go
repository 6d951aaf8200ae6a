package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/lockstile/locker"
)

// flagSet are the flags of a command.
type flagSet struct{ *flag.FlagSet }

// declare returns the flags of c. Parsing them sets c's fields.
func declare(c command) flagSet {
	fs := flagSet{flag.NewFlagSet("", flag.ContinueOnError)}
	fs.SetOutput(io.Discard) // errors are returned
	c.flags(fs)
	return fs
}

func (fs flagSet) ttl(to *time.Duration) {
	*to = locker.DefaultTTL
	fs.Func("ttl", "if locker is killed, a store with leases frees the lock after `DURATION` at\nmost; \"local:\" frees it at once; default 30s", positive(to))
}

func (fs flagSet) json(to *bool) { fs.BoolVar(to, "json", false, "print JSON, one object a line") }

// parse sets what the flags in args say, and returns the other arguments. Flags may
// stand before and after them, but after the first "--" nothing is a flag.
func (fs flagSet) parse(args []string) (words []string, err error) {
	end := slices.Index(args, "--")
	if end < 0 {
		end = len(args)
	}
	for own := args[:end]; ; own = fs.Args()[1:] {
		if err := fs.Parse(own); err != nil {
			return nil, err
		}
		if fs.NArg() == 0 {
			return append(words, args[end:]...), nil
		}
		words = append(words, fs.Arg(0))
	}
}

// given refuses an empty value: it mostly comes from a variable that is not set,
// and the default would then be another store than the one that was meant.
func given(to *string) func(string) error {
	return func(text string) error {
		if text == "" {
			return errors.New("it is empty")
		}
		*to = text
		return nil
	}
}

func positive(to *time.Duration) func(string) error {
	return func(text string) error {
		d, err := time.ParseDuration(text)
		switch {
		case err != nil:
			return errors.New("not a duration such as 30s or 1m30s")
		case d <= 0:
			return errors.New("not above zero")
		}
		*to = d
		return nil
	}
}

func notNegative(to *time.Duration) func(string) error {
	return func(text string) error {
		if d, err := time.ParseDuration(text); err == nil && d == 0 {
			*to = 0
			return nil
		}
		return positive(to)(text)
	}
}

// number takes a whole number from least to most.
func number(to *int, least, most int) func(string) error {
	return func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			return fmt.Errorf("not a whole number from %d to %d", least, most)
		}
		*to = n
		return nil
	}
}

// plain is a command without flags and arguments.
type plain struct{}

func (plain) flags(flagSet) {}

func (plain) accept(args []string) error {
	_, err := atMost(0, args)
	return err
}

// atMost returns args without the first "--", or an error if they are more than n.
func atMost(n int, args []string) ([]string, error) {
	if i := slices.Index(args, "--"); i >= 0 {
		args = slices.Delete(args, i, i+1)
	}
	if len(args) > n {
		return nil, fmt.Errorf("%q is one argument too many", args[n])
	}
	return args, nil
}

// oneLock is a command on one lock of a store.
type oneLock struct {
	backend
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
