//go:build unix

package main

import (
	"flag"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each of these has so many rows at least, with those of folders below it.
const least = 6

var covered = []string{
	"driver", "locker", "election", "local", "singlenode", "redlock", "etcd", "zookeeper", "postgres",
	"fencing/redisfence", "fencing/pgfence", "fencing/etcdfence", "fencing/zkfence", "fencing/httpfence",
}

const here = "../.." // the root

// TestEveryRowCanBeTried looks whether the tables still fit the code, without a build: the lines are there once, what
// stands in their place is Go, and the tests are there.
func TestEveryRowCanBeTried(t *testing.T) {
	ms, err := load(here)
	if err != nil {
		t.Fatal(err)
	}
	said, tests := make(map[string]string), make(map[string][]string)
	for _, m := range ms.all {
		files, err := m.broken(here)
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		for file, text := range files {
			if _, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution); err != nil && path.Ext(file) == ".go" {
				t.Errorf("%s: %v", m.name, err)
			}
		}
		if other, double := said[m.sentence]; double {
			t.Errorf("%s says the same as %s", m.name, other)
		}
		said[m.sentence] = m.name
		if strings.Count(m.sentence, ". ") > 1 {
			t.Errorf("%s needs more than two sentences to say what breaks", m.name)
		}
		for _, n := range m.noticed {
			if tests[n.dir] == nil {
				files, _ := filepath.Glob(filepath.Join(here, n.dir, "*_test.go")) // the pattern is a good one
				for _, file := range files {
					tests[n.dir] = append(tests[n.dir], testsOf(file)...)
				}
			}
			if !slices.Contains(tests[n.dir], n.function()) {
				t.Errorf("%s: ./%s has no %s", m.name, n.dir, n.function())
			}
		}
	}
}

// Goal: "cd proof && go run ./mutants" needs no flag.
func TestTheTablesAreFoundFromTheFolderOfTheModule(t *testing.T) {
	t.Chdir("..")
	for _, args := range [][]string{nil, {"-root", "mutants/../.."}} {
		fs := flag.NewFlagSet("mutants", flag.ContinueOnError)
		s := flags(fs)
		if err := fs.Parse(args); err != nil {
			t.Fatal(err)
		}
		if ms, err := load(s.root); err != nil || len(ms.all) == 0 {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestEveryPartThatKeepsLocksSafeHasRows(t *testing.T) {
	ms, err := load(here)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range covered {
		found := 0
		for _, m := range ms.all {
			if strings.HasPrefix(m.name, dir+"/") || strings.HasPrefix(m.name, dir+":") {
				found++
			}
		}
		if found < least {
			t.Errorf("%s has %d rows, want %d or more", dir, found, least)
		}
	}
}

func TestRowThatIsNotWholeIsRefused(t *testing.T) {
	const file, sentence, rule, lines = "# a.go\n\n", "A lock is held\ntwice.\n", "r: TestA\n", "-one\n+two\n"
	for name, c := range map[string]struct{ text, want string }{
		"whole":              {file + sentence + rule + lines, ""},
		"two tests":          {file + sentence + rule + "r: ./b TestB\n" + lines, ""},
		"two places":         {file + sentence + rule + lines + "@@ b.go\n-one\n", ""},
		"no sentence":        {file + rule + lines, "sentence"},
		"no rule":            {file + sentence + lines, "rule"},
		"other rule":         {file + sentence + rule + "s: TestA\n" + lines, `no rule "s"`},
		"two rules":          {file + sentence + rule + "q: TestA\n" + lines, "two rules"},
		"no file":            {sentence + rule + lines, "file"},
		"odd name of a file": {"# ./a.go\n\n" + sentence + rule + lines, `"./a.go" as "a.go"`},
		"no lines":           {file + sentence + rule, "no line"},
		"nothing that stood": {file + sentence + rule + "+two\n", "lines of it"},
		"nothing new":        {file + sentence + rule + " one\n", "stands in their place"},
		"no empty line":      {file + sentence + rule + lines + sentence, "below the lines"},
	} {
		root := t.TempDir()
		put(t, root, rulesPage, rulesHeading+"\n- **r**: a rule\n- **q**: another\n\n## Other\n\n- **s**: no rule\n")
		put(t, root, folder+"/a.txt", c.text)
		_, err := load(root)
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestLinesThatAreNotThereOnceAreRefused(t *testing.T) {
	root := t.TempDir()
	put(t, root, "a.go", "one\none\ntwo\n")
	for line, want := range map[string]string{"one": "2 times", "three": "0 times", "wo": "0 times", "two": ""} {
		files, err := (&mutant{edits: []edit{{file: "a.go", before: []string{line}, after: []string{"four"}}}}).broken(root)
		if want == "" && (err != nil || files["a.go"] != "one\none\nfour\n") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %q, %v, want %q", line, files, err, want)
		}
	}
}

func put(t *testing.T, root, file, text string) {
	t.Helper()
	if err := write(filepath.Join(root, file), []byte(text)); err != nil {
		t.Fatal(err)
	}
}
