package redisnode

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
)

// broken reports whether the connection broke, so that another may work.
func broken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// young begins the reply of a node that has no vote yet. It is for programs, and is
// taken off before people see the error.
const young = "YOUNG "

const wantsPassword = "the server wants a password: USER:PASS@ or :PASS@ before the host in a URL, Password in the client's options"

// refusals are error replies with which a server declines to serve, and what to
// do about them. The client takes off a leading "ERR " before it compares.
var refusals = []struct{ prefix, advice string }{
	{"READONLY", "this server is a read-only replica: connect to its master"},
	{"WRONGPASS", "check the user name and the password"},
	{"NOAUTH", wantsPassword},
	{"Protocol error: unauthenticated", wantsPassword},
	{"NOPERM", "the user lacks a right that locks need: locker doctor names it"},
	{"TRYAGAIN", "the key's slot is on its way to another server"},
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
	{"BUSY ", "the server runs a script or a function, and serves nobody until that has ended: SCRIPT KILL or FUNCTION KILL ends it"},
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
	advice := Advice(err)
	if advice == "" {
		return fmt.Errorf("%w: %w", locker.ErrUnavailable, err)
	}
	if redis.HasErrorPrefix(err, young) {
		err = newYoungError(err.Error())
	}
	return fmt.Errorf("%w: %s: %w", locker.ErrUnavailable, advice, err)
}

// Advice is what to do about an error reply with which a server declines to serve, or "".
func Advice(err error) string {
	for _, r := range refusals {
		if redis.HasErrorPrefix(err, r.prefix) {
			return r.advice
		}
	}
	return ""
}

// Refused reports whether err is the server's refusal to serve: an error reply, other
// than that it, or another in its place, will serve soon.
func Refused(err error) bool {
	var reply redis.Error
	soon := func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) }
	return errors.As(err, &reply) && !slices.ContainsFunc(servesSoon, soon) && !transient(err) && !elsewhere(err) && Young(err) == 0
}

// servesSoon begins the replies of a server that starts, is being replaced, runs something that
// takes long, or lacks replicas or room for a connection for now: all that passes by itself
// of the replies that createSharedObjects in server.c of Redis 7.0 makes, besides those of
// transient. MISCONF (it cannot save) and OOM last until somebody makes room.
var servesSoon = []string{"LOADING", "MASTERDOWN", "UNBLOCKED", "BUSY ", "NOREPLICAS", "max number of clients"}

// transient reports whether err says that a server could not serve just then: its slot is
// on its way, it has become a replica, and the next connection leads to the master, or it
// knows of no master, as one that has left its Cluster. Nothing was carried out.
func transient(err error) bool {
	return redis.IsTryAgainError(err) || redis.IsReadOnlyError(err) || redis.IsClusterDownError(err)
}

// Young is how long the node that err comes from has no vote yet; 0: err is another one.
func Young(err error) time.Duration {
	if err == nil {
		return 0 // before young is allocated
	}
	var young youngError
	_ = errors.As(err, &young)
	return young.wait
}

// refusal is an error reply of which something was left out.
type refusal string

func (r refusal) Error() string { return string(r) }

// RedisError makes it an error reply.
func (refusal) RedisError() {}

// youngError is the refusal of a node that has no vote yet.
type youngError struct {
	refusal
	wait time.Duration
}

func newYoungError(reply string) youngError {
	seconds := 1 // at least
	_, _ = fmt.Sscanf(reply, young+"no vote for another %d s", &seconds)
	return youngError{refusal(strings.TrimPrefix(reply, young)), time.Duration(max(seconds, 1)) * time.Second}
}

// stranger reports whether err says that we are unknown to a server which has never
// answered us. Then it has not carried out an earlier try either, whose reply we may
// have missed: a server may close a connection that sends too much without a password
// before it answers. A server that has answered us may have changed its password
// between two tries.
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
	if err == nil || errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return false // the client is closed, or had no connection
	}
	var reply redis.Error
	var wait *waitError
	if errors.As(err, &reply) && !errors.As(err, &wait) {
		return false
	}
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	var none interface{ NotSent() }
	notSent := errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, &certificate) || errors.As(err, &none)
	return !notSent
}
