package redisnode

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/testserver"
)

// steppedServer starts a server whose wall clock can be stepped: to so much
// before or after this machine's.
func steppedServer(t *testing.T) (srv *testserver.RedisServer, step func(time.Duration)) {
	t.Helper()
	library, file := filepath.Join(t.TempDir(), "clock.so"), filepath.Join(t.TempDir(), "offset")
	out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", library, "../testbed/shim/clock.c", "-ldl").CombinedOutput()
	if err != nil && os.Getenv("LOCKER_TEST_REQUIRE") == "" {
		t.Skipf("no C compiler to build a clock with: %v", err)
	}
	if err != nil {
		t.Fatalf("building a clock: %v: %s", err, out)
	}
	srv = testserver.RedisWithEnv(t, []string{"LD_PRELOAD=" + library, "LOCKSTILE_CLOCK_OFFSET=" + file})
	return srv, func(d time.Duration) {
		t.Helper()
		next := file + ".new"
		if err := os.WriteFile(next, fmt.Append(nil, d.Microseconds()), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, file); err != nil {
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
	if s, err := n.Acquire(background(t), newLease(t, name), Ask{}); err == nil || !strings.Contains(err.Error(), "no vote") {
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
	mustGrant(t, n, newLease(t, "b"))
	for k, d := range []time.Duration{0, -time.Hour} {
		step(d)
		mustGrant(t, n, newLease(t, fmt.Sprint("c", k)))
		refused(t, strict, fmt.Sprint("d", k)) // has not been found old enough for that
	}
}

// A snapshot brings the key back that says who may vote, and not the locks that
// were taken after it.
func TestRestartedNodeIsRefusedThoughItsDataSayThatItHasVoted(t *testing.T) {
	srv, step := steppedServer(t)
	n := ofQuorumNode(t, srv.Addr(), 30*time.Minute)
	step(time.Hour)
	mustGrant(t, n, newLease(t, "a"))
	srv.Do("SAVE")
	step(0)
	mustGrant(t, n, newLease(t, "b"))
	srv.Kill()
	srv.Start()
	if srv.Do("GET", "lockstile:voter") == "" {
		t.Fatal("the snapshot does not have the key")
	}
	refused(t, n, "b")
	step(time.Hour)
	mustGrant(t, n, newLease(t, "b"))
	step(0)
	mustGrant(t, n, newLease(t, "c"))
}
