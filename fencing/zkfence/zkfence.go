// Package zkfence guards data in ZooKeeper: a write is refused if its fencing
// token is smaller than the greatest that its resource has seen.
//
// # What is promised
//
// Check and write are one transaction, which compares the version of a node that
// keeps the greatest token of the resource, so nothing comes between them. The node
// lies at base/resource and is never removed: a guard that forgot the token would
// accept smaller ones.
//
// # What is not
//
// Only writes that go through the [Guard] are refused, and only the token of the
// resource that [Guard.Write] is given is compared, no matter which nodes its operations
// write. Operations at or below the guard's base are refused; a client that writes
// there by itself can undo the guard. If a reply is lost, the write may have happened,
// and is not tried again.
package zkfence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/zkclient"
)

// DefaultBase is where the guard's nodes are without Options.Base.
const DefaultBase = "/lockstile-fences"

// mostRounds bounds how often one write is tried again because another one with the
// same token has come first.
const mostRounds = 100

// mostResource is the longest name of a resource, in bytes, as for names of locks.
const mostResource = 512

// Options are a Guard's settings. The zero value is ready to use.
type Options struct {
	// Base is the node below which the tokens are kept. The default is
	// DefaultBase. It must not be the base of locks.
	Base string

	// ACL is what nodes are made with. A client that may write to them can undo
	// the guard. The default is zk.WorldACL(zk.PermAll).
	ACL []zk.ACL
}

// Guard is a [fencing.Guard] on ZooKeeper. A resource is any name on which
// writers agree, of 1 to 512 bytes of UTF-8.
type Guard struct {
	zk   *zkclient.Client
	base string
	acl  []zk.ACL
}

var _ fencing.Guard = (*Guard)(nil)

// NewGuard returns a Guard on conn, which it never closes.
func NewGuard(conn *zk.Conn, opts Options) (*Guard, error) {
	if conn == nil {
		return nil, errors.New("zkfence: the connection is nil")
	}
	if opts.Base == "" {
		opts.Base = DefaultBase
	}
	if len(opts.ACL) == 0 {
		opts.ACL = zk.WorldACL(zk.PermAll)
	}
	if err := zkclient.CheckBase(opts.Base); err != nil {
		return nil, fmt.Errorf("zkfence: %w", err)
	}
	return &Guard{zkclient.New(conn, opts.ACL), opts.Base, opts.ACL}, nil
}

// Check implements [fencing.Guard], in two round trips.
func (g *Guard) Check(ctx context.Context, resource string, token fencing.Token) error {
	if _, err := g.run(ctx, resource, token, nil); err != nil {
		return fmt.Errorf("zkfence: check %.100q: %w", resource, err)
	}
	return nil
}

// Write runs ops, each a *zk.CreateRequest, *zk.DeleteRequest,
// *zk.SetDataRequest or *zk.CheckVersionRequest, in one transaction with the
// check of the token, and returns their results. After a [fencing.ErrStale], and after
// an error of the server's about one of ops, nothing has happened, and the token is not
// remembered. After zk.ErrConnectionClosed, or when ctx ends, it may have happened.
//
// Operations that write at or below the guard's base are refused. A transaction must be
// smaller than the servers' jute.maxbuffer (1 MB): they cut the connection on a larger
// one, and every lock that depends on it is lost.
func (g *Guard) Write(ctx context.Context, resource string, token fencing.Token, ops ...any) ([]zk.MultiResponse, error) {
	if slices.ContainsFunc(ops, g.reaches) { // it could change what was seen of another resource
		return nil, fmt.Errorf("zkfence: write %.100q: the nodes at and below %q are the guard's own", resource, g.base)
	}
	results, err := g.run(ctx, resource, token, ops)
	if err != nil {
		return nil, fmt.Errorf("zkfence: write %.100q: %w", resource, err)
	}
	return results, nil
}

// reaches reports whether an operation writes the guard's own nodes.
func (g *Guard) reaches(op any) bool {
	var path string
	switch op := op.(type) {
	case *zk.CreateRequest:
		path = op.Path
	case *zk.SetDataRequest:
		path = op.Path
	case *zk.DeleteRequest:
		path = op.Path
	}
	return path == g.base || strings.HasPrefix(path, g.base+"/")
}

// run reads the token and sends the transaction, again and again until no other write
// comes between the two.
func (g *Guard) run(ctx context.Context, resource string, token fencing.Token, ops []any) ([]zk.MultiResponse, error) {
	switch err := checkResource(resource); {
	case err != nil:
		return nil, err
	case token == 0:
		return nil, fencing.ErrZeroToken
	}
	path := g.base + "/" + zkclient.Escape(resource)
	for range mostRounds {
		check, err := g.check(ctx, resource, path, token)
		if err != nil {
			return nil, err
		}
		results, failed, err := g.try(ctx, path, append([]any{check}, ops...))
		switch {
		case err == nil:
			return results[1:], nil
		case failed != 0:
			return nil, err
		case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrNoNode):
			// another write came between
		default:
			return nil, err
		}
	}
	return nil, fmt.Errorf("%d other writers were faster", mostRounds)
}

// checkResource refuses names that make no path: one that is too long would cost the
// connection, and every lock that depends on it.
func checkResource(resource string) error {
	switch {
	case resource == "":
		return errors.New("the resource has no name")
	case len(resource) > mostResource:
		return fmt.Errorf("the resource's name has %d bytes, the limit is %d", len(resource), mostResource)
	case !utf8.ValidString(resource):
		return errors.New("the resource's name is not valid UTF-8")
	}
	return nil
}

// try runs the transaction. The base is made where it is missing.
func (g *Guard) try(ctx context.Context, path string, ops []any) (results []zk.MultiResponse, failed int, err error) {
	made := g.zk.WithParents(ctx, path, func() error {
		results, failed, err = g.zk.Multi(ctx, ops...)
		if _, first := ops[0].(*zk.CreateRequest); first && failed == 0 {
			return err
		}
		return nil // the caller's own operations fail for reasons of their own: our node's parent is there
	})
	if err == nil || made == nil {
		return results, failed, err
	}
	return nil, failed, made
}

// check returns the operation that fails unless token may write. The node that it reads
// may be out of date, for the transaction compares the version. A token that is stale
// by an old reading is stale, for the greatest token only grows.
func (g *Guard) check(ctx context.Context, resource, path string, token fencing.Token) (any, error) {
	type node struct {
		data []byte
		stat *zk.Stat
	}
	n, err := zkclient.Call(ctx, g.zk, func() (node, error) {
		data, stat, err := g.zk.Get(path)
		return node{data, stat}, err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return &zk.CreateRequest{Path: path, Data: []byte(token.String()), Acl: g.acl}, nil
	case err != nil:
		return nil, err
	}
	return condition(resource, path, n.data, n.stat.Version, token)
}

// condition returns the operation for a node with this data and version. A version
// wraps, and the servers take -1 for any: with it, a transaction would go through though
// a greater token has come since.
func condition(resource, path string, data []byte, version int32, token fencing.Token) (any, error) {
	seen, err := strconv.ParseUint(string(data), 10, 64)
	switch {
	case err != nil:
		return nil, errors.New("its node does not hold a token: is the base used by somebody else?")
	case token < fencing.Token(seen):
		return nil, &fencing.StaleError{Resource: resource, Token: token, Seen: fencing.Token(seen)}
	case version == -1:
		return nil, fmt.Errorf("its node %s has been written 2^32 - 1 times, and the servers compare no such version: set it to the token it holds, by hand and while nobody writes", path)
	case token == fencing.Token(seen):
		return &zk.CheckVersionRequest{Path: path, Version: version}, nil
	}
	return &zk.SetDataRequest{Path: path, Data: []byte(token.String()), Version: version}, nil
}
