//go:build unix

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tiny writes a module with tests, and with patches that fare differently.
func tiny(t *testing.T) (root string) {
	root = t.TempDir()
	put(t, root, "go.mod", "module tiny\n\ngo 1.26\n")
	put(t, root, "double/double.go", "package double\n\nfunc Double(n int) int { return 2 * n }\n")
	put(t, root, "double/factor.lua", "2\n")
	put(t, root, "double/embedded.go", "package double\n\nimport _ \"embed\"\n\n//go:embed factor.lua\nvar Factor string\n")
	put(t, root, "double/wait.go", "package double\n\nvar Endless = false\n")
	put(t, root, "double/double_test.go", `package double

import (
	"fmt"
	"os"
	"testing"
	"time"
)

func TestDouble(t *testing.T) {
	t.Run("of two", func(t *testing.T) {
		if Double(2) != 4 {
			t.Error(Double(2))
		}
	})
	t.Run("of nothing", func(t *testing.T) {
		if Double(0) != 0 {
			panic("not nothing")
		}
	})
}

func TestEmbedded(t *testing.T) {
	if Factor != "2\n" {
		t.Error(Factor)
	}
}

func TestEnds(t *testing.T) {
	if Endless {
		if err := os.WriteFile(os.Getenv("TINY_STARTED"), []byte(fmt.Sprint(os.Getpid(), "\n")), 0o600); err != nil {
			fmt.Println(err)
		}
	}
	for Endless {
		time.Sleep(time.Millisecond)
	}
}

func TestSkips(t *testing.T) { t.Skip() }

func TestFails(t *testing.T) { t.Fail() }
`)
	put(t, root, rulesPage, rulesHeading+"\n- **double**: a number is doubled\n")
	add := func(name, diff string, noticed ...string) {
		head := name + " breaks.\n\nRule: double\n"
		for _, n := range noticed {
			head += "Noticed by: ./double " + n + "\n"
		}
		put(t, root, folder+"/double/"+name+".patch", head+diff)
	}
	const double = "func Double(n int) int { return 2 * n }"
	triple := strings.Replace(change("double/double.go", double, strings.Replace(double, "2", "3", 1)), "@@ -1 +1 @@", "@@ -3 +3 @@", 1)
	crash := strings.Replace(triple, "3 * n", "n + 2", 1)
	add("killed", triple, "^TestDouble$/^of two$")
	add("crashes", crash, "^TestDouble$/^of nothing$")
	add("embedded", change("double/factor.lua", "2", "3"), "^TestEmbedded$")
	add("survives", triple, "^TestEmbedded$")
	add("half", triple, "^TestDouble$", "^TestEnds$")
	add("not-built", strings.Replace(triple, "3 * n", "3 * m", 1), "^TestDouble$")
	add("stale", strings.Replace(triple, "return 2", "return 4", 1), "^TestDouble$")
	add("no-test", triple, "^TestTriple$")
	add("no-subtest", triple, "^TestDouble$/^of three$")
	add("skips", triple, "^TestSkips$")
	add("fails", triple, "^TestFails$")
	put(t, root, folder+"/endless/hangs.patch", "It hangs.\n\nRule: double\nNoticed by: ./double ^TestEnds$\n"+
		strings.Replace(change("double/wait.go", "var Endless = false", "var Endless = true"), "@@ -1 +1 @@", "@@ -3 +3 @@", 1))
	return root
}

func TestEachPatchIsReportedAsWhatItIs(t *testing.T) {
	t.Setenv("TINY_STARTED", filepath.Join(t.TempDir(), "started"))
	root := tiny(t)
	got := tried(t, settings{root: root, only: "double", lanes: 2, timeout: 5 * time.Minute})
	for name, r := range tried(t, settings{root: root, only: "endless", timeout: time.Second}) {
		got[name] = r
	}
	for name, want := range map[string]string{
		"double/killed":     killedBy + " by ./double TestDouble/of_two",
		"double/crashes":    killedBy + " by ./double TestDouble/of_nothing",
		"double/embedded":   killedBy + " by ./double TestEmbedded",
		"double/survives":   survived + " ./double ^TestEmbedded$",
		"double/half":       survived + " ./double ^TestEnds$",
		"double/not-built":  notBuilt + " ./double",
		"double/stale":      notApplied,
		"double/no-test":    noTest + " ./double ^TestTriple$",
		"double/no-subtest": noTest + " ./double ^TestDouble$/^of three$",
		"double/skips":      noTest + " ./double ^TestSkips$",
		"double/fails":      failsWhole + " ./double ^TestFails$",
		"endless/hangs":     timedOut + " ./double ^TestEnds$",
	} {
		if v := got[name].verdict; !strings.HasPrefix(v.what+" "+v.why, want) {
			t.Errorf("%s: %s %s %s, want %s", name, v.what, v.why, v.output, want)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("nothing was expected of %v", got)
	}
}

// tried tries patches, and returns what became of each. It checks that report fails unless all
// were killed.
func tried(t *testing.T, s settings) map[string]result {
	t.Helper()
	ps, err := load(s.root)
	if err != nil {
		t.Fatal(err)
	}
	chosen, err := choose(t.Context(), s, ps)
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBench(s)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	byName := make(map[string]result)
	for _, r := range b.try(t.Context(), chosen) {
		byName[r.patch.name] = r
		if err := report([]result{r}, 0); (err == nil) != (r.verdict.what == killedBy) {
			t.Errorf("the report on %s says %v", r.patch.name, err)
		}
	}
	return byName
}

func TestInterruptedRunLeavesNothing(t *testing.T) {
	root, temp, started := tiny(t), t.TempDir(), filepath.Join(t.TempDir(), "started")
	t.Setenv("TMPDIR", temp)
	t.Setenv("TINY_STARTED", started)
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, settings{root: root, only: "endless", timeout: time.Hour}) }()
	pid := 0
	wait(t, "the test runs", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("it has ended: %v", err)
		default:
		}
		text, err := os.ReadFile(started)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil && strings.HasSuffix(string(text), "\n")
	})
	interrupt()
	if err := <-ended; err == nil || err.Error() != "interrupted" {
		t.Errorf("it returned %v", err)
	}
	wait(t, "the test ends", func() bool { return syscall.Kill(pid, 0) != nil })
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
	if text, err := os.ReadFile(filepath.Join(root, "double/wait.go")); err != nil || strings.Contains(string(text), "true") {
		t.Errorf("it leaves %s, %v in the tree", text, err)
	}
}

func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not after two minutes: %s", what)
		}
	}
}

func TestPatchesAreChosenByWhatHasChanged(t *testing.T) {
	root := tiny(t)
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	chosen := func() []string {
		t.Helper()
		ps, err := load(root)
		if err != nil {
			t.Fatal(err)
		}
		patches, err := choose(t.Context(), settings{root: root, since: "begin"}, ps)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range patches {
			names = append(names, p.name)
		}
		return names
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "begin")
	git("tag", "begin")
	if got := chosen(); got != nil {
		t.Errorf("of no change: %v", got)
	}
	put(t, root, "double/factor.lua", "3\n") // not committed
	if got := chosen(); !slices.Equal(got, []string{"double/embedded"}) {
		t.Errorf("of a file that is embedded: %v", got)
	}
	put(t, root, folder+"/double/new.patch", "New breaks.\n\nRule: double\nNoticed by: ./double ^TestDouble$\n"+change("double/new.go", "a", "b"))
	if got := chosen(); !slices.Equal(got, []string{"double/embedded", "double/new"}) {
		t.Errorf("of a new patch: %v", got)
	}
	git("add", ".")
	git("commit", "-q", "-m", "next")
	put(t, root, "double/more_test.go", "package double\n\nfunc TestTriple(t *testing.T) {}\n")
	if got := chosen(); !slices.Equal(got, []string{"double/embedded", "double/new", "double/no-test"}) {
		t.Errorf("of a test: %v", got)
	}
}
