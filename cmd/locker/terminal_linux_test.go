package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lockstile/locker/internal/testserver"
)

// onTerminal starts an interactive shell, which has job control, on a terminal
// of its own, with the test binary in $LOCKER. It is ready when this returns.
func onTerminal(t *testing.T, url string) (typeIn func(string), screen *stream) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	slave := openSlave(t, master)
	screen = newStream(t)
	cmd := exec.Command("bash", "--norc", "--noprofile", "-i")
	mark := "LOCKER_TEST_MARK=" + t.Name() + "@" + strconv.Itoa(os.Getpid()) // other runs may be under way
	cmd.Env = append(ofTests(os.Environ()), mark, "LOCKER_TEST_IS_COMMAND=1", "GORACE=atexit_sleep_ms=0",
		"LOCKER_BACKEND="+url, "LOCKER="+os.Args[0], "PS1=ready>", "TERM=dumb", "HISTFILE=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = slave.Close() // the shell has it
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := master.Read(buffer)
			if err != nil {
				screen.closeWriter()
				return
			}
			_, _ = screen.w.Write(buffer[:n]) // the reader lives as long as we do
		}
	}()
	t.Cleanup(func() {
		killMarked(mark)
		_ = cmd.Wait()
		_ = master.Close()
	})
	shows(t, screen, "", "ready>")
	return func(text string) {
		t.Helper()
		if _, err := master.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}, screen
}

func openSlave(t *testing.T, master *os.File) *os.File {
	t.Helper()
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return slave
}

// shows waits until text is on the screen, counted from behind after.
func shows(t *testing.T, screen *stream, after, text string) {
	t.Helper()
	if !screen.await(func(s string) bool {
		i := strings.Index(s, after)
		return i >= 0 && strings.Contains(s[i+len(after):], text)
	}) {
		t.Fatalf("%q does not come after %q on the screen:\n%s", text, after, screen)
	}
}

func TestCommandOnATerminalCanReadFromIt(t *testing.T) {
	t.Parallel()
	typeIn, screen := onTerminal(t, redisURL(t))
	typeIn(`"$LOCKER" run x -- sh -c 'echo ask"ing"; read a; echo got-$a'; echo status-$?` + "\n")
	shows(t, screen, "", "asking")
	typeIn("hello\n")
	shows(t, screen, "", "got-hello")
	shows(t, screen, "got-hello", "status-0")
	typeIn("echo shell-is-ba\"ck\"\n")
	shows(t, screen, "status-0", "shell-is-back")
}

func TestKeysOfTheTerminalReachTheCommand(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	typeIn, screen := onTerminal(t, url)
	typeIn(`"$LOCKER" run x -- sh -c 'echo st"art"; read a'` + "\n")
	shows(t, screen, "", "start")
	typeIn("\x03") // ^C
	shows(t, screen, "start", "ready>")
	typeIn(`echo status-$?` + "\n")
	shows(t, screen, "start", "status-130")
	free(t, url, "x")
}

// ^Z stops both the command and locker, so that the shell takes over; fg goes on
// with both.
func TestCommandCanBeStoppedAndGoesOnInTheForeground(t *testing.T) {
	t.Parallel()
	typeIn, screen := onTerminal(t, redisURL(t))
	typeIn(`"$LOCKER" run x -- sh -c 'echo st"art"; read a; echo got-$a'; echo status-$?` + "\n")
	shows(t, screen, "", "start")
	typeIn("\x1a") // ^Z
	shows(t, screen, "start", "Stopped")
	shows(t, screen, "Stopped", "ready>")
	typeIn("fg\n")
	shows(t, screen, "Stopped", "LOCKER\" run")
	typeIn("again\n")
	shows(t, screen, "Stopped", "got-again")
}

// A script has no job control that would see to it.
func TestScriptHasTheTerminalBackAfterTheCommand(t *testing.T) {
	t.Parallel()
	typeIn, screen := onTerminal(t, redisURL(t))
	typeIn(`sh -c '"$LOCKER" run x -- true; echo ask"ing"; read a; echo got-$a'` + "\n")
	shows(t, screen, "", "asking")
	typeIn("hello\n")
	shows(t, screen, "asking", "got-hello")
}

// A pager in the same pipeline needs the terminal as well: it must not lose it
// to a command that does not ask for it.
func TestPipelineKeepsTheTerminal(t *testing.T) {
	t.Parallel()
	typeIn, screen := onTerminal(t, redisURL(t))
	typeIn(`"$LOCKER" run x -- sh -c 'echo li"ne"; sleep 0.2' | sh -c 'read l; echo $l; read k </dev/tty; echo key-$k'` + "\n")
	shows(t, screen, "", "line")
	typeIn("space\n")
	shows(t, screen, "line", "key-space")
}

// Stopped, locker cannot watch over its command: that must not run on.
func TestCommandOfAPipelineIsStoppedWithLocker(t *testing.T) {
	t.Parallel()
	typeIn, screen := onTerminal(t, redisURL(t))
	file := t.TempDir() + "/pid"
	// One process, for a shell that is stopped between its vfork and the exec
	// hangs there and is never seen to stop.
	typeIn(`"$LOCKER" run x -- sh -c 'echo $$ >` + file + `; echo st"art"; exec sleep 600' | cat` + "\n")
	shows(t, screen, "", "start")
	typeIn("\x1a") // ^Z
	shows(t, screen, "start", "Stopped")
	pid := strings.TrimSpace(readFile(t, file))
	waitFor(t, "the command to stop", func() bool { return strings.Contains(readFile(t, "/proc/"+pid+"/stat"), ") T ") })
	typeIn("fg\n")
	waitFor(t, "the command to go on", func() bool { return !strings.Contains(readFile(t, "/proc/"+pid+"/stat"), ") T ") })
	typeIn("\x03") // ^C
	shows(t, screen, "Stopped", "^C")
	typeIn(`echo status-${PIPESTATUS[0]}` + "\n")
	shows(t, screen, "Stopped", "status-130")
}

// Where no shell could continue it, ^Z does nothing, as without locker.
func TestStopKeyDoesNothingWithoutAShell(t *testing.T) {
	t.Parallel()
	typeIn, screen := onTerminal(t, redisURL(t))
	typeIn(`exec "$LOCKER" run x -- sh -c 'echo st"art"; read a; echo got-$a'` + "\n")
	shows(t, screen, "", "start")
	typeIn("\x1a") // ^Z
	shows(t, screen, "start", "^Z")
	typeIn("hello\n")
	shows(t, screen, "start", "got-hello")
}

// A command with another stdin asks for a password on the terminal itself.
func TestCommandWithAnotherInputCanAskOnTheTerminal(t *testing.T) {
	t.Parallel()
	typeIn, screen := onTerminal(t, redisURL(t))
	typeIn(`"$LOCKER" run x -- sh -c 'echo ask"ing"; read a </dev/tty; echo got-$a' </dev/null; echo status-$?` + "\n")
	shows(t, screen, "", "asking")
	typeIn("hello\n")
	shows(t, screen, "", "got-hello")
	shows(t, screen, "got-hello", "status-0")
}

func TestWaitOnATerminalSaysWhomItWaitsFor(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	holder := launch(t, "run", "-b", url, "x", "--", "sh", "-c", report)
	token := holder.word("token")
	typeIn, screen := onTerminal(t, url)
	typeIn(`"$LOCKER" run w x -- echo got"-it"` + "\n")
	shows(t, screen, "", `waiting for the lock "x" since `)
	shows(t, screen, `waiting for the lock "x" since `, fmt.Sprintf(`"process %d on `, holder.cmd.Process.Pid))
	shows(t, screen, "process", "has it, with token "+token)
	holder.goOn()
	holder.ends(0)
	shows(t, screen, "has it", "got-it")
	typeIn(`"$LOCKER" run x -- sleep 3; echo slee"ps"` + "\n") // for longer than a wait that is explained
	shows(t, screen, "got-it", "sleeps")
	if n := strings.Count(screen.String(), "locker: "); n != 1 {
		t.Errorf("%d remarks, where one command had to wait:\n%s", n, screen)
	}
}

func TestQuietWaitOnATerminalSaysNothing(t *testing.T) {
	t.Parallel()
	url := "local:" + t.TempDir() // where no slow answer makes the outcome unknown
	holder := launch(t, "run", "-b", url, "x", "--", "sh", "-c", report)
	holder.word("token")
	typeIn, screen := onTerminal(t, url)
	typeIn(`"$LOCKER" run --quiet --wait 3s x -- true; echo status-$?` + "\n")
	shows(t, screen, "", "status-75")
	typeIn(`"$LOCKER" run --quiet --min-hold 2s y -- true; echo stay"ed"` + "\n")
	shows(t, screen, "status-75", "stayed")
	if strings.Contains(screen.String(), "locker: ") {
		t.Errorf("it says:\n%s", screen)
	}
	holder.goOn()
	holder.ends(0)
}

func TestWaitForAStoreOnATerminalSaysSo(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	srv.Kill()
	typeIn, screen := onTerminal(t, "redis://"+srv.Addr())
	typeIn(`"$LOCKER" run --wait 10m x -- echo got"-it"` + "\n")
	shows(t, screen, "", "asked again until --wait 10m0s is over")
	srv.Start()
	shows(t, screen, "asked again", "got-it")
	srv.Kill()
	typeIn(`"$LOCKER" run --wait 10s x -- true; echo status-$?` + "\n")
	shows(t, screen, "got-it", "status-69")
	if n := strings.Count(screen.String(), "until --wait 10s is over"); n != 1 {
		t.Errorf("it says %d times that it waits for the store:\n%s", n, screen)
	}
}

// SIGSTOP does not come from the terminal: whoever has sent it continues the command. It is passed a
// signal first, because it is continued once when it has begun.
func TestCommandOnATerminalThatSomebodyStopsStaysSo(t *testing.T) {
	t.Parallel()
	typeIn, screen := onTerminal(t, redisURL(t))
	dir := t.TempDir()
	typeIn(`"$LOCKER" run x -- sh -c 'trap "echo us\"\"r1" USR1; echo $$ $PPID >` + dir + `/pids; echo st"art"; while [ ! -e ` + dir + `/go ]; do sleep 0.05; done; echo we"nt-on"'` + "\n")
	shows(t, screen, "", "start")
	var command, locker int
	if _, err := fmt.Sscan(readFile(t, dir+"/pids"), &command, &locker); err != nil {
		t.Fatal(err)
	}
	kill := func(pid int, sig syscall.Signal) {
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
	}
	kill(locker, syscall.SIGUSR1)
	shows(t, screen, "start", "usr1")
	kill(command, syscall.SIGSTOP)
	waitFor(t, "the command to stop", func() bool { return strings.Contains(readFile(t, fmt.Sprintf("/proc/%d/stat", command)), ") T ") })
	writeFile(t, dir+"/go", "", 0o600)
	kill(command, syscall.SIGCONT)
	shows(t, screen, "usr1", "went-on")
}

// It is not given what is not ours to give: the shell stops both, and continues them in the foreground.
func TestCommandInTheBackgroundThatWantsToReadIsStoppedWithLocker(t *testing.T) {
	t.Parallel()
	typeIn, screen := onTerminal(t, redisURL(t))
	typeIn(`"$LOCKER" run x -- sh -c 'read a; echo got-$a' &` + "\n")
	waitFor(t, "both to stop", func() bool {
		typeIn("jobs\n")
		return strings.Contains(screen.String(), "Stopped")
	})
	typeIn("echo all-jo\"bs\"\n")
	shows(t, screen, "Stopped", "all-jobs")
	typeIn("fg\n")
	shows(t, screen, "all-jobs", "LOCKER\" run")
	typeIn("hello\n")
	shows(t, screen, "all-jobs", "got-hello")
}

// The command did not need the lock any more.
func TestLossDuringTheStayForTheMinimumHoldIsAWarning(t *testing.T) {
	t.Parallel()
	url := "local:" + t.TempDir()
	typeIn, screen := onTerminal(t, url)
	typeIn(`"$LOCKER" run --ttl 1s --min-hold 10m x -- sh -c 'exit 4'; echo status-$?` + "\n")
	shows(t, screen, "", `keeping the lock "x" for another `)
	launch(t, "unlock", "-b", url, "--force", "x").ends(0)
	shows(t, screen, "keeping", "warning: others may have got the lock before --min-hold was over")
	shows(t, screen, "warning", "status-4")
}
