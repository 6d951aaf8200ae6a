package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/open"
)

var inspectCommand = command{
	name:  "inspect",
	form:  "NAME",
	about: "show who holds a lock, its token, and how many wait",
	more: `
It changes nothing, and may be wrong by the time you read it. The exit status is
0 whether the lock is held or free.
`,
	takes: takesName,
	flags: []string{"b", "json"},
	do:    inspect,
}

func inspect(in invocation) (int, error) {
	return withBackend(in, func(ctx context.Context, b open.Backend) error {
		info, err := b.Inspect(ctx, in.name)
		if err != nil {
			return err
		}
		if in.json {
			return printJSON(info)
		}
		return printInfo(info)
	})
}

func printJSON(info locker.Info) error {
	return json.NewEncoder(os.Stdout).Encode(struct {
		Name     string  `json:"name"`
		Held     bool    `json:"held"`
		Holder   string  `json:"holder,omitempty"`
		Token    uint64  `json:"token,omitempty"`
		TimeLeft float64 `json:"seconds_left,omitempty"`
		Waiters  int     `json:"waiters"`
	}{info.Name, info.Held, info.Holder, uint64(info.Token), info.TimeLeft.Seconds(), info.Waiters})
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
	return w.Flush()
}
