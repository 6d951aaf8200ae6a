package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/contract"
	"github.com/lockstile/locker/open"
)

// handleVariable keeps a handle out of the list of processes.
const handleVariable = "LOCKER_HANDLE"

// byHandle is a command on the lock that a handle stands for.
type byHandle struct {
	*backend
	file   string
	handle locker.Handle
	lock   contract.Detached
}

func handleFileFlag(usage string, to *string) cli.Flag {
	return &cli.StringFlag{Name: "handle-file", Usage: usage, Destination: to}
}

func (c *byHandle) fileFlag() cli.Flag {
	return handleFileFlag("take the handle from `FILE`; default: from HANDLE, which everybody on the machine can read,\n\tfrom standard input (-), or from $LOCKER_HANDLE", &c.file)
}

func (c *byHandle) accept(args []string) error {
	words, err := atMost(1, args)
	if err != nil {
		return errors.New("there are too many arguments: HANDLE is one") // an error shows no handle
	}
	text, err := c.text(words)
	if err != nil {
		return err
	}
	if c.lock, err = contract.ParseHandle(text); err != nil {
		return err
	}
	c.handle = locker.Handle(text)
	return c.check()
}

// text finds the handle.
func (c *byHandle) text(words []string) (string, error) {
	env, set := os.LookupEnv(handleVariable)
	switch {
	case len(words) > 0 && c.file != "":
		return "", errors.New("HANDLE and --handle-file exclude each other")
	case len(words) > 0 && words[0] == "-":
		return readSome(os.Stdin)
	case len(words) > 0:
		return words[0], nil
	case c.file != "":
		f, err := os.Open(c.file)
		if err != nil {
			return "", err
		}
		defer f.Close()
		return readSome(f)
	case set:
		return env, nil
	}
	return "", errors.New("HANDLE is missing: name a --handle-file, write - for standard input, or set " + handleVariable)
}

// readSome reads what may be a handle, and not for ever.
func readSome(r io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(r, 1<<14))
	return string(text), err
}

// renewCommand renews the lock of a handle.
type renewCommand struct {
	byHandle
	ttl  time.Duration // 0: that of the handle
	json bool
}

func newRenew(b *backend) *renewCommand { return &renewCommand{byHandle: byHandle{backend: b}} }

func (c *renewCommand) flags() []cli.Flag {
	return []cli.Flag{
		durationFlag("ttl", "the lock ends after another `DURATION`; default: that of \"locker lock\"", &c.ttl),
		c.fileFlag(), jsonFlag(&c.json),
	}
}

func (c *renewCommand) do() (int, error) {
	if c.ttl == 0 {
		c.ttl = c.lock.TTL
	}
	return c.ask(func(ctx context.Context, store open.Backend) error {
		end := time.Now().Add(c.ttl)
		err := locker.RenewHandle(ctx, store, c.handle, locker.WithTTL(c.ttl))
		if err == nil && c.json {
			_, err = answerJSON(struct {
				Name string    `json:"name"`
				End  time.Time `json:"end"`
			}{c.lock.Name, end.UTC().Truncate(time.Second)})
		}
		return err
	})
}
