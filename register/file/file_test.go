//go:build unix

package file_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/lockdir"
	"github.com/lockstile/locker/internal/locktest"
	"github.com/lockstile/locker/local"
	"github.com/lockstile/locker/register"
	"github.com/lockstile/locker/register/file"
	"github.com/lockstile/locker/register/registertest"
)

func newStore(t testing.TB, dir string) register.Store {
	t.Helper()
	s, _, err := file.NewStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	dir := t.TempDir()
	_, opts, err := file.NewStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	registertest.Run(t, registertest.Harness{New: func(t testing.TB) register.Store {
		s := newStore(t, dir)
		t.Cleanup(func() { file.Drain(t, s) }) // what was given up may write into dir, which goes away
		return s
	}, Options: opts})
}

func locks(t testing.TB, dir string) *register.Locker {
	t.Helper()
	l, err := file.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

var soon, lock, unlock = locktest.Soon, locktest.Try, locktest.Unlock

// files returns what is in a directory, without the spare file.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if e.Name() != ".spare" {
			found[e.Name()] = string(text)
		}
	}
	return found
}

func TestLockIsAFileThatPeopleCanReadAndOthersCannot(t *testing.T) {
	dir := t.TempDir()
	l := locks(t, dir)
	held := lock(t, l, "a/b", locker.WithHolder("the nightly job"))
	got := files(t, dir)
	if len(got) != 1 || !strings.Contains(got["a%2fb.lock"], "the nightly job") {
		t.Errorf("the directory has %v", got)
	}
	info, err := os.Stat(filepath.Join(dir, "a%2fb.lock"))
	if err != nil || info.Mode().Perm() != 0o600 || runtime.GOOS == "linux" && info.Mode()&os.ModeSticky == 0 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
	unlock(t, held)
	if now := files(t, dir); len(now) != 1 {
		t.Errorf("after Unlock the directory has %v", now)
	}
}

// A job that was killed has left its lock. The next one has never seen it, and does not wait.
func TestLockOfADeadProcessIsFreeAfterItsTTLForAProcessThatHasSeenNothing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("a record has no age here")
	}
	alive, dir := t.TempDir(), t.TempDir()
	const ttl = 2 * time.Second
	began := time.Now()
	lock(t, locks(t, alive), "x", locker.WithTTL(ttl))
	left, err := os.ReadFile(filepath.Join(alive, "x.lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x.lock"), left, 0o600); err != nil { // nobody renews that one, or removes it
		t.Fatal(err)
	}
	if _, err := locks(t, dir).TryLock(soon(t), "x"); !errors.Is(err, locker.ErrTaken) && time.Since(began) < ttl {
		t.Fatalf("while it is held: %v", err)
	}
	time.Sleep(time.Until(began.Add(ttl + ttl/10)))
	for {
		_, err := locks(t, dir).TryLock(soon(t), "x") // each has seen nothing
		if err == nil {
			break
		}
		if !errors.Is(err, locker.ErrTaken) || time.Since(began) > 30*time.Second {
			t.Fatal(err)
		}
	}
}

// Neither takes the other's lock of the same name for free, nor touches it.
func TestDirectoryOfPackageLocalIsRefusedAndTheOtherWayRound(t *testing.T) {
	dir := t.TempDir()
	other, err := local.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	l := locks(t, dir)
	lock(t, other, "theirs")
	lock(t, l, "ours", locker.WithHolder(strings.Repeat("x", locker.MaxHolder)))
	before := files(t, dir)
	if _, err := l.TryLock(soon(t), "theirs"); !errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), "package local") {
		t.Errorf("a lock of package local: %v", err)
	}
	if _, err := other.TryLock(soon(t), "ours"); !errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), "file:DIR") {
		t.Errorf("a lock of this package, for package local: %v", err)
	}
	if infos, err := l.List(soon(t), ""); err != nil || len(infos) != 1 || infos[0].Name != "ours" {
		t.Errorf("List: %v, %v", infos, err)
	}
	if infos, err := other.List(soon(t), ""); err != nil || len(infos) != 1 || infos[0].Name != "theirs" {
		t.Errorf("package local lists %v, %v", infos, err)
	}
	if after := files(t, dir); !maps.Equal(before, after) {
		t.Errorf("the directory had\n%v\nand has\n%v", before, after)
	}
}

func TestDamagedFileIsRefusedAndStaysAsItIs(t *testing.T) {
	dir := t.TempDir()
	held := lock(t, locks(t, dir), "x")
	if err := held.Unlock(soon(t)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "x.lock")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "y.lock"), whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := locks(t, dir).TryLock(soon(t), "y"); !errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), `the record of "x"`) {
		t.Errorf("with a copy of another name's file: %v", err)
	}
	for _, text := range []string{"", "\n", "{}", string(whole[:len(whole)-1]), string(whole[:len(whole)/2]), string(whole[1:]), string(whole) + "more", strings.Repeat("x", 1<<20)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, l := range []*register.Locker{locks(t, dir), locks(t, dir)} {
			if _, err := l.TryLock(soon(t), "x"); !errors.Is(err, locker.ErrRefused) {
				t.Errorf("with a file of %d bytes: %v", len(text), err)
			}
		}
		if got := files(t, dir)["x.lock"]; got != text {
			t.Errorf("a file of %d bytes was replaced by %q", len(text), got)
		}
	}
}

func TestDirectoryThatWillNotDoIsRefused(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", plain, filepath.Join(dir, "none")} {
		if _, err := file.New(bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	file.SetFileSystem(t, lockdir.FileSystem{Name: "NFS", Kind: lockdir.Network})
	if _, err := file.New(dir); err == nil || !strings.Contains(err.Error(), "which is on NFS") {
		t.Errorf("a directory on NFS: %v", err)
	}
}

func TestDirectoryThatHasGoneIsNoFreeLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l := locks(t, dir)
	lock(t, l, "x")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if info, err := l.Inspect(soon(t), "x"); !errors.Is(err, locker.ErrRefused) {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	if _, err := l.TryLock(soon(t), "y"); !errors.Is(err, locker.ErrRefused) {
		t.Errorf("TryLock: %v", err)
	}
}

// Root looks after a lock, or takes one. The user, whose directory it is, goes on.
func TestFilesThatRootMakesBelongToTheDirectorysOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	dir := t.TempDir()
	if err := os.Chown(dir, 12345, -1); err != nil {
		t.Fatal(err)
	}
	held := lock(t, locks(t, dir), "x")
	if err := held.Renew(soon(t)); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Fatal(entries, err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if uid := info.Sys().(*syscall.Stat_t).Uid; uid != 12345 {
			t.Errorf("%s belongs to %d", e.Name(), uid)
		}
	}
}

// A lock that cannot be seen may be held.
func TestListSaysThatItCannotReadAFile(t *testing.T) {
	dir := t.TempDir()
	l := locks(t, dir)
	lock(t, l, "x")
	file.Unreadable(t, "x")
	if infos, err := l.List(soon(t), ""); !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("List: %v, %v", infos, err)
	}
}

// What is no file will not become one by waiting.
func TestWhatIsNoFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	l := locks(t, dir)
	for name, make := range map[string]func(path string) error{
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"link":      func(path string) error { return os.Symlink("elsewhere", path) },
		"pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		if err := make(filepath.Join(dir, name+".lock")); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Lock(soon(t), name); !errors.Is(err, locker.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A stopped process has the kernel's locks of many files. Whoever waits for them keeps nobody else from the disk.
func TestWritersThatWaitKeepNobodyFromTheDisk(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	ctx, cancel := context.WithCancel(soon(t))
	var all sync.WaitGroup
	for i := range 2 * file.MostBusy {
		name := fmt.Sprint(i)
		version, err := s.Swap(soon(t), name, "", []byte("1"))
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(filepath.Join(dir, name+".lock"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if ok, err := lockdir.Flock(f, lockdir.Exclusive); !ok || err != nil {
			t.Fatal(ok, err)
		}
		all.Go(func() { _, _ = s.Swap(ctx, name, version, []byte("2")) })
	}
	if _, err := s.Swap(soon(t), "other", "", []byte("1")); err != nil {
		t.Error(err)
	}
	cancel()
	all.Wait()
	file.Drain(t, s) // before the directory goes
}

// A process that was stopped while it wrote keeps the kernel's lock. Nobody breaks that: when it goes on, it writes.
func TestWriteWaitsForAnotherNoLongerThanItsContext(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	version, err := s.Swap(soon(t), "x", "", []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, "x.lock"))
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := lockdir.Flock(f, lockdir.Exclusive); !ok || err != nil {
		t.Fatal(ok, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Swap(ctx, "x", version, []byte("2")); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "another process is writing to "+dir) {
		t.Errorf("while another process writes: %v", err)
	}
	file.Drain(t, s) // who has given up tries no more
	if e, err := s.Get(soon(t), "x"); err != nil || string(e.Record) != "1" {
		t.Errorf("who reads does not wait: %q, %v", e.Record, err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := s.Swap(soon(t), "x", version, []byte("3"))
		ended <- err
	}()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("after that: %v", err)
	}
}

// A writer that opened the file before another one replaced it has the lock on a file that has no name any more.
func TestWriteOnAFileThatWasReplacedIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	version, err := s.Swap(soon(t), "x", "", []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	file.BeforeLock(t, func() {
		replaced := filepath.Join(dir, ".replaced")
		if err := os.WriteFile(replaced, []byte("{\"2\":2}\n{\"name\":\"x\"}\n"), 0o600); err != nil {
			t.Error(err)
		}
		if err := os.Rename(replaced, filepath.Join(dir, "x.lock")); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.Swap(soon(t), "x", version, []byte("late")); !errors.Is(err, register.ErrChanged) {
		t.Errorf("the late write: %v", err)
	}
	if e, err := s.Get(soon(t), "x"); err != nil || string(e.Record) != `{"2":2}` {
		t.Errorf("the record is %q, %v", e.Record, err)
	}
}

// What a crash of the machine leaves is the old record or the new one, whole, and the new one if Swap has returned.
func TestRecordIsOnTheDiskBeforeItHasItsNameAndTheNameBeforeSwapReturns(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	if _, err := s.Swap(soon(t), "y", "", []byte("1")); err != nil { // makes the spare file, too
		t.Fatal(err)
	}
	version := ""
	for _, record := range []string{"1", "2"} {
		var seen []string
		stop := watchFlush(t, func(f *os.File) error {
			what := "the file"
			if f.Name() == dir {
				what = "the directory"
			}
			e, err := s.Get(soon(t), "x")
			seen = append(seen, what+" while there is "+string(e.Record))
			return err
		})
		next, err := s.Swap(soon(t), "x", version, []byte(record))
		stop()
		before := map[string]string{"1": "", "2": "1"}[record]
		if want := []string{"the file while there is " + before, "the directory while there is " + record}; err != nil || !slices.Equal(seen, want) {
			t.Errorf("synced %q, want %q; %v", seen, want, err)
		}
		version = next
	}
}

func watchFlush(t *testing.T, do func(f *os.File) error) (stop func()) {
	real := lockdir.Flush
	stop = func() { lockdir.Flush = real }
	t.Cleanup(stop)
	lockdir.Flush = func(f *os.File) error { return errors.Join(do(f), real(f)) }
	return stop
}

func TestDiskThatHangsHoldsUpNobodyForLongerThanTheirContexts(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	hangs, hung := make(chan struct{}), make(chan struct{}, 1000)
	watchFlush(t, func(*os.File) error { hung <- struct{}{}; <-hangs; return nil })
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			defer cancel()
			if _, err := s.Swap(ctx, fmt.Sprint(i), "", []byte("1")); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Swap: %v", err)
			}
		})
	}
	all.Wait()
	if n := len(hung); n > file.MostBusy {
		t.Errorf("%d threads wait for the disk", n)
	}
	close(hangs)
	file.Drain(t, s)
}
