//go:build unix

// Package upgrade has two builds of the command share a store, as during a rolling upgrade.
package upgrade

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/testserver"
)

// lastLayout is the commit whose layouts in stores must go with those of today. From 1.0 on it is the latest release's; a
// change of a layout before that moves it, and the changelog says so.
const lastLayout = "df25dc7"

// build makes the command of a commit, or of the working tree if it is "".
func build(t *testing.T, commit string) string {
	t.Helper()
	root, command := "../..", filepath.Join(t.TempDir(), "locker")
	if commit != "" {
		root = t.TempDir()
		archive := exec.CommandContext(t.Context(), "sh", "-c", `git -C ../.. archive "$1" | tar -x -C "$2"`, "sh", commit, root)
		if out, err := archive.CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("%s is not in this clone (git fetch --unshallow): %v: %s", commit, err, out)
		}
	}
	compile := exec.CommandContext(t.Context(), "go", "build", "-o", command, "./cmd/locker")
	compile.Dir = root
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return command
}

// stores are the URLs of one store of each kind.
func stores(t *testing.T) map[string]string {
	t.Helper()
	var nodes, keepers []string
	for range 3 {
		nodes = append(nodes, testserver.Redis(t).Addr())
	}
	for _, s := range testserver.ZooKeeper(t, 1) {
		keepers = append(keepers, s.Addr())
	}
	return map[string]string{
		"local":             "local:" + t.TempDir(),
		"redis":             "redis://" + testserver.Redis(t).Addr(),
		"redlock":           "redlock://" + strings.Join(nodes, ",") + "/0?max_ttl=5s",
		"etcd":              "etcd://" + testserver.Etcd(t, 1).Members[0].Addr(),
		"zookeeper":         "zk://" + strings.Join(keepers, ",") + "?session_timeout=4s",
		"postgres leases":   testserver.Postgres(t).URL("postgres") + "&schema=ensure",
		"postgres sessions": testserver.Postgres(t).URL("postgres") + "&mode=session&schema=ensure", // another: a name is one lock there
	}
}

// holder is a process that has the lock until it is told to end.
type holder struct {
	token uint64
	end   func() error
}

// lock starts a process that locks the name x, and returns when it has the lock.
func lock(t *testing.T, command, url string, flags ...string) (holder, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	args := append([]string{"run", "-b", url, "--ttl", "5s", "--quiet"}, flags...)
	cmd := exec.CommandContext(ctx, command, append(args, "x", "--", "sh", "-c", `echo "${LOCKER_TOKEN}${LOCKER_SHARED_TOKEN}"; cat >/dev/null`)...) //nolint:gosec // ours
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		err = fmt.Errorf("%w: %s", cmd.Wait(), said.String())
		cancel()
		return holder{}, err
	}
	token, err := strconv.ParseUint(strings.TrimSpace(line), 10, 64)
	return holder{token, func() error {
		defer cancel()
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		return cmd.Wait()
	}}, err
}

// Goal: during a rolling upgrade, when processes of two versions share a store, they exclude each other, and tokens go on.
func TestTwoBuildsExcludeEachOther(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make proof: the last layout's build beside today's")
	}
	before, now := build(t, lastLayout), build(t, "")
	for name, url := range stores(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &meeting{T: t, url: url}
			for _, kind := range [][]string{nil, {"--shared"}, {"--slots", "1"}} {
				m.play(before, now, kind)
				m.play(now, before, kind)
			}
		})
	}
}

// meeting is of two builds, at one store.
type meeting struct {
	*testing.T
	url  string
	last uint64 // token
}

// play has one build hold the lock, and another one try it and wait for it.
func (m *meeting) play(first, second string, kind []string) {
	held, err := lock(m.T, first, m.url, kind...)
	if err != nil && kind != nil && strings.Contains(err.Error(), "there are no") {
		return // such locks on this backend
	}
	m.later(held, err, "the first")
	rival := kind
	if kind != nil && kind[0] == "--shared" {
		rival = nil // a writer
		beside, err := lock(m.T, second, m.url, "--shared", "--no-wait")
		if err != nil {
			m.Fatalf("a reader of another build beside a reader: %v", err)
		}
		m.end(beside)
	}
	if _, err := lock(m.T, second, m.url, append([]string{"--no-wait"}, rival...)...); err == nil || !strings.Contains(err.Error(), "exit status 75") {
		m.Errorf("%v: another build's lock beside it: %v, want that it is taken", kind, err)
	}
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		next, err := lock(m.T, second, m.url, rival...)
		if err != nil {
			m.Errorf("%v: the waiter of another build: %v", kind, err)
			return
		}
		m.later(next, err, "the waiter")
		m.end(next)
	}()
	select {
	case <-waited:
		m.Errorf("%v: another build has not waited", kind)
	case <-time.After(time.Second): // it waits by now, or is just about to
	}
	m.end(held)
	<-waited
}

// later fails the test unless a lock has come, with a token above all before.
func (m *meeting) later(h holder, err error, who string) {
	m.Helper()
	if err != nil || h.token <= m.last {
		m.Errorf("%s: token %d after %d, %v", who, h.token, m.last, err)
	}
	m.last = max(m.last, h.token)
}

func (m *meeting) end(h holder) {
	m.Helper()
	if h.end == nil {
		return
	}
	if err := h.end(); err != nil {
		m.Errorf("a holder has ended with: %v", err)
	}
}
