package local

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/lockdir"
)

// The name can be read from its file's, so no two names share a file; a long one's is its hash.
func FuzzNameHasAFileOfItsOwn(f *testing.F) {
	for _, name := range hostileNames() {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if locker.CheckName(name) != nil {
			t.Skip("no lock has this name")
		}
		file := lockdir.FileName(name)
		if filepath.Base(file) != file || file[0] == '.' || strings.ToLower(file) != file || len(file) > 143 {
			t.Errorf("%q has the file %q", name, file)
		}
		short, _ := strings.CutSuffix(file, lockdir.Suffix)
		back, err := url.PathUnescape(short)
		if hash, long := strings.CutPrefix(short, "%sha256-"); long {
			sum := sha256.Sum256([]byte(name))
			back, err = name, nil
			if hash != hex.EncodeToString(sum[:]) {
				back = "another name's hash"
			}
		}
		if err != nil || back != name {
			t.Errorf("%q has the file %q: %q, %v", name, file, back, err)
		}
	})
}

// summed puts a body into a slot. With sum, it gets the hash that belongs to it: then all that
// is behind the hash is read as well.
func summed(body []byte, sum bool) []byte {
	slot := make([]byte, slotSize)
	copy(slot[sumSize:], body)
	if hash := sha256.Sum256(slot[sumSize:]); sum {
		copy(slot, hash[:])
	}
	return slot
}

// body is a slot without its hash.
func (g grant) body() []byte { return g.encode()[sumSize:] }

// withoutDisk has grants wait for no disk: no machine crashes in a fuzz test.
func withoutDisk(f *testing.F) {
	real := lockdir.Flush
	f.Cleanup(func() { lockdir.Flush = real })
	lockdir.Flush = func(*os.File) error { return nil }
}

// Whatever is in a file, it is an error, or the next token is greater than those in all
// slots that have their hash. If no slot has its own, the last token is not known.
func FuzzTokenIsGreaterThanThoseInAnyFile(f *testing.F) {
	f.Add(grant{lock: "x"}.body(), grant{lock: "x", last: 7, count: 7}.body(), []byte(nil), true, true)
	f.Add(grant{lock: "x", last: math.MaxUint64 - 70, count: 1}.body(), []byte(nil), []byte("more"), true, false)
	f.Add(grant{lock: "x", last: 1 << 60, count: 64, holder: "me"}.body(), []byte(magic), make([]byte, slotSize), false, true)
	f.Add(grant{lock: "x", last: 70, count: 64, kind: locker.KindSlots, slots: 3, slot: 9}.body(), grant{lock: "y"}.body(), []byte(nil), true, true)
	ahead := grant{lock: "x", last: 1 << 60, count: 64} // of the clock, which then hides no mistake
	f.Add(ahead.body(), grant{lock: "x", last: 1<<60 + 64, count: 64}.body(), []byte(nil), true, true)
	f.Add(ahead.body(), ahead.body(), []byte(nil), false, false)
	withoutDisk(f)
	dir := f.TempDir()
	l, path := newLocker(f, dir), filepath.Join(dir, "x.lock")
	f.Fuzz(func(t *testing.T, one, two, behind []byte, sumOne, sumTwo bool) {
		content := append(newContent(grant{lock: "x"}), behind...)
		copy(content, summed(one, sumOne))
		copy(content[blockSize:], summed(two, sumTwo))
		writeFile(t, path, content)
		intact, most := 0, uint64(0)
		for i := range 2 {
			slot := content[i*blockSize:][:slotSize]
			if sum := sha256.Sum256(slot[sumSize:]); bytes.HasPrefix(slot, append(sum[:], magic...)) {
				intact++
				most = max(most, binary.BigEndian.Uint64(slot[sumSize+len(magic):]))
			}
		}
		_, _ = l.Inspect(t.Context(), "x")
		for _, opts := range [][]locker.Option{nil, {locker.WithSlots(3)}} {
			lock, err := l.TryLock(t.Context(), "x", opts...)
			if err != nil {
				continue
			}
			if intact == 0 || lock.Token() <= fencing.Token(most) {
				t.Errorf("token %d after %d, from a file with %d slots that have their hash", lock.Token(), most, intact)
			}
			mustUnlock(t, lock)
		}
	})
}

// A write that a crash tears leaves the grant before it, whatever part of it was written.
func FuzzTornWriteLeavesTheGrantBeforeIt(f *testing.F) {
	f.Add(uint64(70), "before", "after", 100, 200)
	f.Add(uint64(1)<<63, "", strings.Repeat("x", locker.MaxHolder), sumSize, slotSize)
	f.Fuzz(func(t *testing.T, last uint64, before, after string, from, to int) {
		if last == 0 || last > math.MaxUint64-manyTokens || len(before) > locker.MaxHolder || len(after) > locker.MaxHolder ||
			strings.Contains(before+after, "\x00") || from < 0 || to < from || to > slotSize {
			t.Skip("not what the code writes")
		}
		was := grant{lock: "x", last: fencing.Token(last), count: 1, holder: before}
		next := grant{lock: "x", last: was.last + manyTokens, count: manyTokens, holder: after}
		content := newContent(was)
		copy(content[blockSize+from:], next.encode()[from:to])
		whole := bytes.Equal(content[blockSize:][:slotSize], next.encode())
		got, spare, err := readGrants(content, "x")
		switch {
		case err != nil:
			t.Errorf("bytes %d to %d: %v", from, to, err)
		case whole && (got != next || spare != 0), !whole && got != was:
			t.Errorf("bytes %d to %d of %+v: read as %+v", from, to, next, got)
		}
	})
}
