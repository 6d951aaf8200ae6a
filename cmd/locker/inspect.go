package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/open"
)

type inspectCommand struct {
	*backend
	inJSON
	name string
}

func (c *inspectCommand) accept(args []string) (err error) {
	c.name, err = c.oneName(args)
	return err
}

func (c *inspectCommand) do() error {
	return c.ask(func(ctx context.Context, store open.Backend) error {
		info, err := store.Inspect(ctx, c.name)
		if err != nil {
			return err
		}
		return tell(c.json, infoJSON(info), infoText(info))
	})
}

// lockJSON is a lock as JSON has it. What is not known is left out.
type lockJSON struct {
	Name  string `json:"name"`
	Held  bool   `json:"held"`
	Kept  bool   `json:"kept,omitempty"` // for the rest of a minimum hold, by nobody
	Kind  string `json:"kind,omitempty"`
	Slots int    `json:"slots,omitempty"`
	holderJSON
	Waiters *int         `json:"waiters,omitempty"`
	Holders []holderJSON `json:"holders,omitempty"` // of a lock that several can hold
}

// holderJSON is the only holder of a lock, or one of those who share it or have a slot.
type holderJSON struct {
	Holder   string  `json:"holder,omitempty"`
	Token    uint64  `json:"token,omitempty,string"` // a JavaScript number is exact up to 2^53 only
	Slot     *int    `json:"slot,omitempty"`
	TimeLeft float64 `json:"seconds_left,omitempty"`
}

func infoJSON(info locker.Info) lockJSON {
	line := lockJSON{Name: info.Name, Held: info.Held, Kept: info.Kept, Slots: info.Slots, Waiters: &info.Waiters}
	line.holderJSON = holderJSON{Holder: info.Holder, Token: uint64(info.Token), TimeLeft: info.TimeLeft.Seconds()}
	if info.Held {
		line.Kind = info.Kind.String()
	}
	if info.Kind != locker.KindExclusive {
		line.Holders = holdersJSON(info.Holders)
	}
	return line
}

func holdersJSON(holders []locker.Holder) (lines []holderJSON) {
	for _, h := range holders {
		one := holderJSON{Holder: h.Text, Token: uint64(h.Number), TimeLeft: h.TimeLeft.Seconds()}
		if h.Slot >= 0 {
			one.Slot = &h.Slot
		}
		lines = append(lines, one)
	}
	return lines
}

// infoText quotes what other people chose: it may hold anything.
func infoText(info locker.Info) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "name:\t%q\n", info.Name)
	switch {
	case !info.Held:
		fmt.Fprintf(w, "held:\tno\n")
	case info.Kind == locker.KindShared:
		fmt.Fprintf(w, "held:\tyes, shared by %d\n", len(info.Holders))
	case info.Kind == locker.KindSlots:
		fmt.Fprintf(w, "held:\tyes, %d of %d slots\n", len(info.Holders), info.Slots)
	case info.Kept:
		fmt.Fprintf(w, "held:\tyes, kept by nobody until %s (minimum hold)\nlast holder:\t%q\n", time.Now().Add(info.TimeLeft).Format(time.TimeOnly), info.Holder)
	case info.Holder == "":
		fmt.Fprintf(w, "held:\tyes\nholder:\tunknown\n")
	default:
		fmt.Fprintf(w, "held:\tyes\nholder:\t%q\n", info.Holder)
	}
	for _, h := range info.Holders {
		if info.Kind != locker.KindExclusive {
			fmt.Fprintf(w, "holder:\t%s\n", describe(h))
		}
	}
	last := "last "
	if info.Held && info.Kind == locker.KindExclusive {
		last = ""
	}
	if info.Token != 0 {
		fmt.Fprintf(w, "%stoken:\t%d\n", last, info.Token)
	}
	if info.TimeLeft > 0 && info.Kind == locker.KindExclusive {
		fmt.Fprintf(w, "time left:\t%v\n", info.TimeLeft.Round(time.Millisecond))
	}
	fmt.Fprintf(w, "waiters:\t%d\n", info.Waiters)
	_ = w.Flush() // to a buffer
	return text.String()
}

func describe(h locker.Holder) string {
	var s strings.Builder
	if h.Slot >= 0 {
		fmt.Fprintf(&s, "slot %d, ", h.Slot)
	}
	fmt.Fprintf(&s, "token %d, ", h.Number)
	if h.TimeLeft > 0 {
		fmt.Fprintf(&s, "time left %v, ", h.TimeLeft.Round(time.Millisecond))
	}
	if h.Text == "" {
		return s.String() + "unknown"
	}
	return s.String() + strconv.Quote(h.Text)
}
