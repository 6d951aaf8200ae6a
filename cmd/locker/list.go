package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/open"
)

// lookEvery is how often --watch looks: as often as watch(1) does.
const lookEvery = 2 * time.Second

type listCommand struct {
	*backend
	prefix      string
	json, watch bool

	seen   map[string]locker.Info // by name, without the time left
	widths []int                  // of the columns so far
}

func newList(b *backend) *listCommand { return &listCommand{backend: b} }

func (c *listCommand) flags() []cli.Flag {
	return []cli.Flag{jsonFlag(&c.json), boolFlag("watch", "go on, and print what changes", &c.watch)}
}

func (c *listCommand) accept(args []string) error {
	words, err := atMost(1, args)
	if err != nil {
		return err
	}
	c.prefix = strings.Join(words, "")
	return c.check()
}

// do looks once, or until there is an error. A signal ends the process as if nobody
// cared, so that a shell sees the signal.
func (c *listCommand) do() (int, error) {
	return c.ask(c.lookAll)
}

// lookAll looks once, within ctx, or goes on looking. Each further look has a time of its own.
func (c *listCommand) lookAll(ctx context.Context, store open.Backend) error {
	err := c.look(ctx, store)
	for silent := false; c.watch && (err == nil || c.seen != nil && errors.Is(err, locker.ErrUnavailable)); {
		if err != nil && !silent {
			complain(fmt.Errorf("looking again every %v: %w", lookEvery, err))
		}
		silent = err != nil
		time.Sleep(lookEvery)
		ctx, cancel := context.WithTimeout(context.Background(), askTime)
		err = c.look(ctx, store)
		cancel()
	}
	return err
}

// look asks the store which locks are held, and prints what is new.
func (c *listCommand) look(ctx context.Context, store open.Backend) error {
	infos, err := store.List(ctx, c.prefix)
	if err != nil {
		return err
	}
	news := c.news(infos)
	if c.json {
		return printJSON(news)
	}
	return c.printTable(news)
}

// timeless is info without the times left, which change all the time.
func timeless(info locker.Info) locker.Info {
	info.TimeLeft, info.Holders = 0, slices.Clone(info.Holders)
	for i := range info.Holders {
		info.Holders[i].TimeLeft = 0
	}
	return info
}

// news returns what is not as it was when news was called before, in the order of
// names: of a lock that is free by now, its last token.
func (c *listCommand) news(infos []locker.Info) []locker.Info {
	var news []locker.Info
	now := make(map[string]locker.Info)
	for _, info := range infos {
		bare := timeless(info)
		if !reflect.DeepEqual(c.seen[info.Name], bare) {
			news = append(news, info)
		}
		now[info.Name] = bare
	}
	for name, old := range c.seen {
		if !now[name].Held {
			news = append(news, locker.Info{Name: name, Token: old.Token})
		}
	}
	c.seen = now
	slices.SortFunc(news, func(a, b locker.Info) int { return strings.Compare(a.Name, b.Name) })
	return news
}

func printJSON(infos []locker.Info) (err error) {
	for _, info := range infos {
		line := infoJSON(info)
		if !info.Held {
			line.Waiters = nil // it is not listed, so nobody has counted
		}
		if _, err = answerJSON(line); err != nil {
			break
		}
	}
	return err
}

var header = []string{"NAME", "HOLDER", "TOKEN", "TIME LEFT", "WAITERS"}

// cells are the columns of a line, with quotes around what other people chose.
func cells(info locker.Info) []string {
	row := []string{fmt.Sprintf("%q", info.Name), "free", "-", "-", "-"}
	if info.Held {
		row[1], row[4] = "-", fmt.Sprint(info.Waiters)
	}
	switch {
	case info.Held && info.Kind == locker.KindShared:
		row[1] = fmt.Sprintf("shared by %d", len(info.Holders))
	case info.Held && info.Kind == locker.KindSlots:
		row[1] = fmt.Sprintf("%d of %d slots", len(info.Holders), info.Slots)
	case info.Kept:
		row[1] = "nobody (minimum hold)"
	case info.Holder != "":
		row[1] = fmt.Sprintf("%q", info.Holder)
	}
	if info.Token != 0 {
		row[2] = info.Token.String()
	}
	if info.TimeLeft > 0 {
		row[3] = info.TimeLeft.Round(time.Millisecond).String()
	}
	return row
}

// printTable prints a line for each of infos, below the header the first time. Columns
// stay as wide as they have once been.
func (c *listCommand) printTable(infos []locker.Info) error {
	var rows [][]string
	if c.widths == nil {
		c.widths = make([]int, len(header))
		rows = append(rows, header)
	}
	for _, info := range infos {
		rows = append(rows, cells(info))
	}
	for _, row := range rows {
		for i, cell := range row {
			c.widths[i] = max(c.widths[i], utf8.RuneCountInString(cell))
		}
	}
	var text strings.Builder
	for _, row := range rows {
		for i, cell := range row[:len(row)-1] {
			fmt.Fprintf(&text, "%-*s  ", c.widths[i], cell)
		}
		text.WriteString(row[len(row)-1] + "\n")
	}
	_, err := answer(text.String())
	return err
}
