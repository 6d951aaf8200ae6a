package docs_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/proof/matrix"
)

// record is the page of bugs.
const record = "TRACK_RECORD.md"

// testNames returns the names of all tests of the repository.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names, declared := make(map[string]bool), regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range declared.FindAllStringSubmatch(string(text), -1) {
			names[match[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// Goal: each test, clause and scenario that the page names exists.
func TestTrackRecordNamesWhatIsThere(t *testing.T) {
	var clauses, scenarios []string
	for _, c := range conformance.Clauses() {
		clauses = append(clauses, c.Name)
	}
	for _, s := range matrix.Scenarios() {
		scenarios = append(scenarios, s.Name)
	}
	tests, rows := testNames(t), 0
	for line := range strings.Lines(page(t, record)) {
		guards, ok := guardsOf(line)
		if !ok {
			continue
		}
		rows++
		names := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(line, -1)
		for _, name := range names {
			if !tests[name[1]] {
				t.Errorf("there is no test %s", name[1])
			}
		}
		of := func(pattern string) (all []string) {
			for _, phrase := range regexp.MustCompile(pattern).FindAllString(guards, -1) {
				for _, match := range regexp.MustCompile("[`\"]([^`\"]+)[`\"]").FindAllStringSubmatch(phrase, -1) {
					all = append(all, match[1])
				}
			}
			return all
		}
		inClauses, inScenarios := of("clauses? `[a-z-]+`(?: and `[a-z-]+`)?"), of(`scenario "[^"]+"`)
		for _, name := range inClauses {
			if !slices.Contains(clauses, name) {
				t.Errorf("there is no clause %s", name)
			}
		}
		for _, name := range inScenarios {
			if !slices.Contains(scenarios, name) {
				t.Errorf("there is no scenario %q", name)
			}
		}
		if len(names)+len(inClauses)+len(inScenarios) == 0 {
			t.Errorf("nothing stands guard in: %s", line)
		}
	}
	if rows < 100 {
		t.Errorf("only %d rows were found", rows)
	}
}

// guardsOf returns the cell of a row that says what stands guard.
func guardsOf(line string) (cell string, ok bool) {
	cells := strings.Split(line, " | ")
	if len(cells) < 4 || strings.HasPrefix(line, "| what happened") || strings.HasPrefix(line, "| library") {
		return "", false
	}
	if strings.HasPrefix(cells[3], "`") && len(cells[3]) < 20 { // one of ours: happened, assumed, guard, commit
		return cells[2], true
	}
	return cells[3], true
}

// Goal: each commit of the page is one of the history, so that make replay finds it.
func TestTrackRecordNamesCommits(t *testing.T) {
	commits := regexp.MustCompile("\\| `([0-9a-f]{7})` \\|").FindAllStringSubmatch(page(t, record), -1)
	if len(commits) < 90 {
		t.Errorf("only %d commits were found", len(commits))
	}
	if shallow, err := exec.Command("git", "rev-parse", "--is-shallow-repository").Output(); err != nil || strings.TrimSpace(string(shallow)) != "false" {
		t.Skip("this copy of the repository has no history")
	}
	for _, commit := range commits {
		if err := exec.Command("git", "cat-file", "-e", commit[1]+"^{commit}").Run(); err != nil {
			t.Errorf("there is no commit %s", commit[1])
		}
	}
}

// Goal: the versions on which bugs are shown are those that proof/bench/go.mod names.
func TestTrackRecordNamesTheVersionsThatRun(t *testing.T) {
	required := page(t, "../proof/bench/go.mod")
	for _, from := range [][2]string{
		{`client (v3[\d.]+)`, "go.etcd.io/etcd/client/v3 "},
		{`redsync (v[\d.]+)`, "github.com/go-redsync/redsync/v4 "},
		{`redislock (v[\d.]+)`, "github.com/bsm/redislock "},
		{`zk (v[\d.]+)`, "github.com/go-zookeeper/zk "},
		{`gocron (v2[\d.]+)`, "github.com/go-co-op/gocron/v2 "},
	} {
		versions := regexp.MustCompile(from[0]+`\b`).FindAllStringSubmatch(page(t, record), -1)
		if len(versions) == 0 {
			t.Errorf("the page has nothing like %q", from[0])
		}
		for _, version := range versions {
			if !strings.Contains(required, from[1]+version[1]+"\n") {
				t.Errorf("proof/bench/go.mod does not require %s%s", from[1], version[1])
			}
		}
	}
}
