//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/lockertest"
	"github.com/lockstile/locker/open"
)

// held is the lock of x in a store in memory.
func held(t *testing.T, opts ...locker.Option) (*lockertest.Locker, hold) {
	t.Helper()
	return heldAll(t, []string{"x"}, opts...)
}

func heldAll(t *testing.T, names []string, opts ...locker.Option) (*lockertest.Locker, hold) {
	t.Helper()
	store := lockertest.New()
	t.Cleanup(func() { _ = store.Close() })
	set, err := locker.LockAll(t.Context(), store, names, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return store, hold{store: store, set: set}
}

// missing is a command that cannot be started, so whoever tries to says so.
const missing = "/no/such/command"

func canBeLocked(t *testing.T, l locker.Locker, name string) {
	t.Helper()
	lock, err := l.TryLock(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// The machine may have been suspended between the grant and the start of the command.
func TestCommandDoesNotBeginWhenTheLockIsLostAlready(t *testing.T) {
	t.Parallel()
	store, h := held(t)
	store.Lose("x")
	<-h.set.Lost()
	c := &runCommand{command: []string{missing}}
	if status, err := c.runUnder(h, exec.Command(missing), nil); status != exitLost || !errors.Is(err, locker.ErrLost) {
		t.Errorf("status %d, %v", status, err)
	}
}

// One of several locks is lost before the command begins. The others must not stay taken, by nobody.
func TestLocksBesideOneThatIsLostAreGivenBackWhenTheCommandDoesNotBegin(t *testing.T) {
	t.Parallel()
	store, h := heldAll(t, []string{"x", "y"})
	other := store.Another()
	defer other.Close()
	store.Lose("x")
	<-h.set.Lost()
	c := &runCommand{command: []string{missing}}
	if status, err := c.runUnder(h, exec.Command(missing), nil); status != exitLost || !errors.Is(err, locker.ErrLost) {
		t.Errorf("status %d, %v", status, err)
	}
	canBeLocked(t, other, "y")
}

func TestLockThatIsGrantedAsASignalEndsTheWaitIsGivenBack(t *testing.T) {
	t.Parallel()
	store, h := held(t)
	other := store.Another()
	defer other.Close()
	if status, err := new(wanted).notHeld(h, nil, &signalError{syscall.SIGTERM}); status != 128+15 || err != nil {
		t.Errorf("status %d, %v", status, err)
	}
	canBeLocked(t, other, "x")
}

func TestFirstSignalThatAsksForAnEndIsTheOneThatEndsTheWait(t *testing.T) {
	signals := make(chan os.Signal, 3)
	for _, sig := range []os.Signal{syscall.SIGUSR1, syscall.SIGHUP, syscall.SIGINT} {
		signals <- sig
	}
	ended := until(signals, func(ctx context.Context) { <-ctx.Done() })
	if ended == nil || ended.sig != syscall.SIGHUP {
		t.Errorf("the wait was %v, want the hangup", ended)
	}
}

// --min-hold counts from the grant, however long the lock was waited for.
func TestHoldBeginsWhenTheLockIsGranted(t *testing.T) {
	t.Parallel()
	url := "local:" + t.TempDir()
	holder := launch(t, "run", "-b", url, "x", "--", "sh", "-c", report)
	holder.word("token")
	c := &wanted{backend: backendOf(url), ttl: locker.DefaultTTL, names: []string{"x"}}
	got := make(chan hold, 1)
	go func() {
		h, err := c.attempt(t.Context(), 0)
		if err != nil {
			t.Error(err)
		}
		got <- h
	}()
	awaitWaiters(t, url, "x", "1")
	still := driver.Now()
	holder.goOn()
	holder.ends(0)
	h := <-got
	if h.granted < still {
		t.Errorf("the hold is counted from %v before the holder before has unlocked", still.Sub(h.granted))
	}
	if h.set != nil {
		if err := h.giveBack(); err != nil {
			t.Error(err)
		}
	}
}

// The store hangs, and is not asked for the first time: for opening it there is no more time than
// for the whole wait.
func TestStoreThatHangsIsAskedForNoLongerThanTheRestOfTheWait(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	srv.Pause()
	defer srv.Resume()
	c := &wanted{backend: backendOf("redis://" + srv.Addr()), ttl: locker.DefaultTTL, names: []string{"x"}, wait: time.Hour}
	if _, err := c.attempt(t.Context(), 50*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) || !timeIsUp(err) {
		t.Errorf("it was waited for until %v, and not for the rest of the wait", err)
	}
}

// The time that was spent on asking a store that was away is part of --wait.
func TestLockThatIsTakenIsWaitedForNoLongerThanTheRestOfTheWait(t *testing.T) {
	t.Parallel()
	url := "local:" + t.TempDir()
	holder := launch(t, "run", "-b", url, "x", "--", "sh", "-c", report)
	holder.word("token")
	c := &wanted{backend: backendOf(url), ttl: locker.DefaultTTL, names: []string{"x"}, wait: time.Hour}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := c.attempt(ctx, 50*time.Millisecond); !errors.Is(err, locker.ErrTaken) || ctx.Err() != nil {
		t.Errorf("it was waited for until %v", err)
	}
	holder.goOn()
	holder.ends(0)
}

// The store is away when the wait begins, and then has the lock taken.
func TestWaitDoesNotBeginAnewWhenTheStoreIsBack(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t, "--appendonly", "yes", "--appendfsync", "always")
	srv.Do("SET", "x", "a stranger's")
	srv.Kill()
	c := &wanted{backend: backendOf("redis://" + srv.Addr()), ttl: locker.DefaultTTL, names: []string{"x"}, wait: 8 * time.Second}
	c.quiet = true
	ended := make(chan error, 1)
	go func() {
		_, err := c.acquire(t.Context())
		ended <- err
	}()
	time.Sleep(c.wait / 8)
	srv.Start()
	if err := <-ended; err == nil || strings.Contains(err.Error(), "it was waited for "+c.wait.String()) {
		t.Errorf("the whole wait began anew: %v", err)
	}
}

// What asks a store one thing does so for ten seconds at most.
func TestQuestionHasTenSeconds(t *testing.T) {
	t.Parallel()
	began := time.Now()
	err := (&backend{named: "local:" + t.TempDir()}).ask(func(ctx context.Context, _ open.Backend) error {
		end, _ := ctx.Deadline()
		if end.Before(began.Add(10*time.Second)) || end.After(time.Now().Add(10*time.Second)) {
			t.Errorf("it has %v", end.Sub(began))
		}
		return locker.ErrTaken
	})
	if !errors.Is(err, locker.ErrTaken) {
		t.Error(err)
	}
}

// hangs is a store that cannot be closed.
type hangs struct {
	open.Backend
	until chan struct{}
}

func (h hangs) Close() error {
	<-h.until
	return errors.New("closed late")
}

func TestStoreThatHangsIsLeftToTheEndOfTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hangs{until: make(chan struct{})}
		defer close(h.until)
		began := time.Now()
		if err := shut(h); err != nil || time.Since(began) != 3*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}
