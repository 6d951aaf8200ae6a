package main

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"time"

	"github.com/lockstile/locker"
)

// mostGoroutines is the most that "bench" takes.
const mostGoroutines = 10_000

// benchSettings are the flags of "bench" alone.
type benchSettings struct {
	each, hold          time.Duration
	goroutines, clients int
}

// benchFlags define the flags of "bench" alone.
func benchFlags(fs *flag.FlagSet, to *benchSettings) map[string]func(name string) {
	return map[string]func(name string){
		"time": func(n string) {
			to.each = 2 * time.Second
			fs.Func(n, "measure each of the three workloads for `DURATION`; default 2s", positive(&to.each))
		},
		"hold": func(n string) {
			fs.Func(n, "where all want one name, each holds it for `DURATION`; default 0s", notNegative(&to.hold))
		},
		"goroutines": func(n string) {
			to.goroutines = 8
			fs.Func(n, "`NUMBER` of goroutines that lock at the same time; default 8", number(&to.goroutines))
		},
		"clients": func(n string) {
			to.clients = 1
			fs.Func(n, "spread the goroutines over `NUMBER` clients, each with connections of its\nown, as so many processes would be; default 1", number(&to.clients))
		},
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

func number(to *int) func(string) error {
	return func(text string) error {
		n, err := strconv.Atoi(text)
		switch {
		case errors.Is(err, strconv.ErrRange) || err == nil && n > mostGoroutines:
			return fmt.Errorf("more than %d", mostGoroutines)
		case err != nil:
			return errors.New("not a whole number")
		case n <= 0:
			return errors.New("not above zero")
		}
		*to = n
		return nil
	}
}

// check refuses what no store need be asked for.
func (s benchSettings) check(in invocation) error {
	if s.clients > s.goroutines {
		return fmt.Errorf("--clients %d is more than --goroutines %d: some would have nothing to do", s.clients, s.goroutines)
	}
	_, err := locker.NewRequest(benchPrefix, in.options()...)
	return err
}
