package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/lockdir"
	"github.com/lockstile/locker/internal/locktest"
)

// workerVariable makes the test binary a worker: another process that locks.
const workerVariable = "LOCAL_TEST_WORKER"

func TestMain(m *testing.M) {
	work, ok := workers[os.Getenv(workerVariable)]
	if !ok {
		os.Exit(m.Run())
	}
	if err := work(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var workers = map[string]func(args []string) error{
	"count": countWorker,
	"storm": stormWorker,
	"hold":  holdWorker,
	"wait":  waitWorker,
	"sleep": func([]string) error { _, err := io.ReadAll(os.Stdin); return err },
	"new":   func(args []string) error { _, err := New(args[0]); return err },
	"break": breakWorker,
	"home":  homeWorker,
}

// countWorker has two goroutines add one to the number in a file args[2] times each,
// under the lock.
func countWorker(args []string) error {
	l, err := New(args[0])
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	return inTwo(func() (err error) {
		for k := 0; k < n && err == nil; k++ {
			err = locker.Do(context.Background(), l, "count", func(_ context.Context, lock *locker.Lock) error {
				return addOne(args[1], lock.Token())
			})
		}
		return err
	})
}

// inTwo calls f in two goroutines, which pass leases on to each other.
func inTwo(f func() error) error {
	other := make(chan error)
	go func() { other <- f() }()
	return errors.Join(f(), <-other)
}

// addOne reads, is slow, and writes. It notes the token behind the number.
func addOne(path string, token fencing.Token) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, tokens, _ := strings.Cut(string(content), "\n")
	n, err := strconv.Atoi(before)
	if err != nil {
		return err
	}
	time.Sleep(time.Millisecond) // the window in which another holder would do harm
	return os.WriteFile(path, fmt.Appendf(nil, "%d\n%s%d\n", n+1, tokens, token), 0o600)
}

// stormWorker locks, notes its token in a file, says so and unlocks, in two goroutines,
// until it is killed.
func stormWorker(args []string) error {
	l, err := New(args[0])
	if err != nil {
		return err
	}
	log, err := os.OpenFile(args[1], os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return inTwo(func() (err error) {
		for k := 0; err == nil; k++ {
			note := func(_ context.Context, lock *locker.Lock) error {
				_, err := fmt.Fprintln(log, lock.Token(), lock.SharedToken())
				return err
			}
			if k%3 > 0 && byteRanges {
				err = locker.Do(context.Background(), l, "storm", note, locker.WithShared())
			} else {
				err = locker.Do(context.Background(), l, "storm", note)
			}
			fmt.Println("unlocked")
		}
		return err
	})
}

// holdWorker holds a lock until its input ends. With a third argument it shares the lock,
// and says what Unlock returns, or it first starts a child that lives until its own input,
// which is the same, ends.
func holdWorker(args []string) error {
	l, err := New(args[0])
	if err != nil {
		return err
	}
	var opts []locker.Option
	shared := len(args) > 2 && args[2] == "shared"
	if shared {
		opts = append(opts, locker.WithShared(), locker.WithTTL(time.Hour))
	}
	lock, err := l.Lock(context.Background(), args[1], opts...)
	if err != nil {
		return err
	}
	if len(args) > 2 && !shared {
		child := exec.Command("/proc/self/exe")
		child.Env = append(os.Environ(), workerVariable+"=sleep")
		child.Stdin = os.Stdin
		if err := child.Start(); err != nil {
			return err
		}
		fmt.Println(child.Process.Pid)
	}
	fmt.Println(max(uint64(lock.Token()), uint64(lock.SharedToken())))
	_, err = io.ReadAll(os.Stdin)
	if shared {
		fmt.Println(lock.Unlock(context.Background()))
	}
	return err
}

// waitWorker waits for a lock, or for one of 64 slots, until it is killed.
func waitWorker(args []string) error {
	l, err := New(args[0])
	if err != nil {
		return err
	}
	var opts []locker.Option
	if args[2] == "slots" {
		opts = append(opts, locker.WithSlots(64))
	}
	_, err = l.Lock(context.Background(), args[1], opts...)
	return err
}

// homeWorker makes the default directory, looks whether it can be used, and prints it.
func homeWorker([]string) error {
	dir, err := DefaultDir()
	if err != nil {
		return err
	}
	if _, err := New(dir); err != nil {
		return err
	}
	fmt.Println(dir)
	return nil
}

// breakWorker breaks a lock and prints whether anybody had it.
func breakWorker(args []string) error {
	l, err := New(args[0])
	if err != nil {
		return err
	}
	broken, err := l.Break(context.Background(), args[1])
	fmt.Println(broken)
	return err
}

// worker is another process.
type worker struct {
	*exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	errors *strings.Builder
}

func startWorker(t testing.TB, kind string, args ...string) *worker {
	t.Helper()
	return startAs(t, exec.Command(os.Args[0], args...), kind)
}

// startAs makes a worker of a command that runs the test binary.
func startAs(t testing.TB, cmd *exec.Cmd, kind string) *worker {
	t.Helper()
	w := &worker{Cmd: cmd, errors: &strings.Builder{}}
	w.Env = append(os.Environ(), workerVariable+"="+kind, "GORACE=atexit_sleep_ms=0")
	w.Stderr = w.errors
	var err error
	if w.in, err = w.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := w.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.out = bufio.NewReader(out)
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.in.Close()
		w.kill()
	})
	return w
}

func (w *worker) kill() {
	_ = w.Process.Kill()
	_ = w.Wait()
}

// line waits for the next line that the worker prints.
func (w *worker) line(t testing.TB) string {
	t.Helper()
	timer := time.AfterFunc(30*time.Second, func() { _ = w.Process.Kill() })
	defer timer.Stop()
	s, err := w.out.ReadString('\n')
	if err != nil {
		w.kill()
		t.Fatalf("worker: %v: %s", err, w.errors)
	}
	return strings.TrimSpace(s)
}

// newLocker stands for a process of its own.
func newLocker(t testing.TB, dir string) *Locker {
	t.Helper()
	l, err := New(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func contextOf(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

var patience, mustLock = locktest.Soon, locktest.Lock

func mustUnlock(t testing.TB, lock *locker.Lock) {
	t.Helper()
	if err := lock.Unlock(patience(t)); err != nil {
		t.Fatal(err)
	}
}

func mustBeTaken(t testing.TB, l locker.Locker, name string) {
	t.Helper()
	lock, err := l.TryLock(patience(t), name)
	if !errors.Is(err, locker.ErrTaken) {
		t.Fatalf("TryLock: %v, %v, want ErrTaken", lock, err)
	}
}

// mustBeLost waits for the loss and returns why.
func mustBeLost(t testing.TB, lock *locker.Lock) locker.Reason {
	t.Helper()
	select {
	case <-lock.Lost():
	case <-time.After(30 * time.Second):
		t.Fatal("the loss was never noticed")
	}
	var lost *locker.LostError
	if !errors.As(lock.Err(), &lost) {
		t.Fatalf("Err: %v, want a LostError", lock.Err())
	}
	return lost.Reason
}

// until waits for something that happens in another goroutine or process.
func until(t testing.TB, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !happened(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// aheadOfClock makes the file of a lock whose counter is an hour ahead of the
// clock, which then hides no mistake in counting. It returns the last token. Grants
// have fewTokens then.
func aheadOfClock(t testing.TB, dir, name string) fencing.Token {
	t.Helper()
	last := fencing.Token(time.Now().Add(time.Hour).UnixMicro())
	writeFile(t, dir+"/"+lockdir.FileName(name), newContent(grant{lock: name, last: last, count: 1}))
	return last
}

func writeFile(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
