package local

import (
	"crypto/sha256"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/lockdir"
)

func flip(content []byte, at int) []byte {
	content[at] ^= 1
	return content
}

// anotherFormat has the slots say that they are of one, with sums that are right.
func anotherFormat(content []byte) []byte {
	for i := range 2 {
		slot := content[i*blockSize:][:slotSize]
		slot[sumSize+len(magic)-2]++ // the number of the format
		sum := sha256.Sum256(slot[sumSize:])
		copy(slot, sum[:])
	}
	return content
}

// None of these is what a crash leaves. To go on from token 1, or from the
// clock, would be to guess.
func TestDamagedFileIsAnErrorAndStaysAsItIs(t *testing.T) {
	with := func(last fencing.Token) []byte { return newContent(grant{lock: "x", last: last, count: 1}) }
	whole := func() []byte { return with(7) }
	for what, content := range map[string][]byte{
		"empty":               {},
		"truncated":           whole()[:fileSize-1],
		"one slot cut off":    whole()[:blockSize],
		"too long":            append(whole(), 0),
		"text":                []byte("hello\n"),
		"zeros":               make([]byte, fileSize),
		"both slots bad":      flip(flip(whole(), slotSize-1), blockSize+sumSize+len(magic)),
		"both sums bad":       flip(flip(whole(), 0), blockSize),
		"of another lock":     newContent(grant{lock: "y", last: 7, count: 1}),
		"of another format":   anotherFormat(whole()),
		"at the last token":   with(math.MaxUint64),
		"near the last token": with(math.MaxUint64 - 10),
		"last token by half":  append(whole()[:blockSize], with(math.MaxUint64)[blockSize:]...),
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			l, path := newLocker(t, dir), filepath.Join(dir, "x.lock")
			writeFile(t, path, content)
			for _, attempt := range []func() (*locker.Lock, error){
				func() (*locker.Lock, error) { return l.Lock(patience(t), "x") },
				func() (*locker.Lock, error) { return l.TryLock(patience(t), "x") },
			} {
				lock, err := attempt()
				if !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), path) {
					t.Errorf("%v, %v, want ErrUnavailable with the path of the file", lock, err)
				}
				if other := strings.Contains(err.Error(), "another version"); other != (what == "of another format") {
					t.Error(err)
				}
			}
			if readFile(t, path) != string(content) {
				t.Error("the file was changed")
			}
			if _, err := l.Inspect(patience(t), "x"); err == nil && !strings.Contains(what, "last token") {
				t.Error("Inspect reads it")
			}
		})
	}
}

func TestWhatIsNotAFileIsAnError(t *testing.T) {
	dir := t.TempDir()
	l, path := newLocker(t, dir), filepath.Join(dir, "x.lock")
	outside := filepath.Join(t.TempDir(), "outside")
	writeFile(t, outside, newContent(grant{lock: "x"}))
	for what, put := range map[string]func() error{
		"directory":     func() error { return os.Mkdir(path, 0o700) },
		"symbolic link": func() error { return os.Symlink(outside, path) },
		"dangling link": func() error { return os.Symlink(outside+"2", path) },
	} {
		if err := put(); err != nil {
			t.Fatal(err)
		}
		if lock, err := l.TryLock(patience(t), "x"); !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "replaced") {
			t.Errorf("%s: %v, %v, want ErrUnavailable with the path", what, lock, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// A write that was torn leaves the other slot, which has the last token that
// was returned. The good one is kept until the next grant is written.
func TestOneBadSlotIsWrittenOver(t *testing.T) {
	ahead := fencing.Token(time.Now().Add(time.Hour).UnixMicro())
	for bad := range 2 {
		dir := t.TempDir()
		l, path := newLocker(t, dir), filepath.Join(dir, "x.lock")
		content := newContent(grant{lock: "x", last: ahead, count: 1, holder: "before"})
		copy(content[bad*blockSize:], grant{lock: "x", last: ahead + fewTokens, count: fewTokens, holder: "torn"}.encode())
		writeFile(t, path, flip(content, bad*blockSize+sumSize+20))
		good := content[(1-bad)*blockSize:][:blockSize]
		lock := mustLock(t, l, "x")
		if lock.Token() != ahead+1 {
			t.Errorf("token %d after %d, want one more", lock.Token(), ahead)
		}
		if got := readFile(t, path)[(1-bad)*blockSize:][:blockSize]; got != string(good) {
			t.Errorf("slot %d was written over while it was the only good one", 1-bad)
		}
		mustUnlock(t, lock)
		lock = mustLock(t, l, "x")
		if lock.Token() != ahead+1+fewTokens {
			t.Errorf("token %d, want the one after the %d from %d on", lock.Token(), fewTokens, ahead+1)
		}
		mustUnlock(t, lock)
	}
}

// A counter that is ahead of the clock goes on by so little that the clock catches up:
// on a disk that takes a grant every 8 µs.
func TestCounterDoesNotRunAwayFromTheClock(t *testing.T) {
	dir := t.TempDir()
	last := aheadOfClock(t, dir, "x")
	for range 5 {
		lock := mustLock(t, newLocker(t, dir), "x")
		if lock.Token() != last+1 {
			t.Fatalf("token %d, want %d", lock.Token(), last+1)
		}
		last += 8
		mustUnlock(t, lock)
	}
}

func TestTokensDoNotGoBackWhenTheFileIsDeleted(t *testing.T) {
	dir := t.TempDir()
	l := newLocker(t, dir)
	last := fencing.Token(0)
	for range 5 {
		lock := mustLock(t, l, "x")
		if lock.Token() <= last {
			t.Fatalf("token %d after %d", lock.Token(), last)
		}
		last = lock.Token()
		mustUnlock(t, lock)
		if err := os.Remove(filepath.Join(dir, "x.lock")); err != nil {
			t.Fatal(err)
		}
	}
}

// watchFlush calls f before each flush of a file, until the test is over.
func watchFlush(t *testing.T, f func(*os.File) error) {
	t.Helper()
	real := lockdir.Flush
	t.Cleanup(func() { lockdir.Flush = real })
	lockdir.Flush = func(file *os.File) error {
		if err := f(file); err != nil {
			return err
		}
		return real(file)
	}
}

// What is flushed is the last token of the grant: goroutines that share it write none.
func TestGrantIsReturnedWhenItsTokensAreOnTheDisk(t *testing.T) {
	dir := t.TempDir()
	l := newLocker(t, dir)
	var flushed []string
	watchFlush(t, func(f *os.File) error {
		if g, _, err := (&file{File: f, lock: "x"}).newest(); err == nil {
			flushed = append(flushed, g.last.String())
		} else {
			flushed = append(flushed, f.Name())
		}
		return nil
	})
	for _, want := range []string{"0 LAST " + dir, "LAST"} { // a new file, its first grant, its place in the directory
		flushed = nil
		lock := mustLock(t, l, "x")
		got := strings.Join(flushed, " ")
		if want = strings.ReplaceAll(want, "LAST", (lock.Token() + 63).String()); got != want {
			t.Errorf("flushed %q, want %q", got, want)
		}
		mustUnlock(t, lock)
	}
}

func TestNothingIsHeldWhenTheDiskRefuses(t *testing.T) {
	full := errors.New("no space left")
	dir := t.TempDir()
	l, other := newLocker(t, dir), newLocker(t, dir)
	last := aheadOfClock(t, dir, "x")
	refuse := true
	watchFlush(t, func(*os.File) error {
		if refuse {
			return full
		}
		return nil
	})
	for _, name := range []string{"x", "new"} {
		if lock, err := l.Lock(patience(t), name); !errors.Is(err, locker.ErrUnavailable) || !errors.Is(err, full) {
			t.Fatalf("%v, %v, want ErrUnavailable and its cause", lock, err)
		}
	}
	if files, _ := filepath.Glob(dir + "/.new*"); len(files) > 0 {
		t.Errorf("left behind: %v", files)
	}
	refuse = false
	lock, err := other.TryLock(patience(t), "x")
	if err != nil {
		t.Fatal(err)
	}
	if lock.Token() <= last {
		t.Errorf("token %d after %d", lock.Token(), last)
	}
	mustUnlock(t, lock)
}

// A lock WithoutRenewal must not be granted when its TTL is over. A renewed lock has no
// end, however slow the disk is.
func TestSlowDiskUsesUpTheTTLWithoutRenewal(t *testing.T) {
	dir := t.TempDir()
	l := newLocker(t, dir)
	watchFlush(t, func(*os.File) error { time.Sleep(locker.MinTTL); return nil })
	lock, err := l.TryLock(patience(t), "x", locker.WithTTL(locker.MinTTL), locker.WithoutRenewal())
	if !errors.Is(err, locker.ErrUnavailable) {
		t.Fatalf("%v, %v, want ErrUnavailable", lock, err)
	}
	lock, err = newLocker(t, dir).TryLock(patience(t), "x", locker.WithTTL(locker.MinTTL))
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, lock)
}
