// Package zkclient makes the zk client's calls end with a context, and holds what
// else the packages on ZooKeeper share.
package zkclient

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker/internal/async"
)

// mostCalls bounds the calls of the zk client under way at once. A server answers the
// requests of a connection one after the other, so what is sent there also delays the
// renewals behind it: with many of them, a slow server would seem a silent one. And calls
// take no context, so one whose caller has left goes on until the client gives it up:
// callers that try again while a server hangs would pile up goroutines.
const mostCalls = 32

// Client is a zk client whose calls can be left.
type Client struct {
	*zk.Conn
	acl   []zk.ACL
	calls chan struct{} // one for each call under way

	made  time.Time
	heard atomic.Int64 // when the servers last answered: a [time.Duration] after made
}

// New returns a Client on conn that makes nodes with acl.
func New(conn *zk.Conn, acl []zk.ACL) *Client {
	return &Client{Conn: conn, acl: acl, calls: make(chan struct{}, mostCalls), made: time.Now()}
}

// Async starts a call of the zk client. While too many are under way it waits for one to
// end, or for ctx: then the call was not made.
func Async[T any](ctx context.Context, c *Client, f func() (T, error)) *async.Call[T] {
	select {
	case c.calls <- struct{}{}:
	case <-ctx.Done():
		return async.Failed[T](context.Cause(ctx))
	}
	return async.Start(func() (T, error) {
		defer func() { <-c.calls }()
		value, err := f()
		if err == nil || Refused(err) {
			c.heard.Store(int64(time.Since(c.made)))
		}
		return value, err
	})
}

// Heard returns when the servers last answered a call; before that, when c was made.
func (c *Client) Heard() time.Time { return c.made.Add(time.Duration(c.heard.Load())) }

// Call is Async, and waits for the reply, or for the end of ctx: then the call goes on and may
// still have its effect.
func Call[T any](ctx context.Context, c *Client, f func() (T, error)) (T, error) {
	v, err := Async(ctx, c, f).Wait(ctx)
	return v, explain(err)
}

// Act is Call for what has no result.
func Act(ctx context.Context, c *Client, f func() error) error {
	_, err := Call(ctx, c, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// Remove deletes a node, whatever its version.
func (c *Client) Remove(ctx context.Context, path string) error {
	return Act(ctx, c, func() error { return c.Delete(path, -1) })
}

// Multi runs operations in one transaction. After an error, failed is the index of the
// one that the server refused: then none was carried out. If it is -1, they may have been.
func (c *Client) Multi(ctx context.Context, ops ...any) (results []zk.MultiResponse, failed int, err error) {
	results, err = Call(ctx, c, func() ([]zk.MultiResponse, error) { return c.Conn.Multi(ops...) })
	failed, err = Failed(results, err)
	return results, failed, err
}

// Failed returns the index of the operation that the server refused, and its
// error; -1 if it refused none.
func Failed(results []zk.MultiResponse, err error) (int, error) {
	if err == nil {
		return -1, nil
	}
	for i, r := range results {
		if r.Error != nil {
			return i, explain(r.Error)
		}
	}
	return -1, explain(err)
}

// explain says what "not authenticated" mostly means: the servers accept any password, and
// compare it with the one under which the node was made.
func explain(err error) error {
	if err == zk.ErrNoAuth { //nolint:errorlint // what is wrapped has been explained
		return fmt.Errorf("%w for this node: its ACL is that of the user, or of nobody, under whom it was made", err)
	}
	return err
}

// Refused reports whether err is a server's answer that nothing was done. Any other error
// leaves open whether it was.
func Refused(err error) bool {
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

// WithParents calls create, and again after it has made the parents of path if they were
// missing. The server may remove an empty one at any moment, so that may happen more than
// once.
func (c *Client) WithParents(ctx context.Context, path string, create func() error) error {
	var err error
	for range 5 {
		if err = create(); !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		if err := c.makeParents(ctx, path); err != nil {
			return err
		}
	}
	return err
}

// makeParents makes the missing parents of path, as containers: the server
// removes them when their last child has gone, so names leave no trace.
func (c *Client) makeParents(ctx context.Context, path string) error {
	parent := path[:strings.LastIndexByte(path, '/')]
	if parent == "" {
		return nil
	}
	err := c.WithParents(ctx, parent, func() error {
		return Act(ctx, c, func() error {
			_, err := c.CreateContainer(parent, nil, zk.FlagContainer, c.acl)
			return err
		})
	})
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return fmt.Errorf("making %q: %w", parent, err)
	}
	return nil
}
