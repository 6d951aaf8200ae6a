//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Eight workers read, wait and write one file, each time in a command of its
// own under the lock. Without exclusion updates are lost; each one's place in
// the file of tokens is that of its grant.
func noUpdateIsLost(t *testing.T, url string) {
	t.Helper()
	const workers, times = 8, 25
	dir := t.TempDir()
	count, tokens := filepath.Join(dir, "count"), filepath.Join(dir, "tokens")
	writeFile(t, count, "0\n", 0o600)
	const script = `read n <"$0"; sleep 0.01; echo $((n+1)) >"$0"; echo "$LOCKER_TOKEN" >>"$1"`
	t.Run("workers", func(t *testing.T) { // ends when they all have
		for range workers {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for range times {
					launch(t, "run", "-b", url, "count", "--", "sh", "-c", script, count, tokens).ends(0)
				}
			})
		}
	})
	if got := strings.TrimSpace(readFile(t, count)); got != strconv.Itoa(workers*times) {
		t.Errorf("%d updates made %s", workers*times, got)
	}
	var last uint64
	for line := range strings.Lines(readFile(t, tokens)) {
		token, err := strconv.ParseUint(strings.TrimSpace(line), 10, 64)
		if err != nil || token <= last {
			t.Errorf("token %q after %d: %v", line, last, err)
		}
		last = token
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestNoUpdateIsLostOnRedis(t *testing.T) {
	t.Parallel()
	noUpdateIsLost(t, redisURL(t))
}
