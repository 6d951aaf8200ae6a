//go:build unix

package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// Nothing of this reaches a store: there is none at that address.
func TestWrongUsageIsStatus64AndSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	const url = "redis://u:" + secret + "@127.0.0.1:1"
	for _, c := range []struct {
		args  []string
		wants []string
	}{
		{nil, []string{"run, lock, renew, unlock", "locker help"}},
		{[]string{"lsit"}, []string{`"lsit"`, "did you mean list?", "run, lock, renew, unlock"}},
		{[]string{"xyz"}, []string{`"xyz": use one of`}},
		{[]string{"run", "--nowait", "x", "--", "true"}, []string{"--nowait (did you mean --no-wait?)"}},
		{[]string{"run", "--tll", "3s", "x", "--", "true"}, []string{"--tll (did you mean --ttl?)"}},
		{[]string{"run", "-b", url, "-b", url, "x", "--", "true"}, []string{"-b is given more than once"}},
		{[]string{"-b", url, "run", "-b", url, "x", "--", "true"}, []string{"-b is given more than once"}},
		{[]string{"run", "x", "-5", "--ttl", "3s", "--", "true"}, []string{"-5", "goes behind --"}},
		{[]string{"run"}, []string{"NAME is missing", "locker help run"}},
		{[]string{"run", "--"}, []string{"NAME is missing"}},
		{[]string{"run", "--", "true"}, []string{"NAME is missing"}},
		{[]string{"run", "x"}, []string{`"x"`, "--", "COMMAND"}},
		{[]string{"run", "x", "--"}, []string{`"x"`, "COMMAND"}},
		{[]string{"run", "x", "true"}, []string{"--", "COMMAND"}},
		{[]string{"run", "--", "x", "y"}, []string{"--", "COMMAND"}},
		{[]string{"run", "--", "--", "true"}, []string{"NAME is missing"}},
		{[]string{"run", "x", "", "--", "true"}, []string{"name", "empty"}},
		{[]string{"run", "x", "y\nz", "--", "true"}, []string{"line end"}},
		{append(append([]string{"run"}, strings.Split(strings.Repeat("x", 65), "")...), "--", "true"), []string{"65 names", "64"}},
		{[]string{"run", "--shared", "--slots", "2", "x", "--", "true"}, []string{"--shared", "--slots"}},
		{[]string{"run", "--slots", "0", "x", "--", "true"}, []string{"slots", "from 1 to 1024"}},
		{[]string{"run", "--shared", "--min-hold", "1s", "x", "--", "true"}, []string{"--min-hold", "--shared"}},
		{[]string{"run", "--slots", "2", "--min-hold", "1s", "x", "--", "true"}, []string{"--min-hold", "--slots"}},
		{[]string{"unlock", "--force", "--token", "0", "x"}, []string{"token", "above 0"}},
		{[]string{"unlock", "--force", "--token", "x", "x"}, []string{"token", `"x"`}},
		{[]string{"unlock", "--token", "7", "x"}, []string{"--token goes with --force"}},
		{[]string{"run", "x", "--", ""}, []string{"COMMAND is empty"}},
		{[]string{"run", "-name", "--", "true"}, []string{"-name"}},
		{[]string{"run", "--nonsense", "x", "--", "true"}, []string{"there is no flag --nonsense; "}},
		{[]string{"run", "", "--", "true"}, []string{"name", "empty"}},
		{[]string{"run", strings.Repeat("n", locker.MaxName+1), "--", "true"}, []string{"name", "513 bytes", "512"}},
		{[]string{"run", "a\xffb", "--", "true"}, []string{"name", "UTF-8"}},
		{[]string{"run", "--ttl", "soon", "x", "--", "true"}, []string{`"soon"`, "ttl", "duration"}},
		{[]string{"run", "--wait", "soon", "x", "--", "true"}, []string{`"soon"`, "wait", "duration"}},
		{[]string{"run", "--wait", "0s", "x", "--", "true"}, []string{"wait", "above zero"}},
		{[]string{"run", "--max-hold", "-1s", "x", "--", "true"}, []string{"max-hold", "above zero"}},
		{[]string{"run", "--max-hold", "1ms", "x", "--", "true"}, []string{"--max-hold 1ms", "100ms"}},
		{[]string{"run", "--min-hold", "2m", "--max-hold", "1m", "x", "--", "true"}, []string{"--min-hold 2m", "--max-hold 1m"}},
		{[]string{"run", "--min-hold", "25h", "x", "--", "true"}, []string{"minimum hold 25h", "24h"}},
		{[]string{"run", "--taken-exit", "256", "x", "--", "true"}, []string{"taken-exit", "from 0 to 255"}},
		{[]string{"run", "--taken-exit", "-1", "x", "--", "true"}, []string{"taken-exit", "from 0 to 255"}},
		{[]string{"run", "--taken-exit", "no", "x", "--", "true"}, []string{"taken-exit", `"no"`}},
		{[]string{"run", "--status-fd", "0", "x", "--", "true"}, []string{"status-fd", "from 1"}},
		{[]string{"list", "x", "y"}, []string{`"y"`}},
		{[]string{"run", "--wait", "1s", "--no-wait", "x", "--", "true"}, []string{"--wait", "--no-wait"}},
		{[]string{"run", "-b", "", "x", "--", "true"}, []string{"-b", "empty"}},
		{[]string{"run", "--ttl", "1ms", "x", "--", "true"}, []string{"ttl 1ms", "100ms"}},
		{[]string{"run", "--ttl", "48h", "x", "--", "true"}, []string{"ttl 48h", "24h"}},
		{[]string{"inspect"}, []string{"NAME is missing", "locker help inspect"}},
		{[]string{"inspect", "x", "y"}, []string{`"y"`}},
		{[]string{"inspect", "--force", "x"}, []string{"-force"}},
		{[]string{"unlock", "--force"}, []string{"NAME is missing"}},
		{[]string{"backends", "x"}, []string{`"x"`}},
		{[]string{"help", "lcok"}, []string{`"lcok"`, "did you mean lock?"}},
	} {
		p := launchWith(t, []string{"LOCKER_BACKEND=" + url}, c.args...)
		p.complains(64, c.wants...)
		if p.out.String() != "" {
			t.Errorf("%q: this belongs on stderr: %s", c.args, p.out)
		}
	}
}

// The greatest and the smallest of what is allowed.
func TestLimitsOfFlagsAreAllowed(t *testing.T) {
	t.Parallel()
	names := make([]string, locker.MaxSet)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	for _, args := range [][]string{
		append(names, "--", "true"),
		{"--max-hold", "100ms", "x", "--", "true"},
		{"--ttl", "100ms", "x", "--", "true"},
		{"--slots", "1", "x", "--", "true"},
		{"--slots", "1024", "x", "--", "true"},
	} {
		if err := newProgram().parse(append([]string{"run"}, args...)); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// It mostly is a variable that is not set, and what was meant is another store.
func TestEmptyBackendInTheEnvironmentIsStatus64(t *testing.T) {
	t.Parallel()
	env := []string{"LOCKER_BACKEND=", "XDG_RUNTIME_DIR=" + t.TempDir()}
	for _, args := range [][]string{
		{"run", "x", "--", "echo", "ran"}, {"inspect", "x"}, {"unlock", "--force", "x"}, {"list"}, {"doctor"}, {"bench", "--time", "1ms"},
	} {
		p := launchWith(t, env, args...)
		p.complains(64, "LOCKER_BACKEND", "empty", "unset")
		if p.out.String() != "" {
			t.Errorf("%v: %s", args, p.out)
		}
	}
	launchWith(t, env, "run", "-b", "local:"+t.TempDir(), "x", "--", "true").ends(0)
	launchWith(t, env, "run", "--help").ends(0)
	launchWith(t, env, "backends").ends(0)
}

func TestNameMayBeginWithADash(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	p := launch(t, "run", "-b", url, "--", "--name", "--", "sh", "-c", `echo "name $LOCKER_NAME"`)
	p.ends(0)
	if got := p.word("name"); got != "--name" {
		t.Errorf("LOCKER_NAME is %q", got)
	}
	free(t, url, "--name")
}

func TestArgumentsOfTheCommandAreItsOwn(t *testing.T) {
	t.Parallel()
	p := launch(t, "run", "x", "-b", redisURL(t), "--", "echo", "--ttl", "--", "-b", "--help")
	p.ends(0)
	p.says("--ttl -- -b --help\n")
}

func TestWrongURLIsStatus64AndShowsNoPassword(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"mysql://u:" + secret + "@h":          `"mysql"`,
		"u:" + secret + "@h":                  "no scheme that is known",
		secret:                                "no scheme",
		"redis://u:" + secret + "/@h":         "%2F",
		"redis://u:" + secret + "@h:x":        "port",
		"redis://u:" + secret + "@h?n=1":      "n",
		"redis-sentinel://u:" + secret + "@h": "master",
		"redlock://u:" + secret + "@h1,h2":    "redlock",
		"etcd://u:" + secret + "@h/x":         "prefix",
		"zk://u:" + secret + "@h?n=1":         `"n"`,
		"postgres://u:" + secret + "@h:x":     "port",
	} {
		launch(t, "run", "-b", url, "x", "--", "true").complains(64, want, "-b or LOCKER_BACKEND")
		launchWith(t, []string{"LOCKER_BACKEND=" + url}, "inspect", "x").complains(64, want)
	}
}

func TestStoreThatCannotServeIsNamed(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t, "--requirepass", "right")
	gone := testserver.Redis(t)
	gone.Kill()
	for _, c := range []struct {
		url, addr, want string
		status          int
	}{
		{"redis://u:" + secret + "@" + gone.Addr(), gone.Addr(), "connection refused", 69},
		{"redis://:" + secret + "@" + srv.Addr(), srv.Addr(), "WRONGPASS", 77},
		{"rediss://:" + secret + "@" + srv.Addr(), srv.Addr(), "TLS", 69},
		{"redis://" + srv.Addr(), srv.Addr(), "NOAUTH", 77},
		{"redis-sentinel://:" + secret + "@" + gone.Addr() + "/m?sentinel_password=" + secret, gone.Addr(), "connection refused", 69},
		{"redis-cluster://:" + secret + "@" + gone.Addr(), gone.Addr(), "connection refused", 69},
	} {
		launchWith(t, []string{"LOCKER_BACKEND=" + c.url}, "run", "x", "--", "echo", "ran").complains(c.status, c.want, c.addr)
		launchWith(t, []string{"LOCKER_BACKEND=" + c.url}, "unlock", "--force", "x").complains(c.status, c.want, c.addr)
	}
	if got := srv.Do("KEYS", "*"); got != "" {
		t.Errorf("a server that refused has %q", got)
	}
}

func TestReplicaThatTakesNoWritesIsStatus69(t *testing.T) {
	t.Parallel()
	master := testserver.Redis(t, "--repl-diskless-sync-delay", "0")
	host, port, _ := strings.Cut(master.Addr(), ":")
	replica := testserver.Redis(t, "--replicaof", host, port)
	url := "redis://" + replica.Addr()
	launch(t, "run", "-b", url, "x", "--", "echo", "ran").complains(69, `"x"`, "READONLY")
	if got := master.Do("KEYS", "*"); got != "" {
		t.Errorf("the master has %q", got)
	}
	holder := launch(t, "run", "-b", "redis://"+master.Addr(), "x", "--", "sh", "-c", report)
	holder.word("token")
	waitFor(t, "the replica", func() bool { return replica.Do("EXISTS", "x") == "1" })
	launch(t, "unlock", "-b", url, "--force", "x").complains(69, `"x"`, "READONLY")
	holder.goOn()
	holder.ends(0)
}

func TestHelpMentionsEveryFlagAndStatus(t *testing.T) {
	t.Parallel()
	for _, c := range newProgram().Commands {
		for _, args := range [][]string{{"help", c.Name}, {c.Name, "--help"}, {c.Name, "-h"}, {c.Name, "x", "--help"}} {
			p := launchWith(t, []string{"LOCKER_BACKEND=redis://u:" + secret + "@h"}, args...)
			p.ends(0)
			for _, f := range c.Flags {
				form, _, _ := strings.Cut(f.String(), "\t")
				p.says("\n  " + form + "  ")
			}
		}
	}
	for _, args := range [][]string{{"help"}, {"--help"}, {"-help"}, {"-h"}} {
		p := launch(t, args...)
		p.ends(0)
		for _, c := range newProgram().VisibleCommands() {
			p.says("locker " + c.Name)
		}
		for _, status := range []string{"64", "69", "70", "75", "77", "126", "127", "128 + n"} {
			p.says(status)
		}
	}
}

func TestVersionIsTold(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"version", "--version"} {
		p := launch(t, arg)
		p.ends(0)
		p.says("locker ")
		p.says(" go1.")
	}
}
