package testserver

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ZooKeeperLock is another library's lock on a ZooKeeper server, in a process of its own.
type ZooKeeperLock struct {
	t       TB
	verbs   io.Writer
	answers *bufio.Scanner
	log     *tail
}

//go:embed kazoo.py
var kazooScript string

//go:embed curator.bsh
var curatorScript string

// KazooLock is the Lock of Python's kazoo. It also counts nodes with one of the patterns
// in their names as contenders.
func KazooLock(t TB, s *ZooKeeperServer, path string, patterns ...string) *ZooKeeperLock {
	t.Helper()
	for _, python := range []string{"/usr/bin/python3", "python3"} { // apt-get installs kazoo for the first
		if exec.Command(python, "-c", "import kazoo").Run() == nil {
			return startZooKeeperLock(t, "lock.py", kazooScript, func(script string) *exec.Cmd {
				return exec.Command(python, append([]string{script, s.Addr(), path}, patterns...)...)
			})
		}
	}
	missing(t, "kazoo", "apt-get install python3-kazoo")
	return nil
}

// CuratorLock is the InterProcessMutex of Apache Curator.
func CuratorLock(t TB, s *ZooKeeperServer, path string) *ZooKeeperLock {
	t.Helper()
	for _, jar := range []string{"curator-recipes.jar", "bsh.jar"} {
		if _, err := os.Stat("/usr/share/java/" + jar); err != nil {
			missing(t, "curator", "apt-get install libcurator-recipes-java bsh")
		}
	}
	return startZooKeeperLock(t, "lock.bsh", curatorScript, func(script string) *exec.Cmd {
		return exec.Command("java", "-Xmx64m", "-XX:TieredStopAtLevel=1", "-cp", "/usr/share/java/*", "bsh.Interpreter", script, s.Addr(), path)
	})
}

func startZooKeeperLock(t TB, name, text string, command func(script string) *exec.Cmd) *ZooKeeperLock {
	t.Helper()
	script := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatalf("%v", err)
	}
	l := &ZooKeeperLock{t: t, log: new(tail)}
	cmd := command(script)
	cmd.Stderr = l.log
	in, err := cmd.StdinPipe()
	if err == nil {
		var out io.Reader
		out, err = cmd.StdoutPipe()
		l.verbs, l.answers = in, bufio.NewScanner(out)
	}
	if err == nil {
		err = StartChild(cmd)
	}
	if err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	return l
}

// Do carries out "lock", which waits, "try" or "unlock", and returns "locked", "taken" or
// "unlocked".
func (l *ZooKeeperLock) Do(verb string) (string, error) {
	if _, err := fmt.Fprintln(l.verbs, verb); err != nil {
		return "", fmt.Errorf("%s: %w: %s", verb, err, l.log)
	}
	for l.answers.Scan() {
		if answer, ok := strings.CutPrefix(l.answers.Text(), "> "); ok {
			return answer, nil
		}
	}
	return "", fmt.Errorf("%s: it has ended: %s", verb, l.log)
}
