//go:build unix

package locker_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const released = "v1.999.0"

// atWork runs programs in a directory, and says what they said when one fails.
type atWork struct {
	*testing.T
	dir string
	env []string
}

func (w atWork) run(name string, args ...string) string {
	w.Helper()
	cmd := exec.CommandContext(w.Context(), name, args...)
	cmd.Dir, cmd.Env = w.dir, append(os.Environ(), w.env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// published makes a proxy of modules with what a release of the last commit would publish, and returns its directory and
// the modules.
func published(t *testing.T) (proxy string, modules []string) {
	t.Helper()
	w := atWork{t, t.TempDir(), []string{"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t"}}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	w.run("git", "clone", "-q", "--no-tags", here, ".")
	w.run("sed", "-i", "s/^## Unreleased/## "+strings.TrimPrefix(released, "v")+"/", "CHANGELOG.md")
	w.run("git", "commit", "-qam", "number")
	w.run("internal/release/release.sh", released)
	proxy = t.TempDir()
	for tag := range strings.SplitSeq(w.run("git", "tag"), "\n") {
		folder := strings.TrimSuffix(strings.TrimSuffix(tag, released), "/")
		path := strings.TrimSuffix(module+"/"+folder, "/")
		modules = append(modules, path)
		files := []string{"archive", "--format=zip", "--prefix=" + path + "@" + released + "/"}
		at := filepath.Join(proxy, path, "@v")
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		files = append(files, "-o", filepath.Join(at, released+".zip"))
		files = append(files, tag+":"+folder, "--", ".")
		for nested := range strings.FieldsSeq(w.run("git", "ls-files", "*/go.mod")) {
			if below, ok := strings.CutPrefix(filepath.Dir(nested), folder); ok && below != "" {
				files = append(files, ":(exclude)"+strings.TrimPrefix(below, "/"))
			}
		}
		w.run("git", files...)
		for name, text := range map[string]string{".info": fmt.Sprintf("{%q:%q}", "Version", released), ".mod": w.run("git", "show", tag+":"+filepath.Join(folder, "go.mod"))} {
			if err := os.WriteFile(filepath.Join(at, released+name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return proxy, modules
}

// Goal: a user gets modules that fit each other, and needs no replace. Method: a program in a module of its own, which
// knows our modules only from the proxy, and the others from this machine's cache.
func TestAProgramBuildsFromWhatAReleasePublishes(t *testing.T) {
	t.Parallel()
	proxy, modules := published(t)
	imports := map[string]string{
		module: "", module + "/adapters/cronlock": "", module + "/adapters/gocronlock": "", module + "/adapters/gooselock": "", module + "/adapters/migratelock": "",
		module + "/adapters/certmagiclock": "", module + "/adapters/otellock": "", module + "/proof": "/matrix",
		module + "/register/natskv": "", module + "/register/sqltable": "", module + "/register/s3object": "", module + "/register/kubelease": "",
	}
	if len(modules) != len(imports) {
		t.Fatalf("published are %q", modules)
	}
	build := []string{"vet", "."} // compiles, and links nothing
	if testing.Short() {
		imports = map[string]string{module: "/lockertest", module + "/adapters/cronlock": ""} // that they resolve: make proof compiles them
		build = []string{"list", "-deps", "."}
	}
	w := atWork{t, t.TempDir(), nil}
	cache := w.run("go", "env", "GOMODCACHE")
	w.env = []string{
		"GOWORK=off", "GOFLAGS=-mod=mod -modcacherw", "GONOSUMDB=" + module + "," + module + "/*", "GOMODCACHE=" + t.TempDir(),
		"GOPROXY=file://" + proxy + ",file://" + cache + "/cache/download," + w.run("go", "env", "GOPROXY"),
	}
	var program, requires strings.Builder
	for path, below := range imports {
		fmt.Fprintf(&program, "import _ %q\n", path+below)
		fmt.Fprintf(&requires, "require %s %s\n", path, released)
	}
	for name, text := range map[string]string{"main.go": "package main\n\n" + program.String() + "\nfunc main() {}\n", "go.mod": "module example.com/program\n\ngo 1.26.0\n\n" + requires.String()} {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.run("go", build...)
	for line := range strings.SplitSeq(w.run("go", "list", "-m", "all"), "\n") {
		if strings.HasPrefix(line, module) && !strings.HasSuffix(line, " "+released) {
			t.Errorf("the build has %s", line)
		}
	}
}

func TestAReleaseIsRefusedUnlessAllIsReady(t *testing.T) {
	for says, args := range map[string][]string{"is no version": {"1.2"}, "CHANGELOG.md has no": {"v1.777.0"}} {
		out, err := exec.CommandContext(t.Context(), "internal/release/release.sh", args...).CombinedOutput() //nolint:gosec // these
		if err == nil || !strings.Contains(string(out), says) && !strings.Contains(string(out), "not committed") {
			t.Errorf("%q: %v: %s", args, err, out)
		}
	}
}
