package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// cutAfter has the server carry out the first script, loses its answer, and then nothing
// gets through any more.
type cutAfter struct {
	onScript               // for what else a hook has, and its count
	until    chan struct{} // the error comes then; nil: at once
}

func (h *cutAfter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		if h.n.Load() > 0 {
			cmd.SetErr(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
			return cmd.Err()
		}
		if err := next(ctx, cmd); err != nil {
			return err // NOSCRIPT
		}
		h.n.Add(1)
		if h.until != nil {
			<-h.until
			time.Sleep(20 * time.Millisecond)
		}
		cmd.SetErr(os.ErrDeadlineExceeded)
		return cmd.Err()
	}
}

// breakFirst breaks the first grant of a server before its answer is heard, which is
// lost with its connection, and closes refused when the request was sent again.
func breakFirst(srv *testserver.RedisServer, refused chan struct{}) *onScript {
	return &onScript{lose: 1, act: func(n int32) {
		switch n {
		case 1:
			value := srv.Do("GET", "a")
			srv.Do("SET", "lockstile:m:{a}:"+value, "forced", "PX", "60000") // what Break does there
			srv.Do("DEL", "a")
		case 2:
			close(refused)
		}
	}}
}

// Two of three nodes grant the lock, their answers are lost, and so are they. The third
// refuses the value, so the attempt goes on under another: what the old one has is
// nobody's.
func TestLockThatMayBeHeldUnderAnOldValueIsAnUnknownOutcome(t *testing.T) {
	for name, broken := range map[string]bool{"the third is silent too": false, "the third refuses the value": true} {
		t.Run(name, func(t *testing.T) {
			servers := startNodes(t, 3)
			clients := clientsOf(servers)
			var until chan struct{}
			if broken {
				until = make(chan struct{})
			}
			clients[0].AddHook(&cutAfter{until: until})
			clients[1].AddHook(&cutAfter{until: until})
			if broken {
				clients[2].AddHook(breakFirst(servers[2], until))
			} else {
				clients[2].AddHook(&cutAfter{})
			}
			l := newLockerOn(t, clients, patient)
			_, err := l.TryLock(patience(t), "a")
			has := 0
			for _, s := range servers {
				if s.Do("EXISTS", "a") == "1" {
					has++
				}
			}
			if has >= 2 && !errors.Is(err, locker.ErrOutcomeUnknown) {
				t.Errorf("a majority has the lock of a call that failed, for another %s ms, and the error does not say so: %v", servers[0].Do("PTTL", "a"), err)
			}
		})
	}
}

// refuseLater has the server refuse all scripts after the first.
type refuseLater struct {
	cutAfter
	first func()
	armed atomic.Bool
	srv   *testserver.RedisServer
}

func (h *refuseLater) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		if h.armed.CompareAndSwap(true, false) {
			h.srv.Do("ACL", "SETUSER", "default", "-eval", "-evalsha")
			return next(ctx, cmd)
		}
		err := next(ctx, cmd)
		if err == nil && h.n.Add(1) == 1 {
			h.first()
			h.armed.Store(true)
		}
		return err
	}
}

// Of five nodes, 0 grants late: the look is over and what was won is given back. It is
// asked once more and refuses. Three others have said "taken".
func TestTryLockLeavesNothingOnANodeThatGrantsLateAndThenRefuses(t *testing.T) {
	servers := startNodes(t, 5)
	for _, s := range servers[2:] {
		s.Do("SET", "a", "somebody", "PX", "600000")
	}
	clients := clientsOf(servers)
	back := make(chan struct{})
	clients[1].AddHook(&onScript{act: func(n int32) {
		if n == 2 {
			close(back)
		}
	}})
	clients[0].AddHook(&refuseLater{srv: servers[0], first: func() { <-back }})
	l := newLockerOn(t, clients, patient)
	_, err := l.TryLock(patience(t), "a", locker.WithTTL(time.Minute))
	servers[0].Do("ACL", "SETUSER", "default", "+eval", "+evalsha")
	eventually(t, fmt.Sprintf("what node 0 has granted is gone, after %v", err), func() bool {
		return servers[0].Do("EXISTS", "a") == "0"
	})
}
