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
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/internal/mailbox"
)

// tries bounds how often a request is sent when its connection breaks. More
// than one, because a pool may hold connections that a restarted server no
// longer knows.
const tries = 4

// Node runs scripts on one server, or on the master of a key's slot. It is safe
// for concurrent use.
type Node struct {
	// Keep is how long a name's counter is kept after its last lease. Set it before
	// the Node is used.
	Keep time.Duration

	rdb      redis.UniversalClient
	cluster  *redis.ClusterClient // rdb, if it is one
	mail     *mailbox.Mailbox
	id       string // of the channel that mail is sent to
	counts   int    // 1 if PUBLISH counts all listeners, which it does not in a Cluster
	replicas int
	acquire  *script
	ends     bool // the client ends each request by its own timeouts
	heeds    bool // it ends each request at the context's deadline

	trip  atomic.Int64 // how many ms the last question for a lock took, with its answer
	known atomic.Bool  // the server has answered us, which it does not do to strangers
	plain atomic.Bool  // no hook of the client's rewrites keys
	mute  atomic.Bool  // scripts of ours may not publish

	quarantine int64 // ms that a node of a quorum must have been up to vote
}

// New returns a Node on rdb. With replicas above 0, what it grants or renews
// must be acknowledged by so many of them (WAIT).
func New(rdb redis.UniversalClient, replicas int) *Node {
	id := random()
	n := &Node{Keep: KeepTime, rdb: rdb, id: string(id[:]), counts: 1, replicas: replicas, acquire: acquire}
	switch rdb := rdb.(type) {
	case *redis.Client:
		o := rdb.Options()
		n.setTimeouts(o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout)
	case *redis.ClusterClient:
		o := rdb.Options()
		n.setTimeouts(o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout)
		n.cluster, n.counts = rdb, 0
	}
	n.mail = mailbox.New(n.listen)
	return n
}

// setTimeouts takes note of how the client ends requests. It has no timeout of its own where its
// options say 0, of which the user said -1; and where they say less (-2), it does not set the
// connection's deadline at all, not even that of a context.
func (n *Node) setTimeouts(heeds bool, read, write time.Duration) {
	n.ends = read > 0 && write > 0
	n.heeds = heeds && read >= 0 && write >= 0
}

// send sends a request until its reply arrives, and reports whether an earlier
// try may have been carried out as well. After an error it may still be under way.
func (n *Node) send(ctx context.Context, req request) (reply any, repeated bool, err error) {
	for try := range tries {
		reply, err = call(ctx, n.endsItself(ctx, req.script), func() (any, error) { return n.eval(ctx, req) })
		err = n.learn(err)
		if err == nil || ctx.Err() != nil || try == tries-1 {
			break
		}
		if broken(err) {
			repeated = true
		} else if !transient(err) || !pause(ctx, firstPause<<try) {
			break
		}
	}
	if err == nil && !n.known.Load() {
		n.known.Store(true)
	}
	if err != nil {
		err = n.withPool(ctx, err, req.key())
	}
	return reply, repeated, err
}

// endsItself reports whether a request ends by itself, so that it can run in its caller's
// goroutine. go-redis does not interrupt a read when its context ends, and heeds a deadline only if
// it was told to. What a caller asks for may take as long as the client's timeouts let it, like
// all else that the caller asks the client for. A release has two seconds, which are its deadline.
// Renewals and clean-ups have their own time: else one dead connection would lose every lock whose
// TTL is not much longer than those timeouts. (Client.WithTimeout would bound a read too. But its client
// has none of the hooks that were added: go-redis 9.23.)
func (n *Node) endsItself(ctx context.Context, s *script) bool {
	switch s {
	case acquire, inspect, force:
		return n.ends || ctx.Done() == nil
	case release, keepTaken:
		return n.heeds || ctx.Done() == nil
	}
	return ctx.Done() == nil
}

// sendOn sends a request that passes a lock on, and again while its script has met nobody who
// lives, and more wait. The first answer counts.
func (n *Node) sendOn(ctx context.Context, req request) (code any, repeated bool, err error) {
	reply, repeated, err := n.send(ctx, req)
	code, more := part(reply)
	for more && err == nil {
		if reply, _, err = n.send(ctx, req); err == nil {
			_, more = part(reply)
		}
	}
	return code, repeated, err
}

// part returns the number of an answer, and whether the script left work: then it is in a list.
func part(reply any) (code any, more bool) {
	if some, _ := reply.([]any); len(some) == 1 {
		return some[0], true
	}
	return reply, false
}

// withPool says so if err may come from a pool without a free connection: then the server has
// not been asked. A Cluster's client has a pool for each master. It knows that of key without
// asking.
func (n *Node) withPool(ctx context.Context, err error, key string) error {
	if ctx.Err() == nil && !errors.Is(err, redis.ErrPoolTimeout) && !errors.Is(err, redis.ErrPoolExhausted) {
		return err
	}
	rdb, ok := n.rdb.(*redis.Client)
	if n.cluster != nil {
		master, unknown := n.cluster.MasterForKey(ctx, key)
		rdb, ok = master, unknown == nil
	}
	if !ok {
		return err
	}
	if s, most := rdb.PoolStats(), rdb.Options().PoolSize; s.IdleConns > 0 || int(s.TotalConns) < most {
		return err
	}
	return fmt.Errorf("%w: all %d connections of the client's pool are in use: raise PoolSize, or give locks a client of their own "+
		"(unless the server is silent, and requests to it have them all)", err, rdb.Options().PoolSize)
}

// firstPause is the pause before a request is sent again that a server could not serve
// just then. It doubles.
const firstPause = 20 * time.Millisecond

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// learn classifies the error of a request. A server of a Cluster that does not answer, may
// not write, or has no slots, may have been replaced. go-redis would find that out within a
// minute: it asks at once only where a server redirects it.
func (n *Node) learn(err error) error {
	var reply redis.Error
	if err != nil && n.cluster != nil && (!errors.As(err, &reply) || transient(err)) {
		n.cluster.ReloadState(context.Background()) // in the background
	}
	return classify(err)
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
	switch {
	case n.replicas == 0 || !req.script.confirmed():
		_ = n.rdb.Process(ctx, cmd) // the error is the command's
		return cmd.Result()
	case n.cluster != nil:
		return n.processAtMaster(ctx, cmd, req.key())
	}
	return n.processAndWait(ctx, n.rdb, cmd)
}

// processAndWait sends cmd and has replicas confirm it. Where asking is given, it goes
// before.
func (n *Node) processAndWait(ctx context.Context, rdb redis.Cmdable, cmd once, asking ...once) (any, error) {
	confirmed := n.pipeline(ctx, rdb, n.replicas, append(asking, cmd)...)
	reply, err := cmd.Result()
	if err != nil {
		return nil, err
	}
	if !done(reply) {
		return reply, nil
	}
	return reply, confirmed
}

// done reports whether replicas must confirm what a script has answered: it has granted
// something, or renewed it. A slot is granted as a number and the slot.
func done(reply any) bool {
	switch reply := reply.(type) {
	case int64:
		return reply > 0
	case []any:
		return len(reply) == 2
	}
	return false
}

// pipeline sends commands, which have errors of their own, in one round trip. It
// returns an error unless so many replicas confirm them: WAIT follows on the same
// connection, for it counts only what that connection wrote.
func (n *Node) pipeline(ctx context.Context, rdb redis.Cmdable, replicas int, cmds ...once) error {
	pipe := rdb.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd) // queued
	}
	wait := once{redis.NewCmd(ctx, "wait", replicas, replicaTime.Milliseconds())}
	if replicas > 0 {
		_ = pipe.Process(ctx, wait)
	}
	_, _ = pipe.Exec(ctx)
	if replicas == 0 {
		return nil
	}
	acks, err := wait.Int()
	switch {
	case err != nil:
		return &waitError{err}
	case acks < replicas:
		return &replicaError{acks, replicas}
	}
	return nil
}

// waitError says that WAIT was refused or not answered. The command before it was
// carried out.
type waitError struct{ error }

func (e *waitError) Unwrap() error { return e.error }

// replicaTime is how long a server waits for its replicas.
const replicaTime = time.Second

// replicaError says that too few replicas confirmed. The server itself may have
// carried the request out.
type replicaError struct{ got, want int }

func (e *replicaError) Error() string {
	return fmt.Sprintf("%d of %d replicas confirmed within %v: check that the server has so many (INFO replication), "+
		"that their links are up and that they do not lag, or set Options.Replicas to what there is", e.got, e.want, replicaTime)
}
