//go:build unix

package main

import (
	"os"
	"os/exec"
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
	const workers, times = 8, 10
	dir := t.TempDir()
	count, tokens := filepath.Join(dir, "count"), filepath.Join(dir, "tokens")
	writeFile(t, count, "0\n", 0o600)
	const update = `read n <"$0"; sleep 0.01; echo $((n+1)) >"$0"; echo "$LOCKER_TOKEN" >>"$1"`
	const worker = `i=0; while [ $i -lt "$4" ]; do
		"$0" run -b "$5" count -- sh -c "$1" "$2" "$3" || exit
		i=$((i+1))
	done`
	var all []*process
	for range workers {
		all = append(all, spawn(t, nil, exec.Command("sh", "-c", worker, os.Args[0], update, count, tokens, strconv.Itoa(times), url)))
	}
	for _, p := range all {
		p.ends(0)
	}
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

func TestNoUpdateIsLostOnThisMachine(t *testing.T) {
	t.Parallel()
	noUpdateIsLost(t, "local:"+t.TempDir())
}
