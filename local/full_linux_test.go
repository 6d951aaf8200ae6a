package local

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

func init() { workers["full"] = fullWorker }

// fullWorker locks three times, and says how. Its limit on the size of files has the kernel
// refuse what it writes to the second half of the lock file, as a full disk does.
func fullWorker(args []string) error {
	l, err := New(args[0])
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: blockSize, Max: blockSize}); err != nil {
		return err
	}
	for range 3 {
		var token fencing.Token
		err := locker.Do(context.Background(), l, "x", func(_ context.Context, lock *locker.Lock) error {
			token = lock.Token()
			return nil
		})
		fmt.Println(token, errors.Is(err, locker.ErrUnavailable) && errors.Is(err, syscall.EFBIG))
	}
	return nil
}

// Goal: a token that could not be written is given to nobody: the next would be the same.
func TestNothingIsHeldWhenTheKernelRefusesToWrite(t *testing.T) {
	dir := t.TempDir()
	l := newLocker(t, dir)
	last := aheadOfClock(t, dir, "x")
	w := startWorker(t, "full", dir)
	refused := false
	for range 3 {
		var token fencing.Token
		if _, err := fmt.Sscan(w.line(t), &token, &refused); err != nil {
			t.Fatal(err)
		}
		switch {
		case refused && token == 0:
		case refused || token <= last:
			t.Errorf("token %d, refused %t, after token %d", token, refused, last)
		default:
			last = token
		}
	}
	if !refused {
		t.Error("no write was refused: the test tests nothing")
	}
	lock := mustLock(t, l, "x")
	if lock.Token() <= last {
		t.Errorf("token %d after %d", lock.Token(), last)
	}
	mustUnlock(t, lock)
}
