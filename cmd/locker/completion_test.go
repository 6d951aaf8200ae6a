//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/testserver"
)

// completer returns what the tab key offers in a shell that has loaded our script, at the
// end of a line.
func completer(t *testing.T, shell, ask string) func(line string) []string {
	t.Helper()
	path, err := exec.LookPath(shell)
	if err != nil {
		t.Skipf("there is no %s here: %v", shell, err)
	}
	bin := t.TempDir()
	if err := os.Symlink(os.Args[0], filepath.Join(bin, "locker")); err != nil {
		t.Fatal(err)
	}
	script := launch(t, "completion", shell)
	script.ends(0)
	file := filepath.Join(bin, "script")
	writeFile(t, file, script.out.String(), 0o600)
	return func(line string) []string {
		t.Helper()
		p := spawn(t, []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "LOCKER_BACKEND=local:" + bin}, exec.Command(path, "-c", ask, line, file, line))
		p.finishes(0)
		p.out.ends()
		if p.errs.String() != "" {
			t.Errorf("%s complains about %q: %s", shell, line, p.errs)
		}
		return strings.Fields(p.out.String())
	}
}

const askBash = `source "$1"; COMP_LINE=$2 COMP_POINT=${#2}; _locker locker; printf '%s\n' "${COMPREPLY[@]}"`

// compadd works in the line editor only.
const askZsh = `compdef() { :; }; _default() { :; }; compadd() { while [[ $1 != -- ]]; do shift; done; shift; print -rl -- "$@"; }
	source "$1"; words=("${(@)${(s: :)2}}"); [[ $2 == *' ' ]] && words+=(""); CURRENT=$#words; _locker`

const askFish = `source $argv[2]; complete -C $argv[3] | cut -f1`

func completesCommandsAndFlags(t *testing.T, complete func(line string) []string) {
	t.Helper()
	for line, want := range map[string]string{
		"locker ins":                          "inspect",
		"locker run --max":                    "--max-hold",
		"locker run --ttl 3s --no":            "--no-wait",
		"locker help comple":                  "completion",
		"locker completion b":                 "bash",
		"locker inspect -b local:/tmp --json": "--json",
	} {
		if got := strings.Join(complete(line), " "); got != want {
			t.Errorf("%q is completed by %q, want %q", line, got, want)
		}
	}
	all := complete("locker ")
	for _, e := range newProgram().VisibleCommands() {
		if !strings.Contains(" "+strings.Join(all, " ")+" ", " "+e.Name+" ") {
			t.Errorf("%q is not among the commands: %v", e.Name, all)
		}
	}
}

func TestBashCompletesCommandsFlagsAndNames(t *testing.T) {
	t.Parallel()
	complete := completer(t, "bash", askBash)
	completesCommandsAndFlags(t, complete)
	dir := t.TempDir()
	for _, name := range []string{"tenant:42", "tenant:7/x", "a name with spaces", "$(touch x)", "--force"} {
		launch(t, "run", "-b", "local:"+dir, "--", name, "--", "sh", "-c", report).word("token")
	}
	for line, want := range map[string]string{
		"locker inspect -b local:" + dir + " ":         "tenant:42 tenant:7/x", // and no name that bash would take apart, or we for a flag
		"locker inspect -b local:" + dir + " tenant:4": "42",                   // bash has a word end at a colon
		"locker run -b local:" + dir + " t":            "tenant:42 tenant:7/x",
		"locker run -b local:" + dir + " x ":           "-- tenant:42 tenant:7/x",
		"locker run -b local:" + dir + " x tenant:7":   "7/x",
		"locker run -b local:" + dir + " x -- t":       "", // bash completes a path
		"locker list -b local:" + dir + " tenant:42 ":  "",
		"locker doctor -b local:" + dir + " ":          "", // takes no NAME
		"locker inspect -b ":                           "",
		"locker inspect -b nonsense:x ":                "",
		"locker nonsense ":                             "",
	} {
		if got := strings.Join(complete(line), " "); got != want {
			t.Errorf("%q is completed by %q, want %q", line, got, want)
		}
	}
}

func TestCommandsCompleteALineThatIsEmpty(t *testing.T) {
	t.Parallel()
	p := launch(t, "__complete")
	p.ends(0)
	p.says("run\trun COMMAND")
}

func TestZshCompletesCommandsAndFlags(t *testing.T) {
	t.Parallel()
	completesCommandsAndFlags(t, completer(t, "zsh", askZsh))
}

func TestFishCompletesCommandsAndFlags(t *testing.T) {
	t.Parallel()
	completesCommandsAndFlags(t, completer(t, "fish", askFish))
}

func TestCompletionKnowsOnlySomeShells(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"completion"}, {"completion", "tcsh"}, {"completion", "bash", "zsh"}} {
		launch(t, args...).complains(64, "completion")
	}
	launch(t, "completion").complains(64, "bash, fish, zsh")
}

// Package open waits for a server that hangs for five seconds.
func TestTabKeyDoesNotWaitForAStoreThatHangs(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	srv.Pause()
	defer srv.Resume()
	began := time.Now()
	names := heldNames(backendOf("redis://"+srv.Addr()+"?read_timeout=1m"), "")
	if took := time.Since(began); took >= 5*time.Second || names != nil {
		t.Errorf("%q after %v", names, took)
	}
}
