// Package jvm runs bugs of lock libraries for the JVM, on the versions that had them, and
// the same situations on our backends. docs/TRACK_RECORD.md tells of them.
package jvm

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/testserver"
)

// patience bounds what tests wait for. Nothing is expected to take so long.
const patience = 90 * time.Second

// library is a version of somebody's library, as Debian installs it.
type library struct{ name, jar, install string }

var (
	curator   = library{"Curator 5.4.0", "curator-recipes-5.4.0.jar", "libcurator-recipes-java 5.4.0"}
	writeLock = library{"ZooKeeper's WriteLock 3.8.0", "zookeeper-recipes-lock-3.8.0.jar", "libzookeeper-java 3.8.0"}
)

// jars is where Debian's packages have their jars, each also under the name of its version.
const jars = "/usr/share/java/"

// program is a Java program that carries out verbs, in a process of its own.
type program struct {
	t       *testing.T
	cmd     *exec.Cmd
	verbs   io.Writer
	answers chan string
	log     strings.Builder // to read once answers is closed
}

// start starts a program of this folder, which uses that very version of lib.
func start(t *testing.T, lib library, source string, args ...any) *program {
	t.Helper()
	need(t, lib)
	p := &program{t: t, answers: make(chan string)}
	words := []string{"-Xmx64m", "-XX:TieredStopAtLevel=1", "-cp", jars + "*", source}
	for _, arg := range args {
		words = append(words, fmt.Sprint(arg))
	}
	p.cmd = exec.Command("java", words...)
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.verbs, p.cmd.Stderr = in, &p.log
	if err := testserver.StartChild(p.cmd); err != nil {
		t.Fatalf("starting %s: %v", source, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if answer, ok := strings.CutPrefix(lines.Text(), "> "); ok {
				p.answers <- answer
			}
		}
		_ = p.cmd.Wait() // how it ended does not matter: it is killed in the end
		close(p.answers)
	}()
	t.Cleanup(func() {
		p.kill()
		for range p.answers { // an answer that nobody has waited for
		}
		<-ended
	})
	return p
}

func need(t *testing.T, lib library) {
	t.Helper()
	missing := ""
	if err := exec.Command("javac", "-version").Run(); err != nil {
		missing = "a JDK (apt-get install default-jdk-headless)"
	} else if _, err := os.Stat(jars + lib.jar); err != nil {
		missing = lib.name + " (Debian 12's " + lib.install + ")"
	}
	if missing != "" {
		t.Fatalf("this needs %s", missing)
	}
}

// kill ends the process as kill -9 does.
func (p *program) kill() { _ = p.cmd.Process.Kill() } // it may have ended already

// tell has the program carry out a verb. answer waits for what it says.
func (p *program) tell(verb ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.verbs, verb...); err != nil {
		p.t.Fatalf("%v: %v", verb, err)
	}
}

func (p *program) answer() string {
	p.t.Helper()
	select {
	case answer, ok := <-p.answers:
		if !ok {
			p.t.Fatalf("the program has ended and said:\n%s", &p.log)
		}
		return answer
	case <-time.After(patience):
		p.t.Fatalf("no answer after %v: if the bug no longer shows, say so in docs/TRACK_RECORD.md", patience)
		return ""
	}
}

// ask is tell and answer.
func (p *program) ask(verb ...any) string {
	p.t.Helper()
	p.tell(verb...)
	return p.answer()
}

// must fails the test unless the program answers so, also where that is what the library
// does wrong.
func (p *program) must(want string, verb ...any) {
	p.t.Helper()
	if got := p.ask(verb...); got != want {
		p.t.Fatalf("%v is answered with %q, not %q: if the bug no longer shows, say so in docs/TRACK_RECORD.md", verb, got, want)
	}
}
