package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/open"
)

// silent is a log that nobody reads. The Redis client writes to stderr what it
// also returns as errors.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// connect opens the backend that the command line names.
func connect(ctx context.Context, in invocation) (open.Backend, error) {
	redis.SetLogger(silent{})
	url, advice := in.backend, "check -b or LOCKER_BACKEND"
	if url == "" {
		url, advice = "local:", "or choose a backend with -b or LOCKER_BACKEND: none is set"
	}
	b, err := open.URL(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, advice)
	}
	return b, nil
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
	if cerr := b.Close(); err == nil {
		err = cerr
	}
	return statusOf(err), err
}
