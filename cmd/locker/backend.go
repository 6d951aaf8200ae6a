package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/open"
)

// silent is a log that nobody reads. The Redis client writes to stderr what it
// also returns as errors.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// connect opens the backend that the command line names.
func connect(ctx context.Context, in invocation) (open.Backend, error) {
	redis.SetLogger(silent{})
	b, err := open.URL(ctx, in.url())
	return b, in.advise(err)
}

// url is where the locks are.
func (in invocation) url() string {
	if in.backend == "" {
		return "local:"
	}
	return in.backend
}

// advise adds to an error of package open what the command line can do about it:
// nothing, if the store is named and does not serve.
func (in invocation) advise(err error) error {
	switch {
	case err == nil:
		return nil
	case in.backend == "":
		return fmt.Errorf("%w; or choose a backend with -b or LOCKER_BACKEND: none is set", err)
	case errors.Is(err, locker.ErrUnavailable):
		return err
	}
	return fmt.Errorf("%w; check -b or LOCKER_BACKEND", err)
}

// askTime bounds what a command waits for that asks the store one thing.
const askTime = 10 * time.Second

// withBackend calls f, which asks the store one thing.
func withBackend(in invocation, f func(ctx context.Context, b open.Backend) error) (status int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	b, err := connect(ctx, in)
	if err != nil {
		return statusOf(err), err
	}
	err = f(ctx, b)
	if cerr := shut(b); err == nil {
		err = cerr
	}
	return statusOf(err), err
}
