package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/async"
	"github.com/lockstile/locker/internal/dial"
	"github.com/lockstile/locker/open"
)

// backend is where the locks are: the flag -b, or else the environment.
type backend struct {
	named string // a URL; "" if none is given, or an empty one
	asked *cli.StringFlag
	quiet bool
}

// flag is -b, which stands before the command or after it.
func (b *backend) flag() cli.Flag {
	b.asked = &cli.StringFlag{
		Name: "b", Destination: &b.named, HideDefault: true, Sources: cli.EnvVars("LOCKER_BACKEND"),
		Usage: "`URL` of the backend (see \"locker backends\"); default \"local:\". The variable keeps\n\ta password out of the list of processes",
	}
	return b.asked
}

func (b *backend) accept(args []string) error {
	if _, err := atMost(0, args); err != nil {
		return err
	}
	return b.check()
}

// oneName takes the NAME of a command on one lock of the store.
func (b *backend) oneName(args []string) (string, error) {
	words, err := atMost(1, args)
	switch {
	case err != nil:
		return "", err
	case len(words) == 0:
		return "", errors.New("NAME is missing")
	}
	return words[0], cmp.Or(locker.CheckName(words[0]), b.check())
}

// check refuses what is empty: it mostly comes from a variable that is not set, and the default would be
// another store than the one that was meant.
func (b *backend) check() error {
	switch {
	case b.asked.Count() > 1:
		return errors.New("-b is given more than once: a lock is in one store")
	case b.asked.IsSet() && b.named == "":
		return errors.New("-b or LOCKER_BACKEND is empty, which would mean another store than the one that was meant: " +
			"unset the variable, or name a backend (\"local:\" is the default)")
	}
	return nil
}

func (b *backend) url() string { return cmp.Or(b.named, "local:") }

// connect opens the backend.
func (b *backend) connect(ctx context.Context) (open.Backend, error) {
	store, err := open.URL(ctx, b.url())
	if here, ok := store.(*dial.Local); ok && here.ByDefault {
		b.firstUse(here.Dir)
	}
	return store, b.advise(err)
}

// firstUse says whose the default directory is while no lock was ever taken there: somebody who meets nobody there
// may have meant another one's.
func (b *backend) firstUse(dir string) {
	files, err := os.Open(dir)
	if err != nil {
		return
	}
	defer files.Close()
	if _, err := files.Readdirnames(1); errors.Is(err, io.EOF) {
		b.remark("locks are in %s, which is this user's alone: other users, root too, have a directory of their own, "+
			"unless all name one (-b local:DIR)", dir)
	}
}

// remark tells what goes on.
func (b *backend) remark(format string, args ...any) {
	if !b.quiet {
		complain(fmt.Errorf(format, args...))
	}
}

// kind is the scheme of the URL, which has no password in it.
func (b *backend) kind() string {
	scheme, _, _ := strings.Cut(b.url(), ":")
	return scheme + ":"
}

// advise adds to an error of package open what the command line can do about it:
// nothing, if the store is named and does not serve.
func (b *backend) advise(err error) error {
	switch {
	case err == nil:
		return nil
	case b.named == "":
		return fmt.Errorf("%w; or choose a backend with -b or LOCKER_BACKEND: none is set", err)
	case errors.Is(err, locker.ErrUnavailable):
		return err
	}
	return fmt.Errorf("%w; check -b or LOCKER_BACKEND", err)
}

// askTime bounds what a command waits for that asks the store one thing.
const askTime = 10 * time.Second

// ask calls f, which asks the store one thing.
func (b *backend) ask(f func(ctx context.Context, store open.Backend) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	store, err := b.connect(ctx)
	if err != nil {
		return err
	}
	return cmp.Or(f(ctx, store), shut(store))
}

// partingTime bounds what a store that hangs can hold up at the end.
const partingTime = 3 * time.Second

// shut closes a backend on which no lock is held.
func shut(store open.Backend) error {
	ctx, cancel := context.WithTimeout(context.Background(), partingTime)
	defer cancel()
	return closeWithin(ctx, store)
}

// closeWithin closes a backend, or leaves it to the end of the process where ctx
// ends before.
func closeWithin(ctx context.Context, store open.Backend) error {
	err := async.Do(ctx, store.Close)
	if ctx.Err() != nil {
		err = nil // the process ends, and with it what is open
	}
	return err
}
