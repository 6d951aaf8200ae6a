package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

func mustInspect(t *testing.T, l *Locker, want locker.Info) {
	t.Helper()
	want = withHolder(want)
	if got, err := l.Inspect(patience(t), want.Name); !reflect.DeepEqual(got, want) || err != nil {
		t.Errorf("Inspect: %+v, %v, want %+v", got, err, want)
	}
}

// withHolder is info with its only holder among the Holders.
func withHolder(info locker.Info) locker.Info {
	if info.Held && info.Holders == nil {
		info.Holders = []locker.Holder{{Text: info.Holder, Number: locker.Number(info.Token), Slot: -1}}
	}
	return info
}

func TestInspectTellsAndMakesNothing(t *testing.T) {
	dir := t.TempDir()
	l, other := newLocker(t, dir), newLocker(t, dir)
	mustInspect(t, other, locker.Info{Name: "x"})
	if files, err := os.ReadDir(dir); len(files) > 0 || err != nil {
		t.Errorf("%v, %v", files, err)
	}
	lock := mustLock(t, l, "x", locker.WithHolder("somebody"))
	before := readFile(t, l.store.path("x"))
	mustInspect(t, other, locker.Info{Name: "x", Held: true, Holder: "somebody", Token: lock.Token()})
	mustInspect(t, l, locker.Info{Name: "x", Held: true, Holder: "somebody", Token: lock.Token()})
	if readFile(t, l.store.path("x")) != before {
		t.Error("the file was changed")
	}
	mustUnlock(t, lock)
	mustInspect(t, other, locker.Info{Name: "x", Token: lock.Token()})

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Inspect(ctx, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want Canceled", err)
	}
}

func TestEachProcessThatWaitsIsCountedOnce(t *testing.T) {
	if !byteRanges {
		t.Skip("waiters cannot be seen on this system")
	}
	dir := t.TempDir()
	lock := mustLock(t, newLocker(t, dir), "x", locker.WithHolder(""))
	const n = 5
	done := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	for range n {
		l := newLocker(t, dir)
		for range 2 {
			go func() {
				_, err := l.Lock(ctx, "x")
				done <- err
			}()
		}
	}
	until(t, "all wait", func() bool { return waiters(t, newLocker(t, dir), "x") == n })
	cancel()
	for range 2 * n {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	mustInspect(t, newLocker(t, dir), locker.Info{Name: "x", Held: true, Token: lock.Token()})
	mustUnlock(t, lock)
}

func TestDirectoryThatCannotBeUsedIsAnError(t *testing.T) {
	root := t.TempDir()
	writeFile(t, root+"/file", nil)
	for dir, want := range map[string]string{
		"":                "no directory",
		root + "/missing": "make that directory first",
		root + "/file":    "not a directory",
	} {
		if l, err := New(dir); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("New(%q): %v, %v, want an error with %q", dir, l, err, want)
		}
	}
	if err := os.Mkdir(root+"/later", 0o700); err != nil {
		t.Fatal(err)
	}
	l := newLocker(t, root+"/later")
	if err := os.Remove(root + "/later"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.TryLock(t.Context(), "x"); !errors.Is(err, locker.ErrUnavailable) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want ErrUnavailable and its cause", err)
	}
}

func TestRelativeDirectoryStaysWhereItWas(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("locks", 0o700); err != nil {
		t.Fatal(err)
	}
	l := newLocker(t, "locks")
	dir, err := filepath.Abs("locks")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	lock := mustLock(t, l, "x")
	mustBeTaken(t, newLocker(t, dir), "x")
	mustUnlock(t, lock)
}

func TestDefaultDirIsMadeForTheUserAlone(t *testing.T) {
	runtime, temp := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	for _, c := range []struct{ runtime, in string }{{runtime, runtime}, {"", temp}, {"relative", temp}} {
		t.Setenv("XDG_RUNTIME_DIR", c.runtime)
		for range 2 { // the second time it is there
			dir, err := DefaultDir()
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(dir)
			if err != nil || filepath.Dir(dir) != c.in || info.Mode().Perm() != 0o700 {
				t.Errorf("%s, %v, %v, want a private one in %s", dir, info.Mode(), err, c.in)
			}
			mustUnlock(t, mustLock(t, newLocker(t, dir), "x"))
		}
	}
}

// With sudo -E or su, the runtime directory is that of the user before. A directory
// of ours in it would keep that user's own programs out, and the user could move
// it away with the files of held locks.
func TestRuntimeDirectoryOfSomebodyElseIsLeftAlone(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	for what, c := range map[string]struct {
		mode  os.FileMode
		owner int
	}{
		"somebody else's":            {0o700, 65534},
		"everybody's":                {os.ModeSticky | 0o777, 65534},
		"ours, for others to change": {0o777, os.Geteuid()},
	} {
		if c.owner != os.Geteuid() && os.Geteuid() != 0 {
			t.Log("skipped, for it takes root:", what)
			continue
		}
		runtime := filepath.Join(t.TempDir(), "runtime")
		if err := makeDir(runtime, c.mode, c.owner); err != nil {
			t.Fatal(err)
		}
		t.Setenv("XDG_RUNTIME_DIR", runtime)
		if dir, err := DefaultDir(); err != nil || filepath.Dir(dir) != temp {
			t.Errorf("%s: %s, %v, want one in %s", what, dir, err, temp)
		}
		if files, err := os.ReadDir(runtime); err != nil || len(files) > 0 {
			t.Errorf("%s: %v, %v, want nothing made", what, files, err)
		}
	}
}

// TMPDIR is passed on as XDG_RUNTIME_DIR is, and there is no third place to go to.
func TestTemporaryDirectoryOfSomebodyElseIsRefused(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "")
	for what, c := range map[string]struct {
		mode  os.FileMode
		owner int
		want  string
	}{
		"somebody else's": {0o700, 65534, "belongs to user 65534"},
		"everybody's":     {os.ModeSticky | 0o777, 65534, "belongs to user 65534"},
		"not sticky":      {0o777, os.Geteuid(), "written to by others"},
		"sticky":          {os.ModeSticky | 0o777, os.Geteuid(), ""},
		"our group's":     {0o770, os.Geteuid(), ""},
	} {
		if c.owner != os.Geteuid() && os.Geteuid() != 0 {
			t.Log("skipped, for it takes root:", what)
			continue
		}
		temp := filepath.Join(t.TempDir(), "temp")
		if err := makeDir(temp, c.mode, c.owner); err != nil {
			t.Fatal(err)
		}
		t.Setenv("TMPDIR", temp)
		dir, err := DefaultDir()
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), temp) {
			t.Errorf("%s: %s, %v, want an error with %q", what, dir, err, c.want)
		}
		if files, err := os.ReadDir(temp); err != nil || len(files) > 0 {
			t.Errorf("%s: %v, %v, want nothing made", what, files, err)
		}
	}
}

// A directory or link that leads to ours can be moved away as well, and another put there,
// in which a second holder gets the lock.
func TestTemporaryDirectoryThatIsReachedThroughSomebodyElsesIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a directory of somebody else's")
	}
	theirs, ours := filepath.Join(t.TempDir(), "theirs"), t.TempDir()
	within, away := filepath.Join(theirs, "ours"), filepath.Join(t.TempDir(), "link")
	if err := errors.Join(makeDir(theirs, 0o755, 65534), os.Mkdir(within, 0o700),
		os.Symlink(ours, filepath.Join(theirs, "link")), os.Symlink(within, away)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", "")
	for _, temp := range []string{within, filepath.Join(theirs, "link"), away} {
		t.Setenv("TMPDIR", temp)
		if dir, err := DefaultDir(); err == nil || !strings.Contains(err.Error(), theirs+", which belongs to user 65534") {
			t.Errorf("%s: %s, %v", temp, dir, err)
		}
	}
}

func TestDefaultDirOfOthersIsRefused(t *testing.T) {
	for what, c := range map[string]struct {
		put  func(dir string) error
		want string
	}{
		"a link":          {func(dir string) error { return os.Symlink(t.TempDir(), dir) }, "is not a directory"},
		"a file":          {func(dir string) error { return os.WriteFile(dir, nil, 0o600) }, "is not a directory"},
		"for the group":   {func(dir string) error { return makeDir(dir, 0o720, os.Geteuid()) }, "written to by others"},
		"for everybody":   {func(dir string) error { return makeDir(dir, os.ModeSticky|0o702, os.Geteuid()) }, "written to by others"},
		"somebody else's": {func(dir string) error { return makeDir(dir, 0o700, 65534) }, "belongs to user 65534"},
	} {
		if what == "somebody else's" && os.Geteuid() != 0 {
			t.Log("skipped, for it takes root:", what)
			continue
		}
		t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
		path := filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "lockstile")
		if err := c.put(path); err != nil {
			t.Fatal(err)
		}
		if dir, err := DefaultDir(); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %s, %v, want an error with %q", what, dir, err, c.want)
		}
	}
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir()+"/missing")
	if dir, err := DefaultDir(); err == nil {
		t.Errorf("%s in a directory that is not there", dir)
	}
}

func makeDir(dir string, mode os.FileMode, owner int) error {
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = os.Chmod(dir, mode)
	}
	if err == nil && owner != os.Geteuid() {
		err = os.Chown(dir, owner, -1)
	}
	return err
}

func TestGuaranteesAreGoodEnoughForCorrectness(t *testing.T) {
	l := newLocker(t, t.TempDir())
	for _, need := range []locker.Need{locker.Efficiency, locker.Correctness} {
		if err := locker.Require(l, need); err != nil {
			t.Error(err)
		}
	}
}

func TestListShowsWhatIsHeldBelowThePrefix(t *testing.T) {
	dir := t.TempDir()
	l, other := newLocker(t, dir), newLocker(t, dir)
	var want []locker.Info
	for _, name := range []string{"jobs/A", "jobs/a", "jobs/b", "jobs/" + strings.Repeat("x", 500)} {
		lock := mustLock(t, l, name, locker.WithHolder("host 1"))
		want = append(want, withHolder(locker.Info{Name: name, Held: true, Holder: "host 1", Token: lock.Token()}))
	}
	mustLock(t, l, "other")
	mustUnlock(t, mustLock(t, l, "jobs/free"))
	mustBreak(t, other, false) // makes the file of breakers
	damaged := func(name string) []byte { return flip(flip(newContent(grant{lock: name}), 0), blockSize) }
	writeFile(t, l.store.path("jobs/damaged"), damaged("jobs/damaged"))
	for name, content := range map[string][]byte{"apt.lock": nil, "copy.lock": newContent(grant{lock: "jobs/a"})} { // strangers' locks
		writeFile(t, filepath.Join(dir, name), content)
		f, err := openFile(filepath.Join(dir, name), "")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.drop() }()
		if ok, _, err := f.take(&driver.Request{}); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "dir.lock"), 0o700), os.Symlink(t.TempDir(), filepath.Join(dir, "link.lock"))); err != nil {
		t.Fatal(err)
	}
	if got, err := other.List(t.Context(), "jobs/"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("listed %+v, %v, want %+v", got, err, want)
	}
	if got, err := other.List(t.Context(), ""); err != nil || len(got) != len(want)+1 {
		t.Errorf("listed %+v, %v, want %d", got, err, len(want)+1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.List(ctx, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want Canceled", err)
	}
	// Who holds a lock whose file is damaged cannot be told, and that it is held must be.
	writeFile(t, l.store.path("jobs/b"), damaged("jobs/b"))
	if got, err := other.List(t.Context(), "jobs/"); !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), l.store.path("jobs/b")) {
		t.Errorf("%v, %v, want ErrUnavailable with the path of the file", got, err)
	}
}
