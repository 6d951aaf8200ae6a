// Package outside builds programs outside of this repository, as a user does, so that tests can
// look at what they pull in.
package outside

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// TB is what a program needs of a test. A *testing.T is one.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	TempDir() string
}

// Program is one that has been built.
type Program struct {
	Said string // when it was run
	t    TB
	dir  string
}

// Run builds the source of a program in a folder and a module of its own, and runs it. The module
// requires those in the given folders of this repository, and nothing else by itself. Of other
// modules it takes the versions that their go.sum files know: nothing is downloaded that a build
// of these modules would not download.
func Run(t TB, source string, modules ...string) *Program {
	t.Helper()
	p := &Program{t: t, dir: t.TempDir()}
	var mod, sum strings.Builder
	fmt.Fprint(&mod, "module example.com/program\n\ngo 1.26.0\n")
	for _, folder := range modules {
		folder, err := filepath.Abs(folder)
		if err != nil {
			t.Fatalf("%v", err)
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(read(t, folder, "go.mod"), "module "), "\n")
		fmt.Fprintf(&mod, "\nrequire %s v0.0.0\nreplace %[1]s => %q\n", name, folder)
		sum.WriteString(read(t, folder, "go.sum"))
	}
	for file, text := range map[string]string{"main.go": source, "go.mod": mod.String(), "go.sum": sum.String()} {
		if err := os.WriteFile(filepath.Join(p.dir, file), []byte(text), 0o600); err != nil {
			t.Fatalf("%v", err)
		}
	}
	p.Said = p.run("go", "run", ".")
	return p
}

// List returns the lines of go list with these arguments.
func (p *Program) List(args ...string) []string {
	p.t.Helper()
	return strings.Split(strings.TrimSpace(p.run("go", append([]string{"list"}, args...)...)), "\n")
}

func (p *Program) run(name string, args ...string) string {
	p.t.Helper()
	var said bytes.Buffer
	cmd := exec.Command(name, args...) // ends with the test binary's own deadline at the latest
	cmd.Dir, cmd.Stderr = p.dir, &said
	cmd.Env = append(cmd.Environ(), "GOWORK=off", strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod"))
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("%s %q: %v\n%s%s", name, args, err, out, said.Bytes())
	}
	return string(out)
}

func read(t TB, folder, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		t.Fatalf("%v", err)
	}
	return string(text)
}
