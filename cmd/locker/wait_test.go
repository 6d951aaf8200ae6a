//go:build unix

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/testserver"
)

func TestWaitAsksAStoreAgainThatCannotBeReached(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	url := "redis://" + srv.Addr()
	srv.Kill()
	waiter := launch(t, "run", "-b", url, "--wait", "10m", "x", "--", "sh", "-c", report)
	launch(t, "run", "-b", url, "--wait", "2s", "x", "--", "echo", "ran").complains(69, srv.Addr(), "connection refused") // by then the other has asked, too
	if out := waiter.out.String(); out != "" {
		t.Fatalf("it did not wait for the store: %s", out)
	}
	srv.Start()
	waiter.word("token")
	waiter.goOn()
	waiter.ends(0)
}

// The time that is left is that of the lock's clock, and the pause one of virtual time.
func TestStoreIsAskedAgainEverySecondAndAtLastMoreOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !rest(t.Context(), driver.Now().Add(time.Hour)) || time.Since(began) != time.Second {
			t.Errorf("the pause is %v", time.Since(began))
		}
		began = time.Now()
		if rest(t.Context(), driver.Now().Add(1900*time.Millisecond)); time.Since(began) > 950*time.Millisecond {
			t.Errorf("before the end the pause is %v", time.Since(began))
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if rest(t.Context(), driver.Now()) || rest(over, driver.Now().Add(time.Hour)) {
			t.Error("it is asked again when the time is up")
		}
	})
}

// Ten minutes are more than this test has.
func TestWaitEndsAtOnceWhereAskingAgainChangesNothing(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t, "--requirepass", "right")
	pg := testserver.Postgres(t)
	missing := filepath.Join(t.TempDir(), "missing")
	for url, want := range map[string]string{
		"redis://:" + secret + "@" + srv.Addr(): "WRONGPASS",
		"redis://" + srv.Addr():                 "NOAUTH",
		pg.URL("postgres"):                      "no tables for locks",
		pg.URL("nowhere"):                       "does not exist",
		"local:" + missing:                      "no such file",
	} {
		launch(t, "run", "-b", url, "--wait", "10m", "x", "--", "echo", "ran").complains(77, want)
	}
}

func TestWaitOutlastsTheYouthOfRedlockNodes(t *testing.T) {
	t.Parallel()
	var hosts []string
	for range 3 {
		hosts = append(hosts, testserver.Redis(t).Addr())
	}
	url := "redlock://" + strings.Join(hosts, ",") + "?max_ttl=3s&node_timeout=10s"
	launch(t, "run", "-b", url, "--ttl", "3s", "--wait", "10m", "x", "--", "true").ends(0)
}

func TestTakenLockHasTheExitStatusThatWasChosen(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	holder := launch(t, "run", "-b", url, "x", "--", "sh", "-c", report)
	holder.word("token")
	for text, want := range map[string]int{"0": 0, "1": 1, "255": 255} {
		launch(t, "run", "-b", url, "--no-wait", "--taken-exit", text, "x", "--", "true").complains(want, `"x" is taken`)
	}
	launch(t, "run", "-b", url, "--wait", "300ms", "--taken-exit", "3", "x", "--", "true").complains(3, `"x" is taken`)
	launch(t, "run", "-b", url, "--taken-exit", "3", "other", "--", "sh", "-c", "exit 75").ends(75)
	holder.goOn()
	holder.ends(0)
}

func TestQuietIsSilentAboutATakenLockAndNotAboutErrors(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	url := "redis://" + srv.Addr()
	holder := launch(t, "run", "-b", url, "x", "--", "sh", "-c", report)
	holder.word("token")
	quiet := []*process{
		launch(t, "run", "-b", url, "--quiet", "--no-wait", "x", "--", "true"),
		launch(t, "run", "-b", url, "--quiet", "--wait", "300ms", "x", "--", "true"),
	}
	for _, p := range quiet {
		p.ends(75)
	}
	interrupted := launch(t, "run", "-b", url, "--quiet", "x", "--", "true")
	awaitWaiters(t, url, "x", "1") // no longer one of the quiet
	interrupted.signal(syscall.SIGTERM)
	interrupted.ends(128 + int(syscall.SIGTERM))
	for _, p := range append(quiet, interrupted) {
		if p.errs.String() != "" {
			t.Errorf("%v says %s", p.cmd.Args[1:], p.errs)
		}
	}
	srv.Kill()
	holder.goOn()
	holder.complains(0, "could not be given back")
	launch(t, "run", "-b", url, "--quiet", "x", "--", "true").complains(69, "connection refused")
}

// told runs the command with --status-fd 3 and returns what it wrote there.
func told(t *testing.T, status int, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "why")
	script := `file=$1; shift; exec "$0" run --status-fd 3 "$@" 3>"$file"`
	spawn(t, nil, exec.Command("sh", append([]string{"-c", script, os.Args[0], file}, args...)...)).finishes(status)
	return readFile(t, file)
}

func TestStatusFileTellsTheStatusOfTheCommandFromOurs(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	url := "redis://" + srv.Addr()
	for _, c := range []struct {
		status int
		want   string
		args   []string
	}{
		{0, "command 0\n", []string{"-b", url, "x", "--", "true"}},
		{75, "command 75\n", []string{"-b", url, "x", "--", "sh", "-c", "exit 75"}},
		{70, "command 70\n", []string{"-b", url, "x", "--", "sh", "-c", "exit 70"}},
		{137, "command 137\n", []string{"-b", url, "x", "--", "sh", "-c", "kill -9 $$"}},
		{0, "command 0\n", []string{"-b", url, "x", "--", "sh", "-c", "[ ! -e /proc/self/fd/3 ]"}}, // it is not COMMAND's
		{127, "not-started 127\n", []string{"-b", url, "x", "--", "/no/such/command"}},
		{126, "not-started 126\n", []string{"-b", url, "x", "--", t.TempDir()}},
		{64, "usage 64\n", []string{"-b", "mysql://h", "x", "--", "true"}},
		{70, "lost 70\n", []string{"-b", url, "--max-hold", "1s", "x", "--", "sleep", "600"}},
		{64, "", []string{"-b", url, "--nonsense", "x", "--", "true"}},
	} {
		if got := told(t, c.status, c.args...); got != c.want {
			t.Errorf("%v: it wrote %q, want %q", c.args, got, c.want)
		}
	}
	holder := launch(t, "run", "-b", url, "x", "--", "sh", "-c", report)
	holder.word("token")
	if got := told(t, 75, "-b", url, "--no-wait", "x", "--", "true"); got != "taken 75\n" {
		t.Errorf("of a lock that is taken it wrote %q", got)
	}
	if got := told(t, 3, "-b", url, "--no-wait", "--quiet", "--taken-exit", "3", "x", "--", "true"); got != "taken 3\n" {
		t.Errorf("of a lock that is taken, with a status of our own choice, it wrote %q", got)
	}
	holder.goOn()
	holder.ends(0)
	srv.Kill()
	if got := told(t, 77, "-b", "local:/nonexistent", "x", "--", "true"); got != "refused 77\n" {
		t.Errorf("of a store that refuses it wrote %q", got)
	}
	if got := told(t, 69, "-b", url, "x", "--", "true"); got != "unavailable 69\n" {
		t.Errorf("of a store that is away it wrote %q", got)
	}
}

func TestStatusFileThatIsNotOpenIsWrongUsage(t *testing.T) {
	t.Parallel()
	for _, number := range []string{"3", "4", "5", "6", "7", "8", "9"} { // what Go's runtime opens is among these
		closed := exec.Command("sh", "-c", `exec "$0" "$@" `+number+">&-", os.Args[0], // whoever started the test may have it open
			"run", "--status-fd", number, "-b", "local:"+t.TempDir(), "x", "--", "true")
		spawn(t, nil, closed).complains(64, "--status-fd "+number, number+">FILE")
	}
}

func TestSignalThatEndsTheWaitIsToldToTheStatusFile(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	holder := launch(t, "run", "-b", url, "x", "--", "sh", "-c", report)
	holder.word("token")
	file := filepath.Join(t.TempDir(), "why")
	waiter := spawn(t, nil, exec.Command("sh", "-c", `exec "$0" run --status-fd 3 -b "$1" x -- true 3>"$2"`, os.Args[0], url, file))
	awaitWaiters(t, url, "x", "1")
	waiter.signal(syscall.SIGTERM)
	waiter.complains(143, "ended by a signal")
	if got := readFile(t, file); got != "signal 143\n" {
		t.Errorf("it wrote %q", got)
	}
	holder.goOn()
	holder.ends(0)
}

// What help shows is run as it stands, but for NAME and COMMAND.
func TestExampleOfTheStatusFileInHelpWorks(t *testing.T) {
	t.Parallel()
	help, err := texts.ReadFile("help/run.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(help), "    locker run --no-wait --status-fd 3")
	example, _, found := strings.Cut(example, "    esac\n")
	if !found {
		t.Fatal("there is no example")
	}
	example = strings.Replace("locker run --no-wait --status-fd 3"+example+"esac\n", "NAME -- COMMAND", `x -- sh -c 'exit 75'`, 1)
	bin, url := t.TempDir(), redisURL(t)
	if err := os.Symlink(os.Args[0], filepath.Join(bin, "locker")); err != nil {
		t.Fatal(err)
	}
	env := []string{"LOCKER_BACKEND=" + url, "PATH=" + bin + ":" + os.Getenv("PATH")}
	shell := func() *exec.Cmd {
		cmd := exec.Command("sh", "-c", example)
		cmd.Dir = t.TempDir()
		return cmd
	}
	p := spawn(t, env, shell())
	p.ends(0)
	p.says("COMMAND ended with 75\n")
	holder := launch(t, "run", "-b", url, "x", "--", "sh", "-c", report)
	holder.word("token")
	p = spawn(t, env, shell())
	p.ends(0)
	p.says("somebody else is at it\n")
	holder.goOn()
	holder.ends(0)
}

// Who reads it may have stopped, and a signal would not end us.
func TestStatusFileThatTakesNothingDoesNotHoldUsUp(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for n, all := 1, 0; n > 0 || all == 0; all += n { // until it has taken something, and takes no more
		_ = w.SetWriteDeadline(time.Now().Add(time.Second))
		n, _ = w.Write(make([]byte, 1<<20))
	}
	cmd := exec.Command(os.Args[0], "run", "--status-fd", "3", "-b", "local:"+t.TempDir(), "x", "--", "sh", "-c", "exit 4")
	cmd.ExtraFiles = []*os.File{w}
	spawn(t, nil, cmd).complains(4, "--status-fd 3")
}
