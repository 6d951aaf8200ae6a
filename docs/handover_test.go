package docs_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/lockstile/locker/internal/process"
	"github.com/lockstile/locker/internal/testserver"
)

// refused checks that nobody gets a lock now.
func refused(t *testing.T, env []string, name string) {
	t.Helper()
	start(t, env, "locker", "run", "--no-wait", name, "--", "true").Ends(75)
}

func granted(t *testing.T, env []string, name string) {
	t.Helper()
	start(t, env, "locker", "run", name, "--", "true").Ends(0)
}

var step = regexp.MustCompile(`run: (.*)`)

// Method: each step is a shell of its own, as it is on the platform.
func TestStepsOfAJobHaveOneLock(t *testing.T) {
	t.Parallel()
	temp, folder := t.TempDir(), t.TempDir()
	script(t, folder, "deploy", `echo "deploys with $2"`)
	script(t, folder, "check", `echo checks`)
	env := []string{"LOCKER_BACKEND=redis://" + testserver.Redis(t).Addr(), "RUNNER_TEMP=" + temp, "GITHUB_RUN_ID=7"}
	steps := step.FindAllStringSubmatch(only(t, "yaml", "locker lock"), -1)
	if len(steps) != 5 {
		t.Fatalf("%d steps", len(steps))
	}
	for i, s := range steps {
		cmd := exec.Command("sh", "-c", s[1])
		cmd.Dir = folder
		p := launch(t, env, cmd)
		p.Ends(0)
		if i == 1 {
			token := strings.TrimSpace(page(t, filepath.Join(temp, "token")))
			if _, err := strconv.ParseUint(token, 10, 64); err != nil {
				t.Error(err)
			}
			p.Says("deploys with " + token)
		}
		if i < len(steps)-1 {
			refused(t, env, "production")
		}
	}
	shown := start(t, env, "locker", "inspect", "production")
	shown.Ends(0)
	shown.Says("held:        no")
	again := exec.Command("sh", "-c", steps[3][1]) // the lock of the handle has ended
	launch(t, env, exec.Command("sh", "-c", steps[2][1])).Ends(70)
	again.Dir = folder
	launch(t, env, again).Ends(0)
}

func TestScriptGivesItsLockBackHoweverItEnds(t *testing.T) {
	t.Parallel()
	text := only(t, "sh", "make-copy")
	for ends, copies := range map[string]struct {
		status int
		copy   string
	}{
		"well":           {0, "echo copies"},
		"with an error":  {3, "exit 3"},
		"after a signal": {1, "kill -TERM $PPID"},
		"without a lock": {70, "locker unlock --force copy"},
	} {
		t.Run(ends, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			script(t, folder, "make-copy", copies.copy)
			script(t, folder, "check-copy", "echo checks")
			script(t, folder, "copies", strings.TrimPrefix(text, "#!/bin/sh\n"))
			env := []string{"LOCKER_BACKEND=file:" + t.TempDir(), "PATH=" + folder + ":" + bin(t) + ":/usr/bin:/bin"}
			launch(t, env, exec.Command(filepath.Join(folder, "copies"))).Ends(copies.status)
			start(t, env, "locker", "run", "--no-wait", "copy", "--", "true").Ends(0)
		})
	}
}

var works = regexp.MustCompile(`works under token (\d+)\n`)

// calls starts the function that is frozen between its calls, and returns how to call it.
func calls(t *testing.T, env []string) (p *process.Process, call func() (token uint64), end func()) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(r.Close(), w.Close()) })
	cmd := exec.Command(filepath.Join(bin(t), "frozen"))
	cmd.Stdin = r
	p = launch(t, env, cmd)
	end = func() {
		t.Helper()
		if _, err := io.WriteString(w, "\n"); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	call = func() uint64 {
		t.Helper()
		end() // a line of its own begins it
		n++
		p.Wait("it works", func() bool { return len(works.FindAllString(p.Said(), -1)) == n })
		token, err := strconv.ParseUint(works.FindAllStringSubmatch(p.Said(), -1)[n-1][1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	return p, call, end
}

func TestFunctionThatIsFrozenBetweenCallsGoesOnWithItsLock(t *testing.T) {
	t.Parallel()
	env := []string{"LOCKER_BACKEND=redis://" + testserver.Redis(t).Addr(), "TTL=1h"}
	p, call, end := calls(t, env)
	first := call()
	end()
	p.SaysTimes("done", 1)
	p.Pause()
	refused(t, env, "sequence")
	p.Signal(syscall.SIGCONT)
	second := call()
	end()
	p.SaysTimes("done", 2)
	p.Pause()
	start(t, env, "locker", "unlock", "--force", "sequence").Ends(0)
	granted(t, env, "sequence")
	p.Signal(syscall.SIGCONT)
	third := call()
	if second <= first || third <= second {
		t.Errorf("the calls have the tokens %d, %d and %d", first, second, third)
	}
}

func TestFunctionThatWasFrozenWithinACallFindsItsLockLost(t *testing.T) {
	t.Parallel()
	env := []string{"LOCKER_BACKEND=redis://" + testserver.Redis(t).Addr(), "TTL=1s"}
	p, call, end := calls(t, env)
	first := call()
	p.Pause()
	granted(t, env, "sequence") // once the lease has ended
	p.Signal(syscall.SIGCONT)
	end()
	p.Says("lost")
	if p.Count("done") > 0 {
		t.Errorf("what it did without its lock counts:\n%s", p.Said())
	}
	if second := call(); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
}

func TestLeaderThatRestartsGoesOnWithoutAGap(t *testing.T) {
	t.Parallel()
	env, file := []string{"LOCKER_BACKEND=redis://" + testserver.Redis(t).Addr()}, filepath.Join(t.TempDir(), "handle")
	leader := start(t, env, "restarts", file)
	token := term(t, leader, 1)
	waits := start(t, env, "restarts", filepath.Join(t.TempDir(), "handle"))
	for range 3 {
		leader.Signal(syscall.SIGTERM)
		leader.Ends(0)
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the handle is in %v, error %v", info, err)
		}
		leader = start(t, env, "restarts", file)
		next := term(t, leader, 1)
		if next <= token {
			t.Errorf("token %d after %d", next, token)
		}
		token = next
	}
	if waits.Count("leads") > 0 {
		t.Errorf("another replica led between:\n%s", waits.Said())
	}
	start(t, env, "locker", "unlock", "--force", "leader").Ends(0)
	if next := term(t, waits, 1); next <= token {
		t.Errorf("token %d after %d", next, token)
	}
}

// Goal: three agents count in one file, and no count is lost.
func TestAgentsTakeAFileInTurns(t *testing.T) {
	t.Parallel()
	folder, tools := t.TempDir(), t.TempDir()
	script(t, tools, "take", strings.TrimPrefix(only(t, "sh", "take FILE"), "#!/bin/sh\n"))
	script(t, tools, "put", strings.TrimPrefix(only(t, "sh", "put FILE: it is"), "#!/bin/sh\n"))
	count := filepath.Join(folder, "count")
	if err := os.WriteFile(count, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	const rounds = 5
	script(t, tools, "agent", fmt.Sprintf(`set -e
for i in $(seq %d); do
	take count >/dev/null
	n=$(cat count); sleep 0.05; echo $((n + 1)) >count
	put count
done`, rounds))
	in := func(agent, command string) *process.Process {
		cmd := exec.Command("sh", "-ec", command)
		cmd.Dir = folder
		return launch(t, []string{"ROOT=" + folder, "AGENT=" + agent, "PATH=" + tools + ":" + bin(t) + ":/usr/bin:/bin"}, cmd)
	}
	for _, p := range []*process.Process{in("a", "agent"), in("b", "agent"), in("c", "agent")} {
		p.Ends(0)
	}
	if got := strings.TrimSpace(page(t, count)); got != strconv.Itoa(3*rounds) {
		t.Errorf("they have counted to %s, want %d", got, 3*rounds)
	}
	in("a", "put count").Ends(70) // it was put before
	in("a", "take dir/b:c").Ends(0)
	in("a", "take dir/b/c").Ends(0)
	in("a:dir", "take d").Ends(0)
	in("b", "mkdir sub; cd sub; timeout 1 take ../dir//b:c").Ends(124) // it waits: that is the same file
	in("a", "put dir/b/c; cd sub; put ../dir/b:c").Ends(0)
	in("a:dir", "put d").Ends(0)
}
