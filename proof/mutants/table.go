//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// folder is where the tables are.
const folder = "proof/mutants"

// mutant is a row of a table: it breaks a line.
type mutant struct {
	name     string // its table and its line there, "driver:17"
	text     string // as it stands in its table, below its file
	sentence string
	rule     string
	noticed  []notice
	edits    []edit
}

// edit puts lines in the place of others.
type edit struct {
	file          string // from the root
	before, after []string
}

// notice is a test that must notice a mutant.
type notice struct {
	dir  string // from the root
	test string // with its subtest, as go test prints it: TestName/sub_test
}

func (n notice) String() string { return "./" + n.dir + " " + n.test }

// mutants is all there are, and the rules that they may name.
type mutants struct {
	all   []*mutant
	rules []string
}

// load reads all tables below root. Its error says all that is wrong with them.
func load(root string) (*mutants, error) {
	rules, err := readRules(root)
	if err != nil {
		return nil, err
	}
	ms := &mutants{rules: rules}
	var wrong []error
	tables := os.DirFS(filepath.Join(root, folder))
	err = fs.WalkDir(tables, ".", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(file) != ".txt" {
			return err
		}
		text, err := fs.ReadFile(tables, file)
		if err != nil {
			return err
		}
		t := table{name: strings.TrimSuffix(file, ".txt"), rules: rules}
		wrong = append(wrong, t.read(string(text)))
		ms.all = append(ms.all, t.rows...)
		return nil
	})
	return ms, errors.Join(append(wrong, err)...)
}

// table reads the rows of a package.
type table struct {
	name  string
	rules []string
	file  string  // whose rows are being read
	row   *mutant // that is being read, or nil
	rows  []*mutant
}

func (t *table) read(text string) error {
	var wrong []error
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n")+"\n", "\n") { // it ends with an empty line
		file, heading := strings.CutPrefix(line, "# ")
		switch {
		case heading:
			t.file = file
		case line != "":
			if t.row == nil {
				t.row = &mutant{name: fmt.Sprintf("%s:%d", t.name, i+1), text: t.name + ": " + t.file + "\n"}
			}
			t.row.text += line + "\n"
			if err := t.line(line); err != nil {
				wrong = append(wrong, fmt.Errorf("%s: %w", t.row.name, err))
			}
			continue
		}
		if t.row != nil {
			if err := t.row.whole(); err != nil {
				wrong = append(wrong, fmt.Errorf("%s: %w", t.row.name, err))
			}
			t.rows, t.row = append(t.rows, t.row), nil
		}
	}
	return errors.Join(wrong...)
}

// line reads a line of a row.
func (t *table) line(line string) error {
	m := t.row
	switch line[0] {
	case ' ', '-', '+':
		if m.edits == nil {
			m.edits = []edit{{file: t.file}}
		}
		e := &m.edits[len(m.edits)-1]
		if line[0] != '+' {
			e.before = append(e.before, line[1:])
		}
		if line[0] != '-' {
			e.after = append(e.after, line[1:])
		}
		return nil
	case '@':
		file := strings.TrimSpace(strings.TrimPrefix(line, "@@"))
		if m.edits == nil {
			return errors.New("@@ comes before the first lines")
		}
		if file == "" {
			file = m.edits[len(m.edits)-1].file
		}
		m.edits = append(m.edits, edit{file: file})
		return nil
	}
	rule, test, found := strings.Cut(line, ": ")
	switch {
	case m.edits != nil:
		return fmt.Errorf("%q stands below the lines that it is about", line)
	case !found || !slices.Contains(t.rules, rule):
		if m.noticed != nil {
			return fmt.Errorf("there is no rule %q; %s has the list", rule, rulesPage)
		}
		m.sentence = strings.TrimSpace(m.sentence + " " + line)
	case m.rule != "" && m.rule != rule:
		return fmt.Errorf("it names two rules, %q and %q", m.rule, rule)
	default:
		m.rule = rule
		m.noticed = append(m.noticed, t.notice(test))
	}
	return nil
}

// notice reads the test that must notice a row. Without a folder, it is of the table's package.
func (t *table) notice(test string) notice {
	dir := t.name
	if dir == "locker" {
		dir = "."
	}
	if strings.HasPrefix(test, "./") {
		dir, test, _ = strings.Cut(test, " ")
	}
	return notice{path.Clean(dir), test}
}

// whole says what a row lacks.
func (m *mutant) whole() error {
	switch {
	case !strings.HasSuffix(m.sentence, "."):
		return fmt.Errorf("it has to begin with a sentence on what breaks for a user, which ends with a full stop, and then comes "+
			"\"RULE: TestName\" with a rule of %s (in small letters, as there); read was %q", rulesPage, m.sentence)
	case m.noticed == nil:
		return fmt.Errorf("it lacks a line with a rule of %s and the test that notices, \"RULE: TestName\"", rulesPage)
	}
	for _, e := range m.edits {
		if e.file == "" || len(e.before) == 0 || slices.Equal(e.before, e.after) {
			return errors.New("it has to name a file, lines of it, and what stands in their place")
		}
		if clean := path.Clean(e.file); e.file != clean {
			return fmt.Errorf("it has to name the file %q as %q", e.file, clean)
		}
	}
	if m.edits == nil {
		return errors.New("it breaks no line")
	}
	return nil
}

// broken returns the files that a mutant breaks, as they are then.
func (m *mutant) broken(root string) (map[string]string, error) {
	files := make(map[string]string)
	for _, e := range m.edits {
		if _, read := files[e.file]; !read {
			text, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				return nil, err
			}
			files[e.file] = string(text)
		}
		lines := strings.Split(files[e.file], "\n")
		at, n := 0, 0
		for i := range len(lines) - len(e.before) + 1 {
			if slices.Equal(lines[i:i+len(e.before)], e.before) {
				at, n = i, n+1
			}
		}
		if n != 1 {
			return nil, fmt.Errorf("%s has these lines %d times, and should have them once:\n%s", e.file, n, strings.Join(e.before, "\n"))
		}
		files[e.file] = strings.Join(slices.Replace(lines, at, at+len(e.before), e.after...), "\n")
	}
	return files, nil
}

// unused returns the rules that no mutant breaks.
func (ms *mutants) unused() []string {
	return slices.DeleteFunc(slices.Clone(ms.rules), func(rule string) bool {
		return slices.ContainsFunc(ms.all, func(m *mutant) bool { return m.rule == rule })
	})
}

// rulesPage has the rules as a list below rulesHeading, each item's name in bold.
const (
	rulesPage    = "docs/BACKENDS.md"
	rulesHeading = "## The rules by name\n"
)

var ruleItem = regexp.MustCompile(`(?m)^- \*\*(.+?)\*\*`)

func readRules(root string) ([]string, error) {
	page, err := os.ReadFile(filepath.Join(root, rulesPage))
	if err != nil {
		return nil, err
	}
	_, list, _ := strings.Cut(string(page), rulesHeading)
	list, _, _ = strings.Cut(list, "\n## ")
	var rules []string
	for _, item := range ruleItem.FindAllStringSubmatch(list, -1) {
		rules = append(rules, item[1])
	}
	if rules == nil {
		return nil, fmt.Errorf("%s has no list of rules below %q", rulesPage, strings.TrimSpace(rulesHeading))
	}
	return rules, nil
}

// tables are the names of all tables.
func (ms *mutants) tables() (names []string) {
	for _, m := range ms.all {
		name, _, _ := strings.Cut(m.name, ":")
		names = append(names, name)
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// named returns the mutants of a package and of those below it, or of one line. All have the empty name.
func (ms *mutants) named(name string) []*mutant {
	prefix := strings.TrimSuffix(name, "/")
	return slices.DeleteFunc(slices.Clone(ms.all), func(m *mutant) bool {
		rest, below := strings.CutPrefix(m.name, prefix)
		return name != "" && (!below || rest != "" && rest[0] != '/' && rest[0] != ':')
	})
}

// choose returns the mutants that the settings ask for.
func choose(ctx context.Context, s settings, ms *mutants) ([]*mutant, error) {
	chosen := ms.named(s.only)
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no table of %s has %q: a row is called by the line at which its sentence begins, and the tables are %s",
			folder, s.only, strings.Join(ms.tables(), ", "))
	}
	if s.since != "" {
		c, err := changed(ctx, s.root, s.since)
		if err != nil {
			return nil, err
		}
		chosen = slices.DeleteFunc(chosen, func(m *mutant) bool { return !c.concern(m) })
	}
	return chosen, nil
}

// changes is what differs from an earlier commit.
type changes struct {
	root  string
	files []string
	rows  map[string]bool // the rows of the tables as they were
}

// concern reports whether a file has changed that the mutant breaks, or the mutant itself, or a file with one of the
// tests that are to notice it. The clauses of the suite are in its package.
func (c *changes) concern(m *mutant) bool {
	return !c.rows[m.text] || slices.ContainsFunc(c.files, func(file string) bool {
		return slices.ContainsFunc(m.edits, func(e edit) bool { return e.file == file }) ||
			slices.ContainsFunc(m.noticed, func(n notice) bool {
				if strings.HasPrefix(n.test, "TestConformance") && path.Dir(file) == "conformance" {
					return true
				}
				beside := strings.HasSuffix(file, "_test.go") && path.Dir(file) == n.dir
				return beside && (slices.Contains(testsOf(filepath.Join(c.root, file)), n.function()) || !c.there(n))
			})
	})
}

// there reports whether the test is in a file: it may have gone from the one that has changed.
func (c *changes) there(n notice) bool {
	files, _ := filepath.Glob(filepath.Join(c.root, n.dir, "*_test.go"))
	return slices.ContainsFunc(files, func(file string) bool { return slices.Contains(testsOf(file), n.function()) })
}

// function is the test without its subtest.
func (n notice) function() string {
	name, _, _ := strings.Cut(n.test, "/")
	return name
}

var testFunc = regexp.MustCompile(`(?m)^func (Test\w+|Example\w*|Fuzz\w+)\(`)

// testsOf returns the names of the tests in a file.
func testsOf(file string) (names []string) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil // it was removed
	}
	for _, f := range testFunc.FindAllSubmatch(text, -1) {
		names = append(names, string(f[1]))
	}
	return names
}

// changed says what differs from the last commit that the working tree has in common with since.
func changed(ctx context.Context, root, since string) (*changes, error) {
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = root
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("%s: %w: %s", cmd, err, strings.TrimSpace(said.String()))
		}
		return string(out), err
	}
	base, err := git("merge-base", since, "HEAD")
	if err != nil {
		return nil, err
	}
	base = strings.TrimSpace(base)
	committed, err := git("diff", "--name-only", "-z", "--relative", base)
	if err != nil {
		return nil, err
	}
	added, err := git("ls-files", "-z", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	c := &changes{root: root, files: strings.Split(committed+"\x00"+added, "\x00"), rows: make(map[string]bool)}
	tables, err := git("ls-tree", "-r", "--name-only", "-z", base, "./"+folder)
	for _, file := range strings.Split(tables, "\x00") {
		if path.Ext(file) != ".txt" || err != nil {
			continue
		}
		t := table{name: strings.TrimSuffix(strings.TrimPrefix(file, folder+"/"), ".txt")}
		var text string
		text, err = git("show", base+":./"+file)
		_ = t.read(text) // whatever is wrong with it by now
		for _, row := range t.rows {
			c.rows[row.text] = true
		}
	}
	return c, err
}
