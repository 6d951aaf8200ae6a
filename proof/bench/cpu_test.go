package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func TestStatIsReadBehindAProgramWithAnyName(t *testing.T) {
	p, ok := parseStat("12 (a) R 7 (b)) S 34 0 0 0 -1 0 0 0 0 0 56 44 9 9 20 0 1 0\n")
	if !ok || p.parent != 34 || p.ticks != 100 {
		t.Errorf("parent %d, %d ticks, %v", p.parent, p.ticks, ok)
	}
	for _, bad := range []string{"", "12 (a) R", "1 (a) S x 0 0 0 0 0 0 0 0 0 1 1"} {
		if _, ok := parseStat(bad); ok {
			t.Errorf("%q was understood", bad)
		}
	}
}

// Goal: the work of servers is not counted as work of this process. Method: a child's
// child works until that is seen, and this process does nothing.
func TestWorkOfServersIsTheirs(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc here")
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	stop := filepath.Join(t.TempDir(), "stop")
	before := readCPU()
	child := exec.Command(sh, "-c", `(while [ ! -e "$1" ]; do :; done); true`, "sh", stop) //nolint:gosec // our own text
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.WriteFile(stop, nil, 0o600); err != nil {
			t.Error(err)
		}
		_ = child.Wait()
	}()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		work := readCPU().since(before, 1)
		if work.servers >= float64(100*time.Millisecond) && work.servers > work.client {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a child that works all the time worked %v, and we %v", time.Duration(work.servers), time.Duration(work.client))
		}
	}
}
