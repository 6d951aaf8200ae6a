package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

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

	seen map[string]locker.Info // by name, without the time left
}

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
func (c *listCommand) do() error { return c.ask(c.lookAll) }

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
	first := c.seen == nil
	news := c.news(infos)
	if c.json {
		return printJSON(news)
	}
	return printTable(news, first)
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

func printJSON(infos []locker.Info) error {
	for _, info := range infos {
		line := infoJSON(info)
		if !info.Held {
			line.Waiters = nil // it is not listed, so nobody has counted
		}
		if err := answerJSON(line); err != nil {
			return err
		}
	}
	return nil
}

// cells are the columns of a line, with quotes around what other people chose.
func cells(info locker.Info) []string {
	holder, token, left, waiters := "-", "-", "-", fmt.Sprint(info.Waiters)
	switch {
	case !info.Held:
		holder, waiters = "free", "-"
	case info.Kind == locker.KindShared:
		holder = fmt.Sprintf("shared by %d", len(info.Holders))
	case info.Kind == locker.KindSlots:
		holder = fmt.Sprintf("%d of %d slots", len(info.Holders), info.Slots)
	case info.Kept:
		holder = "nobody (minimum hold)"
	case info.Holder != "":
		holder = fmt.Sprintf("%q", info.Holder)
	}
	if info.Token != 0 {
		token = info.Token.String()
	}
	if info.TimeLeft > 0 {
		left = info.TimeLeft.Round(time.Millisecond).String()
	}
	return []string{fmt.Sprintf("%q", info.Name), holder, token, left, waiters}
}

// printTable prints a line for each of infos, below a header the first time.
func printTable(infos []locker.Info, first bool) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	if first {
		fmt.Fprintln(w, "NAME\tHOLDER\tTOKEN\tTIME LEFT\tWAITERS")
	}
	for _, info := range infos {
		fmt.Fprintln(w, strings.Join(cells(info), "\t"))
	}
	return output(w.Flush())
}
