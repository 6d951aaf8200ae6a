package docs_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lockstile/locker/internal/process"
	"github.com/lockstile/locker/internal/testserver"
)

// adopts has this program become another one that adopts orphans, as process 1 does.
const adopts = "RECIPES_TEST_ADOPTS"

// becomeInit is for a machine on which nobody may make a namespace of processes.
func becomeInit() {
	if os.Getenv(adopts) == "" {
		return
	}
	err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	if err == nil {
		err = unix.Exec(os.Args[1], os.Args[1:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// container runs the image's entrypoint and command, as its process 1 where the machine
// allows that, with the programs of a folder. It returns the process, and the first
// process in the container.
func container(t *testing.T, folder, backend string) (p *process.Process, first func() int) {
	t.Helper()
	words := append(instruction(t, "ENTRYPOINT"), instruction(t, "CMD")...)
	words[0] = folder + "/" + words[0]
	env := []string{backend, "PATH=" + folder + ":/usr/bin:/bin"}
	if exec.Command("unshare", "--pid", "--fork", "--mount-proc", "true").Run() != nil {
		p = launch(t, append(env, adopts+"=1"), exec.Command(os.Args[0], words...))
		return p, func() int { return p.Cmd.Process.Pid }
	}
	p = launch(t, env, exec.Command("unshare", append([]string{"--pid", "--fork", "--kill-child", "--mount-proc"}, words...)...))
	return p, func() int { return childOf(t, p.Cmd.Process.Pid) }
}

// childOf returns the one child of a process.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	child, err := strconv.Atoi(strings.TrimSpace(page(t, fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", pid))))
	if err != nil {
		t.Fatal(err)
	}
	return child
}

// instruction returns the words of an instruction of the page's Dockerfile.
func instruction(t *testing.T, name string) (words []string) {
	t.Helper()
	for line := range strings.Lines(only(t, "dockerfile")) {
		if list, ok := strings.CutPrefix(line, name+" "); ok {
			if err := json.Unmarshal([]byte(list), &words); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(words) == 0 {
		t.Fatalf("the Dockerfile has no %s", name)
	}
	return words
}

// The program leaves an orphan and waits until nothing is left of it: somebody has to ask
// how it ended.
func TestContainerLeavesNoZombiesAndEndsAsItsProgramDoes(t *testing.T) {
	t.Parallel()
	folder := installed(t)
	script(t, folder, "worker", `orphan=$(sh -c 'sleep 0.05 >/dev/null & echo $!')
while [ -e /proc/$orphan ]; do sleep 0.02; done
echo reaped
exit 7`)
	p, _ := container(t, folder, "LOCKER_BACKEND=redis://"+testserver.Redis(t).Addr())
	p.Says("reaped")
	p.Ends(7)
}

func TestContainerThatIsStoppedEndsItsProgramAndGivesTheLockBack(t *testing.T) {
	t.Parallel()
	folder := installed(t)
	script(t, folder, "worker", `trap 'echo ends well; exit 0' TERM; echo "runs as $$"; while :; do sleep 0.02; done`)
	backend := "LOCKER_BACKEND=redis://" + testserver.Redis(t).Addr()
	p, first := container(t, folder, backend)
	p.Says("runs as ")
	if err := syscall.Kill(first(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.Says("ends well")
	p.Ends(0)
	next := launch(t, []string{backend}, exec.Command(folder+"/locker", "run", "--no-wait", "invoices", "--", "true"))
	next.Ends(0)
}
