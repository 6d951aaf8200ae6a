package redisnode

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/redishook"
	"github.com/lockstile/locker/internal/testserver"
)

// losing loses the replies to as many scripts as it has errors; nil stands for one that arrives.
type losing struct {
	redis.Hook
	with   []error
	unsent bool // the scripts themselves are lost
}

func (*losing) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *losing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		var broke error
		if len(h.with) > 0 && strings.HasPrefix(cmd.Name(), "eval") {
			broke, h.with = h.with[0], h.with[1:]
		}
		if broke == nil {
			return next(ctx, cmd)
		}
		if !h.unsent {
			_ = next(ctx, cmd)
		}
		cmd.SetErr(broke)
		return broke
	}
}

func (*losing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A connection breaks in one of several ways, and the next three in the pool do so, too, for
// the server was restarted.
func TestRequestIsSentAgainHoweverItsConnectionBreaks(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	hook := new(losing)
	n.rdb.AddHook(hook)
	for _, broke := range []error{
		io.EOF,
		io.ErrUnexpectedEOF,
		&net.OpError{Op: "read", Err: net.ErrClosed},
		&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)},
		&net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)},
	} {
		a := newAttempt(t, "a")
		mustGrant(t, n, a)
		hook.with = []error{broke, broke, broke}
		if err := n.Release(background(t), a, 0); err != nil {
			t.Errorf("%v: %v", broke, err)
		}
	}
}

// A server that wants a password may close the connection of one who has none before it says
// so. Asked again it does, and has done nothing.
func TestRequestOfAStrangerLeavesNothing(t *testing.T) {
	srv := testserver.Redis(t, "--requirepass", "s3cret")
	n, _ := client(t, srv.Addr())
	n.rdb.AddHook(&losing{with: []error{io.EOF}})
	a := newAttempt(t, "a")
	if _, err := n.Acquire(background(t), a, Ask{}); !isStranger(err) || a.Unsure() {
		t.Errorf("unsure: %v, %v", a.Unsure(), err)
	}
}

// An answer does not come in time, or is garbled: what was asked for may have happened.
func TestRequestWithoutAnAnswerMayHaveWorked(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	hook := new(losing)
	n.rdb.AddHook(hook)
	mustGrant(t, n, newAttempt(t, "another")) // the server knows the script
	for _, lost := range []error{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, errors.New("garbled")} {
		a := newAttempt(t, "a")
		hook.with = []error{lost}
		if _, err := n.Acquire(background(t), a, Ask{}); !errors.Is(err, lost) || !a.Unsure() || srv.Do("GET", "a") != a.Value {
			t.Errorf("%v: the attempt is unsure: %v, %v", lost, a.Unsure(), err)
		}
		hook.with = []error{lost}
		if err := n.Release(background(t), a, 0); !errors.Is(err, lost) || errors.Is(err, locker.ErrLost) {
			t.Errorf("%v: the release: %v", lost, err)
		}
		if err := n.Release(background(t), a, 0); err != nil {
			t.Errorf("%v: the release, which had worked, is said to be: %v", lost, err)
		}
	}
}

// unsent is an error as package dial makes it.
type unsent struct{ error }

func (unsent) NotSent() {}

// Nothing was sent.
func TestRequestThatFindsNoServerLeavesNothing(t *testing.T) {
	n, _ := client(t, testserver.Redis(t).Addr())
	if err := n.rdb.Close(); err != nil {
		t.Fatal(err)
	}
	nodes := map[string]*Node{"a closed client": n}
	for why, err := range map[string]error{
		"no server":           &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
		"another certificate": &tls.CertificateVerificationError{Err: errors.New("unknown authority")},
		"no certificate":      unsent{errors.New("no such file")},
	} {
		none := New(redis.NewClient(&redis.Options{Addr: "no server", DialerRetries: 1, Dialer: func(context.Context, string, string) (net.Conn, error) {
			return nil, err
		}}), 0)
		t.Cleanup(func() { _ = none.rdb.Close() })
		nodes[why] = none
	}
	for what, n := range nodes {
		a := newAttempt(t, "a")
		if _, err := n.Acquire(background(t), a, Ask{}); !errors.Is(err, locker.ErrUnavailable) || a.Unsure() {
			t.Errorf("%s: unsure: %v, %v", what, a.Unsure(), err)
		}
		for asked, ask := range map[string]func() error{
			"a release":      func() error { return n.Release(background(t), a, 0) },
			"a withdrawal":   func() error { return n.Withdraw(background(t), a) },
			"a renewal":      func() error { return n.Renew(background(t), []*Attempt{a})[0] },
			"a raise":        func() error { _, err := n.Raise(background(t), a, 1); return err },
			"a look":         func() error { _, err := n.Look(background(t), a.Keys); return err },
			"a break":        func() error { _, err := n.Break(background(t), a.Keys, Numbered(0)); return err },
			"a list":         func() error { _, err := n.List(background(t), ""); return err },
			"who it is":      func() error { _, err := n.Run(background(t)); return err },
			"a minimum hold": func() error { return n.Release(background(t), a, time.Hour) },
		} {
			if err := ask(); !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrLost) || Refused(err) {
				t.Errorf("%s: %s: %v", what, asked, err)
			}
		}
	}
}

// The server does not know the script, and the reply to its text is lost. A hook rewrites the
// keys of each request, and those of none twice.
func TestTextThatIsSentAgainHasTheKeysOfTheFirst(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	n.rdb.AddHook(&losing{with: []error{nil, io.EOF}})
	n.rdb.AddHook(&redishook.Tenant{Prefix: "tenant:"})
	mustGrant(t, n, newAttempt(t, "a"))
	if srv.Do("EXISTS", "tenant:a") != "1" || srv.Do("KEYS", "tenant:tenant:*") != "" {
		t.Errorf("the keys are %q", srv.Do("KEYS", "*"))
	}
}

// A slot is on its way to another master, or a master is being replaced: that takes a moment.
func TestServerThatCouldNotServeJustThenIsAskedAgainAfterPauses(t *testing.T) {
	n, _ := client(t, testserver.Redis(t).Addr())
	later := n.rdb.Eval(background(t), "return redis.error_reply('TRYAGAIN the slot is on its way')", nil).Err()
	n.rdb.AddHook(&losing{with: []error{later, later, later}})
	began := time.Now()
	mustGrant(t, n, newAttempt(t, "a"))
	if took := time.Since(began); took < 7*firstPause {
		t.Errorf("asked four times in %v", took)
	}
}

// garbling makes something else of the replies to scripts.
type garbling struct{ losing }

func (*garbling) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if c, ok := cmd.(interface{ SetVal(val any) }); ok && err == nil {
			c.SetVal("granted")
		}
		return err
	}
}

// An answer of an unknown form may be a grant.
func TestGrantThatNobodyUnderstandsIsWithdrawn(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: testserver.Redis(t).Addr()})
	defer rdb.Close()
	rdb.AddHook(new(garbling))
	a := newAttempt(t, "a")
	if _, err := New(rdb, 0).Acquire(background(t), a, Ask{}); err == nil || !a.Unsure() {
		t.Errorf("%v, and the attempt is taken to have left nothing", err)
	}
}
