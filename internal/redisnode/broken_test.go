package redisnode

import (
	"context"
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
	"github.com/lockstile/locker/internal/lab/redishook"
	"github.com/lockstile/locker/internal/lab/testserver"
)

// losing loses the replies to as many scripts as it has errors; nil stands for one that arrives.
type losing struct {
	redis.Hook
	with []error
}

func (*losing) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *losing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if len(h.with) > 0 && strings.HasPrefix(cmd.Name(), "eval") {
			broke := h.with[0]
			if h.with = h.with[1:]; broke != nil {
				cmd.SetErr(broke)
				return broke
			}
		}
		return err
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

// Nothing was sent.
func TestRequestThatFindsNoServerLeavesNothing(t *testing.T) {
	n, _ := client(t, testserver.Redis(t).Addr())
	if err := n.rdb.Close(); err != nil {
		t.Fatal(err)
	}
	none := New(redis.NewClient(&redis.Options{Addr: "no server", DialerRetries: 1, Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}}), 0)
	t.Cleanup(func() { _ = none.rdb.Close() })
	for what, n := range map[string]*Node{"a closed client": n, "no server": none} {
		a := newAttempt(t, "a")
		if _, err := n.Acquire(background(t), a, Ask{}); !errors.Is(err, locker.ErrUnavailable) || a.Unsure() {
			t.Errorf("%s: unsure: %v, %v", what, a.Unsure(), err)
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
