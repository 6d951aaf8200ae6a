package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/open"
)

const inspectHelp = `
inspect changes nothing. What it shows may be out of date by the time you read
it. The exit status is 0 whether the lock is held or free. In JSON the token is a
string: it may be greater than 2^53, and many programs read numbers inexactly
from there on.
`

type inspectCommand struct {
	oneLock
	json bool
}

func (c *inspectCommand) flags(fs flagSet) {
	c.oneLock.flags(fs)
	fs.json(&c.json)
}

func (c *inspectCommand) do() (int, error) {
	return c.ask(func(ctx context.Context, store open.Backend) error {
		info, err := store.Inspect(ctx, c.name)
		if err != nil {
			return err
		}
		if c.json {
			_, err = answerJSON(infoJSON(info))
			return err
		}
		return printInfo(info)
	})
}

// lockJSON is a lock as JSON has it. What is not known is left out.
type lockJSON struct {
	Name     string  `json:"name"`
	Held     bool    `json:"held"`
	Holder   string  `json:"holder,omitempty"`
	Token    uint64  `json:"token,omitempty,string"` // a JavaScript number is exact up to 2^53 only
	TimeLeft float64 `json:"seconds_left,omitempty"`
	Waiters  *int    `json:"waiters,omitempty"`
}

func infoJSON(info locker.Info) lockJSON {
	return lockJSON{info.Name, info.Held, info.Holder, uint64(info.Token), info.TimeLeft.Seconds(), &info.Waiters}
}

// printInfo quotes what other people chose: it may hold anything.
func printInfo(info locker.Info) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "name:\t%q\n", info.Name)
	switch {
	case !info.Held:
		fmt.Fprintf(w, "held:\tno\n")
	case info.Holder == "":
		fmt.Fprintf(w, "held:\tyes\nholder:\tunknown\n")
	default:
		fmt.Fprintf(w, "held:\tyes\nholder:\t%q\n", info.Holder)
	}
	switch {
	case info.Token == 0:
	case info.Held:
		fmt.Fprintf(w, "token:\t%d\n", info.Token)
	default:
		fmt.Fprintf(w, "last token:\t%d\n", info.Token)
	}
	if info.TimeLeft > 0 {
		fmt.Fprintf(w, "time left:\t%v\n", info.TimeLeft.Round(time.Millisecond))
	}
	fmt.Fprintf(w, "waiters:\t%d\n", info.Waiters)
	_, err := output(w.Flush())
	return err
}
