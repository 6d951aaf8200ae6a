package locker_test

import (
	"errors"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockstile/locker/internal/outside"
)

const module = "github.com/lockstile/locker"

// suites are the packages that test others, and may import testing.
var suites = []string{module + "/conformance", module + "/register/registertest", module + "/internal/guardtest", module + "/internal/locktest"}

// forTests are the internal packages that only tests and the proof use.
var forTests = []string{
	module + "/internal/guardtest", module + "/internal/locktest", module + "/internal/netproxy", module + "/internal/outside", module + "/internal/process",
	module + "/internal/quoted", module + "/internal/redishook", module + "/internal/simplelock", module + "/internal/specimen",
	module + "/internal/testserver",
}

// foreign reports whether a package must not be in what users build. below is a package or a
// folder of packages.
func foreign(pkg string) bool {
	for _, below := range slices.Concat(suites, forTests, []string{module + "/proof", "testing", "github.com/anishathalye"}) {
		if pkg == below || strings.HasPrefix(pkg, below+"/") {
			return true
		}
	}
	return false
}

// systems have files of their own here.
var systems = []string{"linux", "darwin", "windows", "freebsd"}

func goList(t *testing.T, system string, args ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Env = append(os.Environ(), "GOOS="+system)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %q: %v", args, err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func TestTheCommandHasNothingOfTests(t *testing.T) {
	t.Parallel()
	for _, system := range systems {
		pkgs := goList(t, system, "-deps", "./cmd/locker")
		if !slices.Contains(pkgs, module+"/driver") {
			t.Fatalf("go list shows no driver among %d packages", len(pkgs))
		}
		for _, pkg := range pkgs {
			if foreign(pkg) {
				t.Errorf("on %s the command has %s", system, pkg)
			}
		}
	}
}

func TestOnlySuitesImportWhatIsForTests(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	var lines []string
	for _, system := range systems {
		lines = append(lines, goList(t, system, "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")...)
	}
	for _, line := range lines {
		words := strings.Fields(line)
		pkg := words[0]
		seen[pkg] = true
		if slices.Contains(suites, pkg) || slices.Contains(forTests, pkg) || strings.HasPrefix(pkg, module+"/internal/testserver/") {
			if slices.Contains(words[1:], "testing") && !slices.Contains(suites, pkg) {
				t.Errorf("%s imports testing", pkg)
			}
			continue
		}
		for _, imported := range words[1:] {
			if foreign(imported) {
				t.Errorf("%s imports %s", pkg, imported)
			}
		}
	}
	for _, pkg := range slices.Concat(suites, forTests) {
		if !seen[pkg] {
			t.Errorf("there is no %s", pkg)
		}
	}
}

// A user's build has one version of this module, and an adapter, or a store of package register, may be of another one. Public
// packages keep what they have; internal ones may change with every version.
func TestModulesBesideTheRootImportPublicPackages(t *testing.T) {
	t.Parallel()
	adapters, err := filepath.Glob("adapters/*/go.mod")
	stores, failed := filepath.Glob("register/*/go.mod")
	if err = errors.Join(err, failed); err != nil || len(adapters) < 6 || len(stores) < 3 {
		t.Fatal(adapters, stores, err)
	}
	var files []string
	for _, mod := range slices.Concat(adapters, stores) {
		err := filepath.WalkDir(filepath.Dir(mod), func(path string, _ fs.DirEntry, err error) error {
			if filepath.Ext(path) == ".go" {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	modules, ours := make(map[string]bool), 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		modules[filepath.Dir(file)] = true
		source, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range source.Imports {
			pkg, _ := strconv.Unquote(spec.Path.Value)
			if foreign(pkg) || strings.HasPrefix(pkg, module+"/internal/") {
				t.Errorf("%s imports %s", file, pkg)
			}
			if pkg == module {
				ours++
			}
		}
	}
	if len(modules) < len(adapters)+len(stores) || ours < len(adapters) {
		t.Errorf("%d folders were looked at, and %s is imported %d times", len(modules), module, ours)
	}
}

func TestAProgramWithOneBackendHasNothingElse(t *testing.T) {
	t.Parallel()
	p := outside.Run(t, `package main

import (
	"fmt"

	"github.com/lockstile/locker/singlenode"
)

func main() {
	_, err := singlenode.New(nil, singlenode.Options{})
	fmt.Print(err)
}
`, ".")
	if want := "singlenode: the client is nil"; p.Said != want {
		t.Errorf("it says %q, want %q", p.Said, want)
	}
	for _, pkg := range p.List("-deps", ".") {
		if foreign(pkg) {
			t.Errorf("it has %s", pkg)
		}
	}
	// The client of Redis, and what that needs.
	want := []string{
		"example.com/program", "github.com/cespare/xxhash/v2", module, "github.com/redis/go-redis/v9", "go.uber.org/atomic", "golang.org/x/sys",
	}
	got := p.List("-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")
	slices.Sort(got)
	if got = slices.Compact(got); !slices.Equal(got, want) {
		t.Errorf("it has packages of the modules %q, want %q", got, want)
	}
}

// go.sum has a line for each module that any build or test of this one may ask for.
func TestUsersRequireNothingOfTheProof(t *testing.T) {
	for _, file := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "github.com/redis/go-redis/v9") || strings.Contains(string(text), "porcupine") {
			t.Errorf("%s has no go-redis, or has porcupine", file)
		}
	}
}
