package redisnode

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/lab/testserver"
)

// steppedServer starts a server whose wall clock can be stepped: to so much
// before or after this machine's.
func steppedServer(t *testing.T) (srv *testserver.RedisServer, step func(time.Duration)) {
	t.Helper()
	clock := testserver.NewClock(t)
	srv = testserver.RedisWithEnv(t, clock.Env())
	return srv, func(d time.Duration) {
		t.Helper()
		if err := clock.Step(d); err != nil {
			t.Fatal(err)
		}
		srv.Await("the clock to have been stepped", func() bool {
			off := time.Until(time.UnixMicro(serverMicros(srv)))
			up := uptime(srv)
			return (off-d).Abs() < 10*time.Minute && (up-d).Abs() < 10*time.Minute
		})
	}
}

// uptime is what the server says of it. It was started at this machine's time.
func uptime(srv *testserver.RedisServer) time.Duration {
	_, after, _ := strings.Cut(srv.Do("INFO", "server"), "uptime_in_seconds:")
	var seconds int64
	_, _ = fmt.Sscan(after, &seconds)
	return time.Duration(seconds) * time.Second
}

func refused(t *testing.T, n *Node, name string) {
	t.Helper()
	if s, err := n.Acquire(background(t), newAttempt(t, name), Ask{}); err == nil || !strings.Contains(err.Error(), "no vote") {
		t.Errorf("%+v, %v: want no vote", s, err)
	}
}

// The uptime is counted on the wall clock. A majority whose clocks are set right
// by an hour must not be without votes for an hour.
func TestNodeThatHasVotedVotesAlsoAfterItsClockWasSteppedBack(t *testing.T) {
	srv, step := steppedServer(t)
	n, strict := ofQuorumNode(t, srv.Addr(), 30*time.Minute), ofQuorumNode(t, srv.Addr(), 50*time.Minute)
	refused(t, n, "a")
	step(time.Hour)
	mustGrant(t, n, newAttempt(t, "b"))
	for k, d := range []time.Duration{0, -time.Hour} {
		step(d)
		mustGrant(t, n, newAttempt(t, fmt.Sprint("c", k)))
		refused(t, strict, fmt.Sprint("d", k)) // has not been found old enough for that
	}
}

// A snapshot brings the key back that says who may vote, and not the locks that
// were taken after it.
func TestRestartedNodeIsRefusedThoughItsDataSayThatItHasVoted(t *testing.T) {
	srv, step := steppedServer(t)
	n := ofQuorumNode(t, srv.Addr(), 30*time.Minute)
	step(time.Hour)
	mustGrant(t, n, newAttempt(t, "a"))
	srv.Do("SAVE")
	step(0)
	mustGrant(t, n, newAttempt(t, "b"))
	srv.Kill()
	srv.Start()
	if srv.Do("GET", "lockstile:voter") == "" {
		t.Fatal("the snapshot does not have the key")
	}
	refused(t, n, "b")
	step(time.Hour)
	mustGrant(t, n, newAttempt(t, "b"))
	step(0)
	mustGrant(t, n, newAttempt(t, "c"))
}
