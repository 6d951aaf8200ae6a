//go:build unix

package main

import (
	"context"
	"io"
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

// tiny writes a module with tests, and with mutants that fare differently.
func tiny(t *testing.T) (root string) {
	if testing.Short() {
		t.Skip("it builds programs: make proof runs it")
	}
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

func TestParent(t *testing.T) {
	t.Run("passes", func(*testing.T) {})
	t.Fail()
}
`)
	put(t, root, rulesPage, rulesHeading+"\n- **double**: a number is doubled\n")
	table := "# double/double.go\n"
	add := func(what, row string, noticed ...string) {
		table += "\n" + what + ".\n"
		for _, n := range noticed {
			table += "double: " + n + "\n"
		}
		table += row
	}
	const triple = "-func Double(n int) int { return 2 * n }\n+func Double(n int) int { return 3 * n }\n"
	add("Killed", triple, "TestDouble/of_two")
	add("Crashes", strings.Replace(triple, "3 * n", "n + 2", 1), "TestDouble/of_nothing")
	add("Survives", triple, "TestEmbedded")
	add("Half", triple, "TestDouble", "TestEnds")
	add("Not built", strings.Replace(triple, "3 * n", "3 * m", 1), "TestDouble")
	add("Stale", strings.Replace(triple, "return 2", "return 4", 1), "TestDouble")
	add("No test", triple, "TestTriple")
	add("No subtest", triple, "TestDouble/of_three")
	add("Skips", triple, "TestSkips")
	add("Fails", triple, "TestFails")
	add("Fails beside it", triple, "TestParent/passes")
	table += "\n# double/factor.lua\n"
	add("Embedded", "-2\n+3\n", "TestEmbedded")
	put(t, root, folder+"/double.txt", table)
	put(t, root, folder+"/endless.txt", endless)
	return root
}

const endless = "# double/wait.go\n\nHangs.\ndouble: ./double TestEnds\n-var Endless = false\n+var Endless = true\n"

func TestEachMutantIsReportedAsWhatItIs(t *testing.T) {
	t.Setenv("TINY_STARTED", filepath.Join(t.TempDir(), "started"))
	root := tiny(t)
	got := tried(t, settings{root: root, only: "double", lanes: 2, timeout: 5 * time.Minute})
	for name, r := range tried(t, settings{root: root, only: "endless", timeout: time.Second}) {
		got[name] = r
	}
	for name, want := range map[string]string{
		"Killed.":          killedBy + " by ./double TestDouble/of_two",
		"Crashes.":         killedBy + " by ./double TestDouble/of_nothing",
		"Embedded.":        killedBy + " by ./double TestEmbedded",
		"Survives.":        survived + " ./double TestEmbedded",
		"Half.":            survived + " ./double TestEnds",
		"Not built.":       notBuilt + " ./double",
		"Stale.":           notApplied,
		"No test.":         noTest + " ./double TestTriple",
		"No subtest.":      noTest + " ./double TestDouble/of_three",
		"Skips.":           noTest + " ./double TestSkips",
		"Fails.":           failsWhole + " ./double TestFails",
		"Fails beside it.": survived + " ./double TestParent/passes",
		"Hangs.":           timedOut + " ./double TestEnds",
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

// tried tries mutants, and returns what became of each. It checks that report fails unless all
// were killed.
func tried(t *testing.T, s settings) map[string]result {
	t.Helper()
	ms, err := load(s.root)
	if err != nil {
		t.Fatal(err)
	}
	chosen, err := choose(t.Context(), s, ms)
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBench(s)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	bySentence := make(map[string]result)
	for _, r := range b.try(t.Context(), io.Discard, chosen) {
		bySentence[r.mutant.sentence] = r
		if err := report(io.Discard, []result{r}, 0); (err == nil) != (r.verdict.what == killedBy) {
			t.Errorf("the report on %s says %v", r.mutant.sentence, err)
		}
	}
	return bySentence
}

// Goal: what was not killed is told in full once, also where somebody interrupts the run.
func TestTheSumNamesWhatWasNotKilledAndCountsWhatWasNotTried(t *testing.T) {
	left := result{&mutant{name: "driver:7", sentence: "A lock is held twice."}, verdict{survived, "TestA has not noticed it", "    said\n    "}, time.Second}
	if got, want := left.told(), "SURVIVED            1.0s  driver:7: TestA has not noticed it\n    A lock is held twice.\n    said\n"; got != want {
		t.Errorf("it is told as\n%s\nand not\n%s", got, want)
	}
	killed := result{&mutant{name: "driver:1", sentence: "A lock is lost."}, verdict{killedBy, "by TestB", ""}, time.Second}
	for want, results := range map[string][]result{
		"\n1 of 4 mutants killed in 9s\nnot tried: 2\nnot killed: driver:7\n": {killed, {}, left, {}},
		"\n1 of 1 mutants killed in 9s\n":                                     {killed},
	} {
		var said strings.Builder
		if err := report(&said, results, 9*time.Second); said.String() != want || (err == nil) != (len(results) == 1) {
			t.Errorf("it says %q, %v", &said, err)
		}
	}
}

func TestInterruptedRunLeavesNothing(t *testing.T) {
	root, temp, started := tiny(t), t.TempDir(), filepath.Join(t.TempDir(), "started")
	t.Setenv("TMPDIR", temp)
	t.Setenv("TINY_STARTED", started)
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var said strings.Builder
	go func() { ended <- run(ctx, &said, settings{root: root, only: "endless", timeout: time.Hour}) }()
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
	if !strings.HasPrefix(said.String(), "\n0 of 1 mutants killed in ") || !strings.HasSuffix(said.String(), "\nnot tried: 1\n") {
		t.Errorf("it says %q", &said)
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

func TestMutantsAreChosenByWhatHasChanged(t *testing.T) {
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
		ms, err := load(root)
		if err != nil {
			t.Fatal(err)
		}
		found, err := choose(t.Context(), settings{root: root, since: "begin"}, ms)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, m := range found {
			names = append(names, m.sentence)
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
	for only, want := range map[string]string{
		"":        "no mutant was tried: of all 13 mutants, none has changed since begin, nor a file that it breaks, nor a test that must notice it\n",
		"double/": "no mutant was tried: of the 12 mutants of -only double/, none has changed since begin, nor a file that it breaks, nor a test that must notice it\n",
	} {
		var said strings.Builder
		if err := run(t.Context(), &said, settings{root: root, only: only, since: "begin"}); err != nil || said.String() != want {
			t.Errorf("of no change it says %q, %v", &said, err)
		}
	}
	put(t, root, "double/factor.lua", "3\n") // not committed
	if got := chosen(); !slices.Equal(got, []string{"Embedded."}) {
		t.Errorf("of a file that is embedded: %v", got)
	}
	table, err := os.ReadFile(filepath.Join(root, folder, "double.txt"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, root, folder+"/double.txt", "# double/wait.go\n\nNew.\ndouble: TestEnds\n-package double\n\n"+string(table))
	if got := chosen(); !slices.Equal(got, []string{"New.", "Embedded."}) {
		t.Errorf("of a new row: %v", got)
	}
	git("add", ".")
	git("commit", "-q", "-m", "next")
	put(t, root, "double/more_test.go", "package double\n\nfunc TestTriple(t *testing.T) {}\n")
	if got := chosen(); !slices.Equal(got, []string{"New.", "No test.", "Embedded."}) {
		t.Errorf("of a test: %v", got)
	}
	put(t, root, folder+"/endless.txt", strings.Replace(endless, "wait.go", "double.go", 1))
	if got := chosen(); !slices.Contains(got, "Hangs.") {
		t.Errorf("of a row that breaks another file now: %v", got)
	}
	ms, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, only := range []string{"treble", "/"} {
		if found, err := choose(t.Context(), settings{root: root, only: only, since: "begin"}, ms); err == nil {
			t.Errorf("of %q there are %d mutants, and no error", only, len(found))
		}
	}
}

// A test that was renamed, or has gone, notices nothing any more.
func TestARowWhoseTestHasGoneIsChosen(t *testing.T) {
	root := t.TempDir()
	m := &mutant{text: "row", noticed: []notice{{"d", "TestA/sub"}}}
	c := &changes{root: root, files: []string{"d/a_test.go"}, rows: map[string]bool{"row": true}}
	for file, text := range map[string]string{"d/a_test.go": "func TestB(", "d/other_test.go": "func TestC("} {
		put(t, root, file, text)
	}
	if !c.concern(m) {
		t.Error("its test has gone from the file that has changed, and it is left out")
	}
	put(t, root, "d/other_test.go", "func TestA(")
	if c.concern(m) {
		t.Error("its test has another file, which has not changed, and it is chosen")
	}
}

// The clauses of the suite are not in files of tests.
func TestAChangedClauseConcernsTheRowsThatItNotices(t *testing.T) {
	m := &mutant{text: "row", noticed: []notice{{"local", "TestConformance/clause/lost-reply"}}}
	for file, want := range map[string]bool{"conformance/faults.go": true, "driver/driver.go": false} {
		if c := (&changes{files: []string{file}, rows: map[string]bool{"row": true}}); c.concern(m) != want {
			t.Errorf("%s concerns it: %v", file, !want)
		}
	}
}

func TestEveryWayInWhichTestsDoNotEndIsSeen(t *testing.T) {
	for _, said := range []string{
		`{"Action":"output","Test":"TestA","Output":"waiting: panic: test timed out after 1s\n"}`,
		`{"Action":"output","Output":"*** Test killed with quit: ran too long (1m1s).\n"}`,
	} {
		r := &ran{tests: map[string]string{"TestA": "run"}}
		if r.hear(said); !r.timedOut {
			t.Errorf("this is not taken for a timeout: %s", said)
		}
	}
}
