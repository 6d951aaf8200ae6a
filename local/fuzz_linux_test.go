package local

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/lockstile/locker"
)

// Whatever is where the record of a holder's slot should be, others get an error, or another
// slot and a greater token. What the record says with its hash is believed.
func FuzzRecordOfAPlaceOfAnyBytes(f *testing.F) {
	mine := grant{lock: "x", last: 9, count: 1, kind: locker.KindSlots, slots: 3}
	for _, slot := range []int{0, 2, 3, 1 << 15} {
		mine.slot = slot
		f.Add(mine.body(), true)
	}
	f.Add(grant{lock: "x", last: 1 << 60, count: 64, kind: locker.KindShared}.body(), true)
	f.Add([]byte(magic), false)
	withoutDisk(f)
	dir := f.TempDir()
	l, other := newLocker(f, dir), newLocker(f, dir)
	f.Fuzz(func(t *testing.T, body []byte, sum bool) {
		path := filepath.Join(dir, "x.lock")
		writeFile(t, path, newContent(grant{lock: "x"}))
		holder := mustLock(t, l, "x", locker.WithSlots(3))
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		record := summed(body, sum)
		if _, err := file.WriteAt(record, offset(firstPlace)); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		_, _ = other.Inspect(t.Context(), "x")
		for _, opts := range [][]locker.Option{{locker.WithSlots(3)}, {locker.WithShared()}, nil} {
			lock, err := other.TryLock(t.Context(), "x", opts...)
			if err != nil {
				continue
			}
			said, ok := readSlot(record)
			if !ok || lock.Slot() > 2 || lock.Slot() >= 0 && !said.broken && lock.Slot() == said.slot || lock.Token() != 0 && lock.Token() <= holder.Token() {
				t.Errorf("slot %d, token %d, beside the holder of token %d, whose record is %+v, %t", lock.Slot(), lock.Token(), holder.Token(), said, ok)
			}
			mustUnlock(t, lock)
		}
		_ = holder.Unlock(t.Context()) // which finds its record changed
	})
}
