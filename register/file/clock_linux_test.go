package file

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockstile/locker"
)

func TestAgeOfARecordFromBeforeTheLastStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := newStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	up := s.clock.now()
	for _, c := range []struct {
		boot        string
		age         time.Duration // of the file, by the wall clock
		least, most time.Duration
	}{
		{s.clock.boot, 24 * time.Hour, 0, time.Minute},     // the clock of elapsed time counts alone
		{"another", 0, 0, 0},                               // a container that hides which start this is: nobody knows
		{"another", time.Minute, 0, time.Minute},           // the wall clock says so, and the machine may be up for longer
		{"another", 1e6 * time.Hour, up, up + time.Minute}, // and for no longer than since the last start
		{"", time.Minute, 0, time.Minute},                  // a program that could not read which start it is
		{"another", -time.Hour, 0, 0},                      // the wall clock was set back
	} {
		st := s.clock.stamp("x")
		st.Boot = c.boot
		path := filepath.Join(dir, "x")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-c.age)
		if err := os.Chtimes(path, then, then); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.clock.age(st, info); got < c.least || got > c.most || c.boot == "another" && c.age == time.Minute && up > time.Minute && got < 50*time.Second {
			t.Errorf("boot %q, %v old by the wall clock: %v, want %v to %v", c.boot, c.age, got, c.least, c.most)
		}
	}
	if got := (clock{}).age(stamp{}, fresh(t)); got > time.Minute {
		t.Errorf("two programs that cannot read which start it is: %v", got)
	}
	blind := s.clock
	blind.offset = up + time.Hour // as if its clock could not be read
	if got := s.clock.age(blind.stamp("x"), fresh(t)); got > time.Minute {
		t.Errorf("a program that cannot read the clock has written it just now: %v", got)
	}
}

func fresh(t *testing.T) os.FileInfo {
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestTimeNamespace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"": 0,
		"monotonic           0         0\nboottime            0         0\n": 0,
		"monotonic   86400  5\nboottime 86400 500\n":                         24*time.Hour + 500,
		"monotonic       1  0\nboottime           -3 1\n":                    -3*time.Second + 1,
		"boottime x y\n": 0,
	} {
		if got := bootOffset(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if c := (clock{"b", time.Hour}); c.now() > (clock{}).now()-59*time.Minute {
		t.Error("the clock of a time namespace is not that of the machine")
	}
}

// A disk that is full refuses a new file. The spare one makes room for it, and is made again in the room of the file that was replaced.
func TestFullDiskLetsHoldersRenewAndRelease(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("lockstile", dir, "tmpfs", 0, "size=1m,mode=700"); err != nil {
		if errors.Is(err, unix.EPERM) {
			t.Skip("only root can make a disk that is full")
		}
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	l, err := New(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	lock, err := l.TryLock(ctx, "x", locker.WithTTL(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "full"), make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".spare")); err != nil {
		t.Error(err)
	}
	for i := range 30 { // new names have no part in that room
		if _, err := l.TryLock(ctx, "new"+strconv.Itoa(i)); !errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("a new name: %v", err)
		}
	}
	for range 5 {
		if err := lock.Renew(ctx); err != nil {
			t.Errorf("Renew: %v", err)
		}
	}
	if err := lock.Unlock(ctx); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".spare")); err != nil {
		t.Errorf("the spare file was not made again: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, ".spare")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "fuller"), make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	if _, err := l.TryLock(ctx, "x"); !errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("TryLock without a spare file: %v", err)
	}
	for _, name := range []string{"full", "fuller"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.TryLock(ctx, "x"); err != nil {
		t.Errorf("TryLock when there is room again: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".spare")); err != nil {
		t.Errorf("the spare file was not made again when there was room: %v", err)
	}
}
