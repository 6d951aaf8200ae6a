// Package zkfence guards data in ZooKeeper: a write is refused if its fencing
// token is smaller than the greatest that its resource has seen. The locks may be in
// ZooKeeper or anywhere else.
//
//	guard, err := zkfence.NewGuard(conn, zkfence.Options{})
//	…
//	_, err = guard.Write(ctx, "account/7", lock.Token(), &zk.SetDataRequest{Path: "/account/7", Data: data, Version: -1})
//
// # What is promised
//
// Check and write are one transaction, which compares the version of a node that
// keeps the greatest token of the resource and the greatest number of its readers, so
// nothing comes between them. The node lies at base/resource and is never removed: a guard
// that forgot the tokens would accept smaller ones.
//
// A transaction of ZooKeeper that writes cannot read. So a reader calls CheckShared before
// it reads, and once more afterwards: if both accept its number, no later holder had
// written before it was done.
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
	"strings"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/zkclient"
)

// DefaultBase is where the guard's nodes are without Options.Base.
const DefaultBase = "/lockstile-fences"

// mostRounds bounds how often a check is tried again because another one has come first
// that did not make its token stale.
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

// Guard is a [fencing.SharedGuard] on ZooKeeper. A resource is any name on which
// writers agree, of 1 to 512 bytes of UTF-8.
type Guard struct {
	zk   *zkclient.Client
	base string
	acl  []zk.ACL
}

var _ fencing.SharedGuard = (*Guard)(nil)

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
	_, err := g.run(ctx, "check", fencing.StaleError{Resource: resource, Token: token}, nil)
	return err
}

// CheckShared implements [fencing.SharedGuard], in two round trips.
func (g *Guard) CheckShared(ctx context.Context, resource string, token fencing.SharedToken) error {
	_, err := g.run(ctx, "check", fencing.StaleError{Resource: resource, Token: fencing.Token(token), Reader: true}, nil)
	return err
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
	return g.run(ctx, "write", fencing.StaleError{Resource: resource, Token: token}, ops)
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

func (g *Guard) run(ctx context.Context, verb string, mine fencing.StaleError, ops []any) ([]zk.MultiResponse, error) {
	results, err := g.rounds(ctx, mine, ops)
	if err != nil {
		return nil, fmt.Errorf("zkfence: %s %.100q: %w", verb, mine.Resource, err)
	}
	return results, nil
}

// rounds reads the marks and sends the transaction, again and again until no other write
// comes between the two.
func (g *Guard) rounds(ctx context.Context, mine fencing.StaleError, ops []any) ([]zk.MultiResponse, error) {
	switch err := checkResource(mine.Resource); {
	case err != nil:
		return nil, err
	case mine.Token == 0:
		return nil, fencing.ErrZeroToken
	}
	path := g.base + "/" + zkclient.Escape(mine.Resource)
	for range mostRounds {
		check, err := g.check(ctx, path, mine)
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
	return nil, fmt.Errorf("%d others were faster", mostRounds)
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

// check returns the operation that fails if mine is stale. The node that it reads
// may be out of date, for the transaction compares the version. A token that is stale
// by an old reading is stale, for the marks only grow.
func (g *Guard) check(ctx context.Context, path string, mine fencing.StaleError) (any, error) {
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
		return &zk.CreateRequest{Path: path, Data: marks{}.with(mine).text(), Acl: g.acl}, nil
	case err != nil:
		return nil, err
	}
	return condition(path, n.data, n.stat.Version, mine)
}

// condition returns the operation for a node with this data and version. A version
// wraps, and the servers take -1 for any: with it, a transaction would go through though
// a greater token has come since.
func condition(path string, data []byte, version int32, mine fencing.StaleError) (any, error) {
	seen, err := parse(data)
	if err != nil {
		return nil, errors.New("its node does not hold a token: is the base used by somebody else?")
	}
	mine.Seen = seen.written
	if !mine.Reader {
		mine.Seen = max(seen.written, seen.read)
	}
	switch after := seen.with(mine); {
	case mine.Token < mine.Seen:
		return nil, &mine
	case version == -1:
		return nil, fmt.Errorf("its node %s has been written 2^32 - 1 times, and the servers compare no such version: set it to what it holds, by hand and while nobody writes", path)
	case after == seen:
		return &zk.CheckVersionRequest{Path: path, Version: version}, nil
	default:
		return &zk.SetDataRequest{Path: path, Data: after.text(), Version: version}, nil
	}
}

// marks are the greatest token that has written, and the greatest number that has read
// since.
type marks struct{ written, read fencing.Token }

// with returns the marks when one more has been accepted. A token that has written shuts out
// whatever an earlier reader's number would, for it was not smaller.
func (m marks) with(mine fencing.StaleError) marks {
	if mine.Reader {
		return marks{m.written, max(m.read, mine.Token)}
	}
	return marks{written: mine.Token}
}

// text is what a node holds: the second number is missing if nobody has read since.
func (m marks) text() []byte {
	if m.read == 0 {
		return []byte(m.written.String())
	}
	return []byte(m.written.String() + " " + m.read.String())
}

func parse(data []byte) (m marks, err error) {
	written, read, readers := strings.Cut(string(data), " ")
	if m.written, err = fencing.ParseToken(written); err == nil && readers {
		m.read, err = fencing.ParseToken(read)
	}
	return m, err
}
