//go:build unix

package main

import (
	"syscall"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/testserver"
)

// hangTime is under what a client of PostgreSQL waits for a server that hangs, and
// over what the command may wait, by far.
const hangTime = 12 * time.Second

func TestDatabaseThatHangsDoesNotHoldUpTheEndOfTheCommand(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"", "&mode=session"} {
		srv := testserver.Postgres(t)
		p := launch(t, "run", "-b", srv.URL("postgres")+"&schema=ensure"+mode, "--ttl", "2m", "x", "--", "sh", "-c", report)
		p.number("token")
		srv.Pause()
		start := time.Now()
		p.goOn()
		p.complains(0, "could not be given back")
		if took := time.Since(start); took >= hangTime {
			t.Errorf("it ended after %v", took)
		}
		srv.Resume()
	}
}

func TestDatabaseThatHangsDoesNotHoldUpASignal(t *testing.T) {
	t.Parallel()
	srv := testserver.Postgres(t)
	url := srv.URL("postgres") + "&schema=ensure"
	holder := launch(t, "run", "-b", url, "x", "--", "sh", "-c", report)
	holder.number("token")
	waiter := launch(t, "run", "-b", url, "x", "--", "true")
	awaitWaiters(t, url, "x", "1")
	srv.Pause()
	start := time.Now()
	waiter.signal(syscall.SIGINT)
	waiter.complains(69, "outcome unknown", "ended by a signal")
	if took := time.Since(start); took >= hangTime {
		t.Errorf("it ended after %v", took)
	}
	srv.Resume()
	holder.goOn()
	holder.ends(0)
}
