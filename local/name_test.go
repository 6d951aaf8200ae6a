package local

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/lockdir"
)

func hostileNames() []string {
	names := []string{
		"a", "A", "ab", "aB", "a b", "a.b", "a-b", "a_b", "a/b", "/", "/etc/passwd", "../../x", "..", ".", "...", "x/..",
		".break", ".new-1", ".new-x", "break", "x", "x.lock", "x.lock.lock", "%", "%%", "%2f", "%2F", "/2f", "a%2fb", "%25",
		"\n", "a\n", "\r", "\\", "C:", "nul", "con", "é", "e\u0301", "É", "ß", "ss", "\u2126", "Ω", "日本", "🔒", "*", "?", "~", " ", "  ", "\x01", "\x7f",
		strings.Repeat("a", 512), strings.Repeat("a", 511) + "b", strings.Repeat("A", 512), strings.Repeat("/", 512),
		strings.Repeat("é", 256), strings.Repeat("a", 120), strings.Repeat("a", 121), strings.Repeat("A", 40), strings.Repeat("A", 41),
	}
	for _, name := range names { // names that look like the files of others
		if short := strings.TrimSuffix(lockdir.FileName(name), lockdir.Suffix); short != name {
			names = append(names, short)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func TestEveryNameHasAFileOfItsOwnInTheDirectory(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "deep", "locks")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l, other := newLocker(t, dir), newLocker(t, dir)
	files := map[string]string{}
	for _, name := range hostileNames() {
		file := lockdir.FileName(name)
		if before, ok := files[strings.ToLower(file)]; ok {
			t.Errorf("%q and %q have the file %s", before, name, file)
		}
		files[strings.ToLower(file)] = name
		if len(file) > 143 || filepath.Base(file) != file || file[0] == '.' {
			t.Errorf("%q has the file %q", name, file)
		}
		mustLock(t, l, name)
		mustBeTaken(t, other, name)
	}
	found, err := os.ReadDir(dir)
	if err != nil || len(found) != len(files) {
		t.Errorf("%d files for %d names, %v", len(found), len(files), err)
	}
	for parent, want := range map[string]int{root: 1, filepath.Dir(dir): 1} {
		if found, err := os.ReadDir(parent); err != nil || len(found) != want {
			t.Errorf("%v in %s, %v", found, parent, err)
		}
	}
}

func TestPlainNamesStayReadable(t *testing.T) {
	for name, want := range map[string]string{
		"invoices-42_a.b": "invoices-42_a.b.lock",
		"invoices/42":     "invoices%2f42.lock",
		".hidden":         "%2ehidden.lock",
		"Case":            "%43ase.lock",
	} {
		if got := lockdir.FileName(name); got != want {
			t.Errorf("%q has the file %s, want %s", name, got, want)
		}
	}
	if got := lockdir.FileName(strings.Repeat("x", locker.MaxName)); !strings.HasPrefix(got, "%sha256-") {
		t.Errorf("a long name has the file %s", got)
	}
}
