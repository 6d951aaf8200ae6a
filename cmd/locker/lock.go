package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/async"
	"github.com/lockstile/locker/internal/contract"
	"github.com/lockstile/locker/open"
)

// detachedTTL is the TTL of a lock that nobody renews. It is long enough for most steps of a job.
const detachedTTL = 10 * time.Minute

// lockCommand locks, and hands out what stands for the lock.
type lockCommand struct {
	wanted
	file string
	json bool
}

func (c *lockCommand) flags() []cli.Flag {
	return append([]cli.Flag{
		durationFlag("ttl", "the lock ends after `DURATION`, unless \"locker renew\" renews it", &c.ttl, detachedTTL),
	}, append(c.wanted.flags(),
		handleFileFlag("write the handle to `FILE`, which nobody else can read, and print the token alone", &c.file),
		jsonFlag(&c.json),
	)...)
}

func (c *lockCommand) accept(args []string) error {
	name, err := c.oneName(args)
	c.names = []string{name}
	return cmp.Or(err, c.agree())
}

// canDetach returns an error if the locks of a store cannot be handed to another process.
func (c *wanted) canDetach(store open.Backend) error {
	if !c.detached || store.Guarantees().Detaches {
		return nil
	}
	return fmt.Errorf("lock: %w: the locks of %s end with the process that has taken them: -b file:DIR keeps them in files of this machine, "+
		"and \"locker backends\" says where else they can be handed on", errors.ErrUnsupported, c.kind())
}

func (c *lockCommand) do() error {
	const mark = " (detached)"
	host, _ := os.Hostname() // an empty one says nothing, and does no harm
	c.holder = cmp.Or(c.holder, fmt.Sprintf("locker lock on %.200s", host))
	if len(c.holder)+len(mark) <= locker.MaxHolder {
		c.holder += mark
	}
	signal.Ignore(syscall.SIGPIPE) // whoever was to read the handle may have gone: that is an error, after which the lock is given back
	signals := catch()
	h, status, err := c.get(signals)
	if h.store == nil {
		return exit{status, err}
	}
	return c.handOut(h, signals)
}

// handOut detaches the lock and prints its handle. If nobody gets the handle, or a signal comes before, the lock is given back.
func (c *lockCommand) handOut(h hold, signals <-chan os.Signal) error {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	token, end := h.lock.Token(), after(c.ttl)
	handle, err := h.lock.Detach(ctx)
	if err != nil {
		return exit{statusOf(err), errors.Join(err, h.giveBack())}
	}
	l := lockedJSON{h.lock.Name(), uint64(token), end, string(handle)}
	ended := until(signals, func(ctx context.Context) { err = async.Do(ctx, func() error { return c.print(ctx, l) }) }) // who reads may hang
	status := statusOf(err)
	if ended != nil {
		status, err = ended.status(), fmt.Errorf("the lock %q is given back: locker was %w", l.Name, ended)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), askTime) // the reader may have taken the other one
		defer cancel()
		err = errors.Join(err, locker.UnlockHandle(ctx, h.store, handle))
	}
	return exit{status, errors.Join(err, shut(h.store))}
}

// lockedJSON is a lock that was handed out, or renewed.
type lockedJSON struct {
	Name   string    `json:"name"`
	Token  uint64    `json:"token,omitempty,string"`
	End    time.Time `json:"end"` // by this machine's clock; the store frees the lock no earlier
	Handle string    `json:"handle,omitempty"`
}

// after is when a lock ends at the earliest whose TTL is counted from a request that is yet to be sent.
func after(ttl time.Duration) time.Time { return time.Now().Add(ttl).UTC().Truncate(time.Second) }

// print writes the file last: it may have the handle of another lock, which is lost with that. So it does not write it when ctx has ended meanwhile.
func (c *lockCommand) print(ctx context.Context, l lockedJSON) error {
	handle, text := l.Handle, l.Handle
	if c.file != "" {
		l.Handle, text = "", fmt.Sprint(l.Token)
	}
	err := cmp.Or(tell(c.json, l, text+"\n"), context.Cause(ctx))
	if err == nil && c.file != "" {
		if err = writeSecret(c.file, handle); err != nil {
			err = output(fmt.Errorf("the handle: %w", err))
		}
	}
	return err
}

// writeSecret writes a file that only its owner can read, whole or not at all. A pipe, or a device, it writes to.
func writeSecret(file, text string) error {
	if real, err := filepath.EvalSymlinks(file); err == nil {
		file = real
	}
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(file, []byte(text+"\n"), 0o600)
	}
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*") // of mode 0600
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error that matters is known
	}
	return err
}

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
	return &cli.StringFlag{Name: "handle-file", Usage: usage, Destination: to, Validator: func(file string) error {
		if file == "" {
			return errors.New("it is empty: is a variable not set?")
		}
		return nil
	}}
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

// explain says what an error means for somebody who knows no more than the handle.
func (c *byHandle) explain(err error) error {
	switch {
	case errors.Is(err, locker.ErrLost):
		return fmt.Errorf("%w: it has ended, or was unlocked, resumed or broken; or -b or LOCKER_BACKEND names another store than that of \"locker lock\"", err)
	case errors.Is(err, errors.ErrUnsupported):
		return fmt.Errorf("%w: name the store of \"locker lock\" with -b or LOCKER_BACKEND", err)
	}
	return err
}

// text finds the handle.
func (c *byHandle) text(words []string) (string, error) {
	from := os.Stdin
	env, set := os.LookupEnv(handleVariable)
	switch {
	case len(words) > 0 && c.file != "":
		return "", errors.New("HANDLE and --handle-file exclude each other")
	case len(words) > 0 && words[0] != "-":
		return words[0], nil
	case c.file != "":
		f, err := os.Open(c.file)
		if err != nil {
			return "", err
		}
		defer f.Close()
		from = f
	case len(words) == 0 && set:
		return env, nil
	case len(words) == 0:
		return "", errors.New("HANDLE is missing: name a --handle-file, write - for standard input, or set " + handleVariable)
	}
	text, err := io.ReadAll(io.LimitReader(from, 1<<14)) // and not for ever
	return string(text), err
}

// renewCommand renews the lock of a handle.
type renewCommand struct {
	byHandle
	ttl  time.Duration // 0: that of the handle
	json bool
}

func (c *renewCommand) flags() []cli.Flag {
	return []cli.Flag{
		durationFlag("ttl", "the lock lasts for another `DURATION` at least; default: that of \"locker lock\"", &c.ttl, 0),
		c.fileFlag(), jsonFlag(&c.json),
	}
}

func (c *renewCommand) do() error {
	if c.ttl == 0 {
		c.ttl = c.lock.TTL
	}
	return c.ask(func(ctx context.Context, store open.Backend) error {
		end := after(c.ttl)
		err := c.explain(locker.RenewHandle(ctx, store, c.handle, locker.WithTTL(c.ttl)))
		if err == nil && c.json {
			err = answerJSON(lockedJSON{Name: c.lock.Name, End: end})
		}
		return err
	})
}
