//go:build unix

package main

import (
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// Each of these has so many patches at least, with those of folders below it.
const least = 6

var broken = []string{
	"driver", "locker", "election", "local", "singlenode", "redlock", "etcd", "zookeeper", "postgres",
	"fencing/redisfence", "fencing/pgfence", "fencing/etcdfence", "fencing/zkfence", "fencing/httpfence",
}

const here = "../.." // the root

// TestEveryPatchCanBeTried looks at the headers, and applies each patch to copies.
func TestEveryPatchCanBeTried(t *testing.T) {
	ps, err := load(here)
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBench(settings{root: here})
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	said := make(map[string]string)
	for _, p := range ps.all {
		if _, err := b.apply(p); err != nil {
			t.Errorf("%s does not apply: %v", p.name, err)
		}
		if other, double := said[p.sentence]; double {
			t.Errorf("%s says the same as %s", p.name, other)
		}
		said[p.sentence] = p.name
		if strings.Count(p.sentence, ". ") > 1 {
			t.Errorf("%s needs more than two sentences to say what breaks", p.name)
		}
		dir := path.Dir(p.name)
		if dir == "locker" {
			dir = "."
		}
		if len(packageFiles(t, dir, "*.go")) == 0 {
			t.Errorf("%s: there is no package %q", p.name, dir)
		}
		for _, n := range p.noticed {
			if !n.exists(t) {
				t.Errorf("%s: ./%s has no test that %q may be about", p.name, n.dir, n.run)
			}
		}
	}
}

// exists reports whether the package has a test with the first part of the pattern.
func (n notice) exists(t *testing.T) bool {
	for _, file := range packageFiles(t, n.dir, "*_test.go") {
		if n.inFile(file) {
			return true
		}
	}
	return false
}

func packageFiles(t *testing.T, dir, pattern string) []string {
	files, err := filepath.Glob(filepath.Join(here, dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestEveryPartThatKeepsLocksSafeHasPatches(t *testing.T) {
	ps, err := load(here)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range broken {
		found := 0
		for _, p := range ps.all {
			if strings.HasPrefix(p.name, dir+"/") {
				found++
			}
		}
		if found < least {
			t.Errorf("%s has %d patches, want %d or more", dir, found, least)
		}
	}
}

func TestHeaderThatIsNotWholeIsRefused(t *testing.T) {
	const sentence, rule, noticed = "A lock is held twice.\n\n", "Rule: r\n", "Noticed by: ./a ^TestA$\n"
	diff := change("a.go", "one", "two")
	for name, c := range map[string]struct{ text, want string }{
		"whole":       {sentence + rule + noticed + diff, ""},
		"no sentence": {rule + noticed + "\n" + diff, "sentence"},
		"no rule":     {sentence + noticed + diff, "Rule"},
		"other rule":  {sentence + "Rule: s\n" + noticed + diff, `no rule "s"`},
		"two rules":   {sentence + rule + rule + noticed + diff, "neither"},
		"no test":     {sentence + rule + diff, "Noticed by"},
		"no folder":   {sentence + rule + "Noticed by: ^TestA$\n" + diff, "neither"},
		"no diff":     {sentence + rule + noticed, "no diff"},
	} {
		root := t.TempDir()
		put(t, root, rulesPage, rulesHeading+"\n- **r**: a rule\n\n## Other\n\n- **s**: no rule\n")
		put(t, root, folder+"/a/p.patch", c.text)
		_, err := load(root)
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// change is a diff of a file that has one line.
func change(file, from, to string) string {
	return "\n--- a/" + file + "\n+++ b/" + file + "\n@@ -1 +1 @@\n-" + from + "\n+" + to + "\n"
}

func put(t *testing.T, root, file, text string) {
	t.Helper()
	if err := write(filepath.Join(root, file), []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func TestPatternIsReadAsGoTestDoes(t *testing.T) {
	for _, c := range []struct {
		run, name string
		want      bool
	}{
		{"^TestA$", "TestA", true},
		{"^TestA$", "TestAB", false},
		{"^TestA$", "TestA/sub", true},
		{"^TestA$/^sub$", "TestA", false},
		{"^TestA$/^sub$", "TestA/sub", true},
		{"^TestA$/^a sub$", "TestA/a_sub", true},
		{"^TestB$|^TestA$/^sub$", "TestA/sub", true},
		{"^TestB$|^TestA$/^sub$", "TestA/other", false},
		{"^Test(A|B/C)$", "TestA", true},
		{"", "TestA", true},
	} {
		if got := (notice{run: c.run}).matches(c.name); got != c.want {
			t.Errorf("%q matches %q: %v, want %v", c.run, c.name, got, c.want)
		}
	}
}
