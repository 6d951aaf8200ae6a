// Package redisnode is one Redis server as the lock backends see it: the scripts
// that grant, renew and release a lock, and the subscription through which waiters
// are woken.
//
// A lock's key holds a random value, set with an expiry: what every client that
// follows the Redlock page does, so all of them exclude each other.
package redisnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/mailbox"
)

// tries bounds how often a request is sent when its connection breaks. More
// than one, because a pool may hold connections that a restarted server no
// longer knows.
const tries = 4

// Node runs scripts on one server, or on the master of a key's slot. It is safe
// for concurrent use.
type Node struct {
	// Keep is for how long a name's counter is kept after its last lease. A name
	// that was idle for longer leans on a clock that did not go back by more. Set it
	// before the Node is used.
	Keep time.Duration

	rdb      redis.UniversalClient
	mail     *mailbox.Mailbox
	id       string // of the channel that mail is sent to
	counts   int    // 1 if PUBLISH counts all listeners, which it does not in a Cluster
	replicas int
	acquire  *script
	heeds    bool // the client heeds a context's deadline

	known atomic.Bool // the server has answered us, which it does not do to strangers

	quarantine int64 // ms that a node of a quorum must have been up to vote
}

// New returns a Node on rdb. With replicas above 0, what it grants or renews
// must be acknowledged by so many of them (WAIT).
func New(rdb redis.UniversalClient, replicas int) *Node {
	n := &Node{Keep: KeepTime, rdb: rdb, id: newID(), counts: 1, replicas: replicas, acquire: acquire}
	switch rdb := rdb.(type) {
	case *redis.Client:
		n.heeds = rdb.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		n.heeds = rdb.Options().ContextTimeoutEnabled
		n.counts = 0
	}
	n.mail = mailbox.New(n.listen)
	return n
}

// send sends a request until its reply arrives, and reports whether an earlier
// try may have been carried out as well. It returns when ctx ends; the request
// may then still be under way.
//
// A client does not interrupt a read for a context that ends. So the request is
// handed to another goroutine, which costs about as much as the request. That is not
// needed where ctx cannot end, nor for a release, whose context has nothing but a
// deadline, if the client heeds that.
func (n *Node) send(ctx context.Context, req request) (reply any, repeated bool, err error) {
	for try := range tries {
		repeated = try > 0
		if ctx.Done() == nil || req.script == release && n.heeds {
			reply, err = n.eval(ctx, req)
		} else {
			reply, err = bounded(ctx, func(ctx context.Context) (any, error) { return n.eval(ctx, req) })
		}
		if err == nil || !broken(err) || ctx.Err() != nil {
			break
		}
	}
	if err == nil && !n.known.Load() {
		n.known.Store(true)
	}
	return reply, repeated, classify(err)
}

// eval sends req once, and its script's text after it to a server that has answered
// that it does not have it.
func (n *Node) eval(ctx context.Context, req request) (any, error) {
	reply, err := n.process(ctx, req, req.command(ctx))
	if noScript(err) {
		return n.process(ctx, req, req.byText(ctx))
	}
	return reply, err
}

func noScript(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

// process sends cmd, which is req, once.
func (n *Node) process(ctx context.Context, req request, cmd once) (any, error) {
	if n.replicas > 0 && req.script.confirmed() {
		return n.processAndWait(ctx, cmd, req.key())
	}
	_ = n.rdb.Process(ctx, cmd) // the error is the command's
	return cmd.Result()
}

// processAndWait has replicas confirm the command.
func (n *Node) processAndWait(ctx context.Context, cmd once, key string) (any, error) {
	rdb, err := n.master(ctx, key)
	if err != nil {
		return nil, err
	}
	confirmed := n.pipeline(ctx, rdb, cmd)
	reply, err := cmd.Result()
	if err != nil {
		return nil, err
	}
	if code, ok := reply.(int64); !ok || code <= 0 {
		return reply, nil // nothing was granted
	}
	return reply, confirmed
}

// pipeline sends commands, which have errors of their own, in one round trip. It
// returns an error unless enough replicas confirm them: WAIT follows on the same
// connection, for it counts only what that connection wrote.
func (n *Node) pipeline(ctx context.Context, rdb redis.Cmdable, cmds ...once) error {
	pipe := rdb.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd) // queued
	}
	wait := once{redis.NewCmd(ctx, "wait", n.replicas, replicaTime.Milliseconds())}
	if n.replicas > 0 {
		_ = pipe.Process(ctx, wait)
	}
	_, _ = pipe.Exec(ctx)
	if n.replicas == 0 {
		return nil
	}
	acks, err := wait.Int()
	switch {
	case err != nil:
		return &waitError{err}
	case acks < n.replicas:
		return &replicaError{acks, n.replicas}
	}
	return nil
}

// waitError says that WAIT was refused or not answered. What went before it was carried
// out.
type waitError struct{ error }

func (e *waitError) Unwrap() error { return e.error }

// replicaTime is how long a server waits for its replicas.
const replicaTime = time.Second

// replicaError says that too few replicas confirmed. The server itself may have
// carried the request out.
type replicaError struct{ got, want int }

func (e *replicaError) Error() string {
	return fmt.Sprintf("%d of %d replicas confirmed within %v", e.got, e.want, replicaTime)
}

// master returns a client of the server that has key.
func (n *Node) master(ctx context.Context, key string) (redis.Cmdable, error) {
	if c, ok := n.rdb.(*redis.ClusterClient); ok {
		return c.MasterForKey(ctx, key)
	}
	return n.rdb, nil
}

// broken reports whether the connection broke, so that another may work.
func broken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// young begins the script's own reply of a node that has no vote yet. It is for
// programs, and says nothing to people.
const young = "YOUNG "

// refusals are error replies with which a server declines to serve, and what to
// do about them. The client takes off a leading "ERR " before it compares.
var refusals = []struct{ prefix, advice string }{
	{"READONLY", "this server is a read-only replica: connect to its master"},
	{"WRONGPASS", "check the user name and the password"},
	{"NOAUTH", "the server wants a password"},
	{"Protocol error: unauthenticated", "the server wants a password"},
	{"NOPERM", "the user may not run the scripts or touch the keys that locks need"},
	{"LOADING", "the server is still loading its data"},
	{"MASTERDOWN", "the replica has lost its master"},
	{"CLUSTERDOWN", "the cluster has slots without a master"},
	{young, "it was started not long ago and may have forgotten a lock"},
	{"unknown command", "the server does not know a command that locks need: was it renamed or switched off?"},
	{"OOM", "the server's memory is full and its eviction policy frees none"},
	{"MISCONF", "the server cannot save its data and refuses writes"},
	{"NOREPLICAS", "the server has too few replicas to accept writes"},
	{"WRONGTYPE", "the key of this name belongs to something else: use a prefix"},
	{"max number of clients", "the server has too many connections"},
}

// classify adds locker.ErrUnavailable and advice.
func classify(err error) error {
	if err == nil || errors.Is(err, locker.ErrUnavailable) {
		return err
	}
	if redis.HasErrorPrefix(err, "unknown command") {
		text, _, _ := strings.Cut(err.Error(), ", with args") // the lock's value is one of them
		err = refusal(text)
	}
	for _, r := range refusals {
		if redis.HasErrorPrefix(err, r.prefix) {
			if r.prefix == young {
				err = youngError{refusal(strings.TrimPrefix(err.Error(), young))}
			}
			return fmt.Errorf("%w: %s: %w", locker.ErrUnavailable, r.advice, err)
		}
	}
	return fmt.Errorf("%w: %w", locker.ErrUnavailable, err)
}

// Refused reports whether err is the server's refusal to serve: an error reply, other
// than that it is not ready yet.
func Refused(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && !redis.HasErrorPrefix(err, "LOADING") && !redis.HasErrorPrefix(err, "MASTERDOWN") &&
		!redis.HasErrorPrefix(err, "CLUSTERDOWN") && !Young(err)
}

// Young reports whether err is that of a node which has no vote yet.
func Young(err error) bool {
	var young youngError
	return errors.As(err, &young)
}

// refusal is an error reply of which something was left out.
type refusal string

func (r refusal) Error() string { return string(r) }

// RedisError makes it an error reply.
func (refusal) RedisError() {}

// youngError is the refusal of a node that has no vote yet.
type youngError struct{ refusal }

// stranger reports whether the server never knew us. Then it has not carried out
// an earlier try either, whose reply we may have missed: before it answers, a
// server may close a connection that sends too much without a password. One that
// has answered us before may have changed its password between the two.
func (n *Node) stranger(err error) bool {
	return !n.known.Load() && isStranger(err)
}

func isStranger(err error) bool {
	return redis.HasErrorPrefix(err, "WRONGPASS") || redis.HasErrorPrefix(err, "NOAUTH") ||
		redis.HasErrorPrefix(err, "Protocol error: unauthenticated")
}

// unsure reports whether a request that ended with err may have been carried
// out, or may yet be. A server's own error reply says that it was not.
func unsure(err error) bool {
	if err == nil {
		return false
	}
	var reply redis.Error
	var wait *waitError
	if errors.As(err, &reply) && !errors.As(err, &wait) {
		return false
	}
	var dial *net.OpError
	return !errors.As(err, &dial) || dial.Op != "dial"
}
