package testserver

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
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
