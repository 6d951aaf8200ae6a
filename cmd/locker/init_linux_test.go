package main

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// adopts has the command adopt orphans, as process 1 does, without being root.
const adopts = "LOCKER_TEST_ADOPTS=1"

func init() {
	if "LOCKER_TEST_ADOPTS="+os.Getenv("LOCKER_TEST_ADOPTS") == adopts {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			panic(err)
		}
	}
}

// orphans leaves a process without a parent and waits until nothing is left of
// it: somebody has to ask how it ended. Then it leaves one that outlives it.
const orphans = `orphan=$(sh -c 'sleep 0.05 >/dev/null & echo $!')
	while [ -e /proc/$orphan ]; do sleep 0.02; done; echo reaped; exit 7`

func TestOrphansAreReapedWhereLockerAdoptsThem(t *testing.T) {
	t.Parallel()
	p := launchWith(t, []string{adopts}, "run", "-b", redisURL(t), "x", "--", "sh", "-c", orphans)
	p.says("reaped")
	p.ends(7)
}

func TestOrphansAreReapedByProcessOne(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "true").CombinedOutput(); err != nil {
		t.Skipf("no namespace of processes here: %v: %s", err, out)
	}
	url := redisURL(t)
	p := spawn(t, nil, exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
		os.Args[0], "run", "-b", url, "x", "--", "sh", "-c", "echo parent $PPID; "+orphans))
	if parent := p.word("parent"); parent != "1" {
		t.Errorf("the command is a child of process %s", parent)
	}
	p.says("reaped")
	p.ends(7)
	free(t, url, "x")
}

// Go looks at two signals only before it takes over: that others were ignored is
// not known to us.
func TestIgnoredSignalsStaySoAsTheHelpSays(t *testing.T) {
	t.Parallel()
	p := spawn(t, nil, exec.Command("sh", "-c", `trap '' HUP INT TERM QUIT USR1; exec "$0" "$@"`, os.Args[0],
		"run", "-b", redisURL(t), "x", "--", "awk", `/SigIgn/ {print "ignores " $2}`, "/proc/self/status"))
	p.ends(0)
	ignored, err := strconv.ParseUint(p.word("ignores"), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	for sig, want := range map[syscall.Signal]bool{
		syscall.SIGHUP: true, syscall.SIGINT: true, syscall.SIGTERM: false, syscall.SIGQUIT: false, syscall.SIGUSR1: false,
	} {
		if got := ignored&(1<<(sig-1)) != 0; got != want {
			t.Errorf("the command ignores %v: %v, want %v", sig, got, want)
		}
	}
}
