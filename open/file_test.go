package open_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/open"
)

func TestFileByURL(t *testing.T) {
	needsKernelLocks(t)
	base := t.TempDir()
	t.Chdir(base)
	odd := "a%20b?c#d@e:f"
	if err := os.Mkdir(odd, 0o700); err != nil {
		t.Fatal(err)
	}
	works(t, mustOpen(t, "file:"+odd))
	works(t, mustOpen(t, "file://"+filepath.Join(base, odd)))
	relative, absolute := mustOpen(t, "file:"+odd), mustOpen(t, "file:"+filepath.Join(base, odd))
	mustHold(t, relative, "x")
	if _, err := absolute.TryLock(patience(t), "x"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock of what the same directory's other name holds: %v", err)
	}
}

func TestFileDirectoryThatCannotBeUsedIsRefused(t *testing.T) {
	needsKernelLocks(t)
	missing := filepath.Join(t.TempDir(), "missing")
	_, err := open.URL(patience(t), "file:"+missing)
	if !errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), missing) {
		t.Errorf("a directory that is not there: %v", err)
	}
}

// "file:$DIR" and "file://$DIR" look like that where DIR is not set. Root could lock in its root directory.
func TestURLWithoutADirectoryIsWrong(t *testing.T) {
	for _, url := range []string{"file:", "file:/", "file://", "file:///", "file:/.", "local:/", "local://", "local:/tmp/.."} {
		b, err := open.URL(patience(t), url)
		if err == nil {
			_ = b.Close()
		}
		if err == nil || errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "no directory") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
