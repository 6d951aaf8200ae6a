package testserver

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A machine has place for 4,096 segments: with two hundred left by each run of
// the tests, PostgreSQL does not start any more after twenty.
func TestKilledPostgresLeavesNoSegment(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the list of segments is looked up in /proc")
	}
	s := Postgres(t)
	notes, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	id := strings.Fields(strings.Split(string(notes), "\n")[6])[1]
	if !hasSegment(t, id) {
		t.Fatalf("a server that runs has no segment %s", id)
	}
	s.Kill()
	if hasSegment(t, id) {
		t.Errorf("segment %s is still there after the server was killed", id)
	}
	s.Start() // it does without the segment of the last one
}

func hasSegment(t *testing.T, id string) bool {
	t.Helper()
	list, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(list), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == id {
			return true
		}
	}
	return false
}

// A paused backend does not notice that its server is gone.
func TestPausedPostgresIsKilled(t *testing.T) {
	s := Postgres(t)
	s.Pause()
	s.Kill()
	s.Start()
}

// A backend that outlives the others may wait for ever for what one of them held when it was
// killed, and Kill waited with it. Method: backends come all the time, and each is too busy to
// notice that its server is gone.
//
//	the backends are listed; the server starts one more; it and those on the list are killed
func TestNoBackendOutlivesAKilledPostgres(t *testing.T) {
	s := Postgres(t)
	for range 5 {
		ctx, end := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		var connected atomic.Int32
		for range 8 {
			clients.Go(func() {
				for ctx.Err() == nil {
					conn, err := pgx.Connect(ctx, s.URL("postgres"))
					if err != nil {
						continue
					}
					connected.Add(1)
					// The server is told to end it, if there is one.
					short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
					_, _ = conn.Exec(short, `SET statement_timeout = '2min'; DO $$BEGIN LOOP END LOOP; END$$`)
					cancel()
					_ = conn.Close(ctx)
				}
			})
		}
		for end := time.Now().Add(patience); connected.Load() < 30; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d clients have connected", connected.Load())
			}
		}
		killed := make(chan struct{})
		go func() {
			s.Kill()
			close(killed)
		}()
		select {
		case <-killed:
		case <-time.After(patience):
			t.Error("a backend lives on")
			<-killed
		}
		end()
		clients.Wait()
		s.Start()
	}
}

// Goal: what a command has said stands within a line of a report.
func TestTheErrorOfACommandHasNoLineBreakAtItsEnd(t *testing.T) {
	if err := said(exec.Command("sh", "-c", "echo no such folder; exit 1")); err == nil || !strings.HasSuffix(err.Error(), ": no such folder") {
		t.Errorf("%q", err)
	}
}
