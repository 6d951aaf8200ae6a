package local

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstile/locker/fencing"
)

// mustIncrease checks tokens, one a line, and returns the last one.
func mustIncrease(t *testing.T, lines []string) fencing.Token {
	t.Helper()
	last := fencing.Token(0)
	for i, line := range lines {
		token, err := fencing.ParseToken(line)
		if err != nil {
			t.Fatal(err)
		}
		if token <= last {
			t.Fatalf("token %d of grant %d came after %d", token, i, last)
		}
		last = token
	}
	return last
}

// The counter starts ahead of the clock, so that it is the file alone that makes
// tokens increase.
func TestProcessesLoseNoUpdateAndTokensIncrease(t *testing.T) {
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "number")
	aheadOfClock(t, dir, "count")
	writeFile(t, path, []byte("0\n"))
	var all []*worker
	for range 8 {
		all = append(all, startWorker(t, "count", dir, path, "13"))
	}
	for _, w := range all {
		if err := w.Wait(); err != nil {
			t.Fatalf("%v: %s", err, w.errors)
		}
	}
	lines := strings.Split(strings.TrimSpace(readFile(t, path)), "\n")
	if lines[0] != "208" || len(lines) != 209 {
		t.Fatalf("%s updates and %d tokens of 208 are left", lines[0], len(lines)-1)
	}
	mustIncrease(t, lines[1:])
}

// mustBeInOrder checks lines of a token and a shared token, one of which is 0, and returns
// the greatest. Readers note theirs in any order, and many of a process have one.
func mustBeInOrder(t *testing.T, lines []string) fencing.Token {
	t.Helper()
	var writer, all fencing.Token
	var writes, reads int
	for i, line := range lines {
		var token, number fencing.Token
		if _, err := fmt.Sscan(line, &token, &number); err != nil {
			t.Fatal(err)
		}
		if token != 0 && token <= all || number != 0 && number <= writer || (token == 0) == (number == 0) {
			t.Fatalf("grant %d has token %d or number %d, after %d, the last writer's %d", i, token, number, all, writer)
		}
		if token != 0 {
			writer, writes = token, writes+1
		} else {
			reads++
		}
		all = max(all, token, number)
	}
	if writes == 0 || reads == 0 && byteRanges {
		t.Fatalf("%d writes and %d reads", writes, reads)
	}
	return all
}

// Processes are killed at random points of locking, noting and unlocking: after
// each of a number of lines that one of them has printed.
func TestKilledProcessesNeverDamageTheFileNorSendTokensBack(t *testing.T) {
	dir, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	before := aheadOfClock(t, dir, "storm")
	all := make([]*worker, 3)
	for i := range all {
		all[i] = startWorker(t, "storm", dir, log)
	}
	for i := range 60 {
		w := all[i%len(all)]
		for range 1 + i%7 {
			w.line(t)
		}
		w.kill()
		if w.errors.Len() > 0 {
			t.Fatal(w.errors)
		}
		all[i%len(all)] = startWorker(t, "storm", dir, log)
	}
	for _, w := range all {
		w.kill()
		if w.errors.Len() > 0 {
			t.Fatal(w.errors)
		}
	}
	last := mustBeInOrder(t, strings.Split(strings.TrimSpace(readFile(t, log)), "\n"))
	lock := mustLock(t, newLocker(t, dir), "storm")
	if lock.Token() <= last || lock.Token() <= before {
		t.Errorf("token %d after %d and %d", lock.Token(), before, last)
	}
	mustUnlock(t, lock)
}

// The first grants of a name race to make its file.
func TestProcessesThatMakeTheFileTogetherShareIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "number")
	writeFile(t, path, []byte("0\n"))
	for range 5 {
		dir := t.TempDir()
		var all []*worker
		for range 4 {
			all = append(all, startWorker(t, "count", dir, path, "1"))
		}
		for _, w := range all {
			if err := w.Wait(); err != nil {
				t.Fatalf("%v: %s", err, w.errors)
			}
		}
	}
	if got, _, _ := strings.Cut(readFile(t, path), "\n"); got != "40" {
		t.Errorf("%s updates of 40 are left", got)
	}
}
