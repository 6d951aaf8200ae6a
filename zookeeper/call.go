package zookeeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
)

// mostCalls bounds the calls of the zk client under way at once. They take no
// context, so a call whose caller has left goes on until the client gives it up:
// without a bound, callers that try again while a server hangs would pile up
// goroutines.
const mostCalls = 512

// reply is how a call ended.
type reply[T any] struct {
	value T
	err   error
}

// async starts a call of the zk client.
func async[T any](ctx context.Context, l *Locker, f func() (T, error)) <-chan reply[T] {
	done := make(chan reply[T], 1)
	select {
	case l.calls <- struct{}{}:
	case <-ctx.Done():
		done <- reply[T]{err: context.Cause(ctx)}
		return done
	}
	go func() {
		defer func() { <-l.calls }()
		value, err := f()
		done <- reply[T]{value, err}
	}()
	return done
}

// await returns a call's reply, or the cause of ctx's end: then the call goes on
// and may still have its effect.
func await[T any](ctx context.Context, done <-chan reply[T]) (T, error) {
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	var none T
	return none, context.Cause(ctx)
}

// call is async and await in one.
func call[T any](ctx context.Context, l *Locker, f func() (T, error)) (T, error) {
	return await(ctx, async(ctx, l, f))
}

// act is call for what has no result.
func act(ctx context.Context, l *Locker, f func() error) error {
	_, err := call(ctx, l, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// multi runs operations in one transaction. After an error, failed is the index
// of the one that the server refused, or -1 if it answered nothing.
func (l *Locker) multi(ctx context.Context, ops ...any) (results []zk.MultiResponse, failed int, err error) {
	results, err = call(ctx, l, func() ([]zk.MultiResponse, error) { return l.conn.Multi(ops...) })
	if err == nil {
		return results, -1, nil
	}
	for i, r := range results {
		if r.Error != nil {
			return nil, i, r.Error
		}
	}
	return nil, -1, err
}

// refused reports whether err is the server's answer that nothing was done, as
// opposed to silence.
func refused(err error) bool {
	for _, e := range []error{
		zk.ErrNoNode, zk.ErrNoAuth, zk.ErrBadVersion, zk.ErrNodeExists, zk.ErrNotEmpty,
		zk.ErrInvalidACL, zk.ErrAuthFailed, zk.ErrBadArguments, zk.ErrInvalidPath,
		zk.ErrNoChildrenForEphemerals,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// unavailable says that the store did not answer, or refused.
func unavailable(err error) error { return fmt.Errorf("%w: %w", locker.ErrUnavailable, err) }
