package docs_test

import (
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

func TestSystemdAcceptsTheUnit(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd is not installed; the next test shows what KillMode does in any case")
	}
	folder := installed(t)
	script(t, folder, "invoices", "true")
	file := filepath.Join(folder, "invoices.service")
	unit := strings.ReplaceAll(only(t, "ini"), "/usr/local/bin/", folder+"/")
	if err := os.WriteFile(file, []byte(unit), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("systemd-analyze", "verify", "--man=no", file).CombinedOutput(); err != nil || strings.Contains(string(out), "invoices.service") {
		t.Errorf("systemd says, error %v:\n%s", err, out)
	}
}

// obstinate says that it was asked to end, and goes on until it is told in another way.
const obstinate = `trap 'echo asked to end' TERM; trap 'exit 0' USR1; echo runs as $$; while :; do sleep 0.02; done`

// askedToEnd plays how systemd stops the service: with KillMode=mixed the main process gets
// SIGTERM, by default all do. It returns how often the command was asked.
func askedToEnd(t *testing.T, mode string) int {
	t.Helper()
	words := strings.Fields(setting(t, "ExecStart"))
	folder := installed(t)
	script(t, folder, "invoices", obstinate)
	for i := range words {
		words[i] = strings.Replace(words[i], "/usr/local/bin/", folder+"/", 1)
	}
	srv := testserver.Redis(t)
	main := launch(t, []string{"LOCKER_BACKEND=redis://" + srv.Addr()}, exec.Command(words[0], words[1:]...))
	main.Says("runs as ")
	if mode != "mixed" {
		if err := syscall.Kill(commandOf(t, main), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		main.Says("asked to end") // else the two signals may become one
	}
	before := main.Count("asked to end")
	main.Signal(syscall.SIGTERM)
	main.SaysTimes("asked to end", before+1)
	main.Signal(syscall.SIGUSR1) // is passed on, and comes last
	main.Ends(0)
	return main.Count("asked to end")
}

// commandOf returns the process that "locker run" has started.
func commandOf(t *testing.T, p *process.Process) int {
	t.Helper()
	p.Wait("the command says which process it is", func() bool { return pidLine.MatchString(p.Said()) })
	pid, err := strconv.Atoi(pidLine.FindStringSubmatch(p.Said())[1])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

var pidLine = regexp.MustCompile(`runs as (\d+)\n`)

// setting returns a setting of the unit, or "".
func setting(t *testing.T, key string) string {
	t.Helper()
	for line := range strings.Lines(only(t, "ini")) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), key+"="); ok {
			return value
		}
	}
	return ""
}

func TestServiceIsAskedToEndOnce(t *testing.T) {
	t.Parallel()
	if n := askedToEnd(t, setting(t, "KillMode")); n != 1 {
		t.Errorf("with the unit's KillMode the command gets SIGTERM %d times", n)
	}
	if n := askedToEnd(t, "control-group"); n != 2 {
		t.Errorf("by default the command gets SIGTERM %d times: the page says twice", n)
	}
}
