package open_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/open"
)

// needsKernelLocks skips where package local does not work.
func needsKernelLocks(t *testing.T) {
	t.Helper()
	switch runtime.GOOS {
	case "linux", "darwin", "freebsd", "netbsd", "openbsd", "dragonfly":
	default:
		t.Skipf("no kernel file locks on %s", runtime.GOOS)
	}
}

func TestLocalByURL(t *testing.T) {
	needsKernelLocks(t)
	base := t.TempDir()
	t.Chdir(base)
	odd := "a%20b?c#d@e:f"
	if err := os.Mkdir(odd, 0o700); err != nil {
		t.Fatal(err)
	}
	works(t, mustOpen(t, "local:"+odd))
	works(t, mustOpen(t, "local:"+filepath.Join(base, odd)))
	works(t, mustOpen(t, "local://"+filepath.Join(base, odd)))
	relative, absolute := mustOpen(t, "local:"+odd), mustOpen(t, "local:"+filepath.Join(base, odd))
	mustHold(t, relative, "x")
	if _, err := absolute.TryLock(patience(t), "x"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock of what the same directory's other name holds: %v", err)
	}
}

func TestLocalWithoutADirectoryIsTheUsersOwn(t *testing.T) {
	needsKernelLocks(t)
	base := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", base)
	mustHold(t, mustOpen(t, "local:"), "x")
	if _, err := mustOpen(t, "local:"+filepath.Join(base, "lockstile")).TryLock(patience(t), "x"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock by way of the directory's name: %v", err)
	}
}

func TestLocalDirectoryThatCannotBeUsedIsUnavailable(t *testing.T) {
	needsKernelLocks(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below"), filepath.Join(filepath.Dir(file), "missing")} {
		_, err := open.URL(patience(t), "local:"+dir)
		if !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
