package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/lockstile/locker"
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

func newLock(b *backend) *lockCommand {
	return &lockCommand{wanted: wanted{backend: b, detached: true}}
}

func (c *lockCommand) flags() []cli.Flag {
	ttl := durationFlag("ttl", "the lock ends after `DURATION`, unless \"locker renew\" renews it", &c.ttl)
	ttl.Value, ttl.HideDefault = detachedTTL, false
	return append([]cli.Flag{ttl}, append(c.wanted.flags(),
		handleFileFlag("write the handle to `FILE`, which nobody else can read, and print the token alone", &c.file),
		jsonFlag(&c.json))...)
}

func (c *lockCommand) accept(args []string) (err error) {
	c.names, err = atMost(1, args)
	switch {
	case err != nil:
		return err
	case len(c.names) == 0:
		return errors.New("NAME is missing")
	}
	return c.agree()
}

// canDetach returns an error if the locks of a store cannot be handed to another process.
func (c *wanted) canDetach(store open.Backend) error {
	if !c.detached || store.Guarantees().Detaches {
		return nil
	}
	return fmt.Errorf("lock: %w: the locks of %s end with the process that has taken them: -b file:DIR keeps them in files of this machine, "+
		"and \"locker backends\" says where else they can be handed on", errors.ErrUnsupported, c.kind())
}

func (c *lockCommand) do() (int, error) {
	host, _ := os.Hostname() // an empty one says nothing, and does no harm
	if c.holder == "" {
		c.holder = fmt.Sprintf("locker lock on %.200s", host)
	}
	c.holder += " (detached)"
	signal.Ignore(syscall.SIGPIPE) // whoever was to read the handle may have gone: that is an error, after which the lock is given back
	h, status, err := c.get(catch())
	if h.store == nil {
		return status, err
	}
	return c.handOut(h)
}

// handOut detaches the lock and prints its handle. If nobody gets the handle, the lock is given back.
func (c *lockCommand) handOut(h hold) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	token, end := h.lock.Token(), time.Now().Add(c.ttl)
	handle, err := h.lock.Detach(ctx)
	if err != nil {
		return statusOf(err), errors.Join(err, h.giveBack())
	}
	status, err := c.print(lockedJSON{h.lock.Name(), uint64(token), end.UTC().Truncate(time.Second), string(handle)})
	if err != nil {
		err = errors.Join(err, unlockDetached(ctx, h.store, handle, c.ttl))
	}
	return status, errors.Join(err, shut(h.store))
}

// lockedJSON is a lock that was handed out.
type lockedJSON struct {
	Name   string    `json:"name"`
	Token  uint64    `json:"token,string"`
	End    time.Time `json:"end"` // by this machine's clock; the store frees the lock no earlier
	Handle string    `json:"handle,omitempty"`
}

func (c *lockCommand) print(l lockedJSON) (int, error) {
	handle := l.Handle
	if c.file != "" {
		if err := writeSecret(c.file, handle); err != nil {
			return exitOutput, fmt.Errorf("%w: the handle: %w", errOutput, err)
		}
		l.Handle = ""
	}
	switch {
	case c.json:
		return answerJSON(l)
	case c.file != "":
		return answer(fmt.Sprintln(l.Token))
	}
	return answer(fmt.Sprintln(handle))
}

// writeSecret writes a file that only its owner can read, whole or not at all.
func writeSecret(file, text string) error {
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

// unlockDetached frees the lock that a handle stands for. If it cannot be unlocked once it was resumed, which uses the handle up, it is to
// end soon, and not after the TTL of the handle.
func unlockDetached(ctx context.Context, l locker.Locker, handle locker.Handle, ttl time.Duration) error {
	soon := locker.WithTTL(min(ttl, locker.DefaultTTL))
	lock, err := locker.Resume(ctx, l, handle, soon)
	for unknown, ok := errors.AsType[*locker.ResumeError](err); ok && ctx.Err() == nil; unknown, ok = errors.AsType[*locker.ResumeError](err) {
		lock, err = locker.Resume(ctx, l, unknown.Handle, soon)
	}
	if err != nil {
		return err
	}
	return lock.Unlock(ctx)
}
