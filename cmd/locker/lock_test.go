//go:build unix

package main

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// locked locks a name in a process that has ended, and returns the handle.
func locked(t *testing.T, url string, args ...string) string {
	t.Helper()
	p := launch(t, append([]string{"lock", "-b", url}, args...)...)
	p.ends(0)
	return strings.TrimSpace(p.out.String())
}

func refusedNow(t *testing.T, url, name string) {
	t.Helper()
	launch(t, "run", "-b", url, "--no-wait", name, "--", "true").ends(75)
}

func TestLockOutlivesItsProcessUntilItsHandleUnlocksIt(t *testing.T) {
	t.Parallel()
	for _, url := range []string{redisURL(t), "file:" + t.TempDir()} {
		file := filepath.Join(t.TempDir(), "handle")
		for how, args := range map[string][]string{
			"as an argument": {""}, "from a file": {"--handle-file", file}, "from standard input": {"-"}, "from the environment": nil,
		} {
			handle := locked(t, url, "x")
			for range 2 {
				refusedNow(t, url, "x")
				for _, verb := range []string{"renew", "unlock"} {
					var env []string
					switch how {
					case "as an argument":
						args = []string{handle}
					case "from a file":
						writeFile(t, file, "\n"+handle+"\n", 0o600)
					case "from the environment":
						env = []string{"LOCKER_HANDLE=" + handle}
					}
					p := launchWith(t, env, append([]string{verb, "-b", url}, args...)...)
					if how == "from standard input" {
						if _, err := io.WriteString(p.in, handle); err != nil {
							t.Fatal(err)
						}
						p.goOn()
					}
					p.ends(0)
					if said := p.out.String() + p.errs.String(); said != "" {
						t.Errorf("%s with a handle %s says %s", verb, how, said)
					}
				}
				free(t, url, "x")
				handle = locked(t, url, "x")
			}
			launch(t, "unlock", "-b", url, handle).ends(0)
		}
	}
}

func TestHandleIsGoodForOneUnlock(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	handle := locked(t, url, "x")
	launch(t, "unlock", "-b", url, handle).ends(0)
	next := locked(t, url, "x")
	for _, verb := range []string{"unlock", "renew"} {
		p := launch(t, verb, "-b", url, handle)
		p.complains(70, `lock "x" lost`)
		if strings.Contains(p.errs.String(), handle) {
			t.Errorf("%s shows the handle: %s", verb, p.errs)
		}
	}
	refusedNow(t, url, "x") // what somebody else has by now was not touched
	launch(t, "unlock", "-b", url, next).ends(0)
}

func TestRenewKeepsTheTokenAndHasTheLockLastForAnotherTTL(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	handle := locked(t, url, "--ttl", "1m", "--holder", "me", "x")
	before := inspected(t, url)
	launch(t, "renew", "-b", url, "--ttl", "1h", handle).ends(0)
	after := inspected(t, url)
	if before.TimeLeft > 60 || after.TimeLeft < 3000 || before.Token == 0 || after.Token != before.Token || before.Holder != "me (detached)" || after.Holder != before.Holder {
		t.Errorf("before: %+v, after: %+v", before, after)
	}
	p := launch(t, "renew", "--json", "-b", url, handle) // with the handle's TTL
	p.ends(0)
	var said struct {
		Name string    `json:"name"`
		End  time.Time `json:"end"`
	}
	if err := json.Unmarshal([]byte(p.out.String()), &said); err != nil || said.Name != "x" || time.Until(said.End) > time.Minute || time.Until(said.End) < -patience {
		t.Errorf("%v in %s", err, p.out)
	}
	if left := inspected(t, url).TimeLeft; left < 3000 {
		t.Errorf("%v s are left: a renewal for a minute has shortened one for an hour", left)
	}
	p = launch(t, "list", "-b", url)
	p.ends(0)
	p.says("me (detached)")
}

func inspected(t *testing.T, url string) (info lockJSON) {
	t.Helper()
	p := launch(t, "inspect", "--json", "-b", url, "x")
	p.ends(0)
	if err := json.Unmarshal([]byte(p.out.String()), &info); err != nil {
		t.Fatal(err)
	}
	return info
}

func TestHandleFileIsForItsOwnerAloneAndTheTokenIsPrinted(t *testing.T) {
	t.Parallel()
	url, dir := redisURL(t), t.TempDir()
	file := filepath.Join(dir, "handle")
	token := locked(t, url, "--handle-file", file, "x")
	if n, err := strconv.ParseUint(token, 10, 64); err != nil || n == 0 {
		t.Errorf("the token is %q", token)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	handle := readFile(t, file)
	launch(t, "lock", "-b", url, "--no-wait", "--handle-file", file, "x").complains(75, `"x" is taken`)
	if readFile(t, file) != handle {
		t.Error("a lock that was not granted has changed the file of another one's handle")
	}
	launch(t, "unlock", "-b", url, "--handle-file", file).ends(0)
	p := launch(t, "lock", "-b", url, "--json", "--handle-file", file, "x")
	p.ends(0)
	var said map[string]any
	if err := json.Unmarshal([]byte(p.out.String()), &said); err != nil || said["name"] != "x" || said["handle"] != nil || said["token"] == "" || said["end"] == "" {
		t.Errorf("%v in %s", err, p.out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("beside the handle there are %v, %v", left, err)
	}
}

func TestLockIsGivenBackIfNobodyGetsItsHandle(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	full := exec.Command("sh", "-c", `exec "$0" lock -b "$1" x >/dev/full`, os.Args[0], url)
	spawn(t, nil, full).complains(74, "output", "no space left")
	free(t, url, "x")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	unread := exec.Command("sh", "-c", `exec "$0" lock -b "$1" x >&3`, os.Args[0], url)
	unread.ExtraFiles = []*os.File{w}
	spawn(t, nil, unread).complains(74, "output", "broken pipe")
	free(t, url, "x")
	launch(t, "lock", "-b", url, "--handle-file", "/nonexistent/handle", "x").complains(74, "/nonexistent")
	free(t, url, "x")
}

func TestWrongHandleIsStatus64AndIsNotShown(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	handle := locked(t, url, "x")
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "HANDLE is missing"},
		{[]string{handle[:len(handle)-4]}, "damaged"},
		{[]string{"x"}, "no handle"},
		{[]string{""}, "empty"},
		{[]string{handle, handle}, "too many"},
		{[]string{"--handle-file", "/nonexistent/handle"}, "no such file"},
		{[]string{"--handle-file", "/dev/null", handle}, "exclude each other"},
	} {
		for _, verb := range []string{"renew", "unlock"} {
			p := launch(t, append([]string{verb, "-b", url}, c.args...)...)
			p.complains(64, c.want)
			if strings.Contains(p.errs.String(), handle[:len(handle)-4]) {
				t.Errorf("%s shows the handle: %s", verb, p.errs)
			}
		}
	}
	launch(t, "unlock", "-b", "file:"+t.TempDir(), handle).complains(64, "on singlenode, and this is file")
	launch(t, "unlock", "-b", url, handle).ends(0)
}

func TestLockSaysWhereItsLocksWouldEndWithItsProcess(t *testing.T) {
	t.Parallel()
	p := launchWith(t, []string{"XDG_RUNTIME_DIR=" + t.TempDir()}, "lock", "x")
	p.complains(64, "local:", "file:DIR")
	launch(t, "lock", "-b", "local:"+t.TempDir(), "x").complains(64, "local:", "file:DIR")
}

func TestTakenLockAndAWaitNameTheHolder(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	holder := launch(t, "run", "-b", url, "--holder", "the first", "x", "--", "sh", "-c", report)
	token := holder.word("token")
	for _, verb := range [][]string{{"run", "-b", url, "--no-wait", "x", "--", "true"}, {"run", "-b", url, "--wait", "10ms", "x", "y", "--", "true"}, {"lock", "-b", url, "--no-wait", "x"}} {
		launch(t, verb...).complains(75, `"the first" has it, with token `+token)
	}
	waiter := launch(t, "run", "-b", url, "x", "--", "true") // on no terminal
	waiter.errs.await(func(s string) bool { return strings.Contains(s, "\n") })
	holder.goOn()
	holder.ends(0)
	waiter.complains(0, `waiting for the lock "x" since `, `"the first" has it, with token `+token)
}

func TestUnlockByForceSaysFromWhom(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	locked(t, url, "--holder", "the first", "x")
	p := launch(t, "unlock", "-b", url, "--force", "x")
	p.ends(0)
	p.says(`"x" was taken from its holder: token `)
	p.says(`"the first (detached)"`)
	locked(t, url, "--holder", "the second", "x")
	p = launch(t, "unlock", "-b", url, "--json", "--force", "x")
	p.ends(0)
	p.says(`"was_held":true,"holders":[{"holder":"the second (detached)","token":"`)
}

func TestLockThatIsKeptForItsMinimumHoldIsShownAsNobodys(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	launch(t, "run", "-b", url, "--min-hold", "10m", "--holder", "me", "x", "--", "true").ends(0)
	p := launch(t, "inspect", "-b", url, "x")
	p.ends(0)
	p.says("kept by nobody until ")
	p.says(`last holder:  "me"`)
	launch(t, "run", "-b", url, "--no-wait", "x", "--", "true").complains(75, "nobody has it", "minimum hold")
	if info := inspected(t, url); !info.Kept || !info.Held {
		t.Errorf("%+v", info)
	}
}

func TestDefaultDirectoryIsNamedUntilALockWasTakenThere(t *testing.T) {
	t.Parallel()
	env := []string{"XDG_RUNTIME_DIR=" + t.TempDir()}
	launchWith(t, env, "inspect", "x").complains(0, env[0][len("XDG_RUNTIME_DIR="):]+"/lockstile", "other users")
	launchWith(t, env, "run", "--quiet", "x", "--", "true").ends(0)
	p := launchWith(t, env, "run", "x", "--", "true")
	p.ends(0)
	if p.errs.String() != "" {
		t.Errorf("it says so again: %s", p.errs)
	}
}
