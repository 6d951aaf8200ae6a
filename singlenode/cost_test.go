package singlenode_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

// The client alone takes 15 for two bare commands. Ten are for hooks that rewrite keys:
// each key is a string, and each try has arguments of its own. (To keep the strings would
// make each held lock larger by a tenth.)
func TestLockAndUnlockAllocateLittle(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates too")
	}
	const most = 48
	srv := testserver.Redis(t)
	l := newLocker(t, srv.Addr(), singlenode.Options{})
	ctx := context.Background()
	n := testing.AllocsPerRun(500, func() {
		lock, err := l.Lock(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
	})
	if n > most {
		t.Errorf("%v allocations for a lock and its unlock, want %d at most", n, most)
	}
}

func TestHeldLocksAreSmallAndHaveNoGoroutines(t *testing.T) {
	const locks, most = 10_000, 2048
	srv := testserver.Redis(t)
	l := newLocker(t, srv.Addr(), singlenode.Options{})
	mustUnlock(t, mustLock(t, l, "a"))
	memory, goroutines := testserver.Heap(), runtime.NumGoroutine()
	held := make([]*locker.Lock, locks)
	for i := range held {
		held[i] = mustHold(t, l, fmt.Sprint("invoices/", i))
	}
	each := (testserver.Heap() - memory) / locks
	for end := time.Now().Add(time.Minute); each > most && time.Now().Before(end); each = (testserver.Heap() - memory) / locks {
		time.Sleep(100 * time.Millisecond) // renewals under way take memory, too
	}
	if each > most {
		t.Errorf("%d bytes for each held lock, want %d at most", each, most)
	} else {
		t.Logf("%d bytes for each held lock", each)
	}
	until(t, "the goroutines of the last renewals", func() bool { return runtime.NumGoroutine()-goroutines <= locks/100 })
	runtime.KeepAlive(held)
}

// mustHold is mustLock without a context that is kept until the test ends.
func mustHold(t *testing.T, l locker.Locker, name string) *locker.Lock {
	t.Helper()
	lock, err := l.Lock(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// The client has no timeout of its own here. Twelve at once: some find an idle
// connection, for the others one is dialled that nobody answers.
func TestUnlockGivesUpOnAServerThatIsSilent(t *testing.T) {
	srv := testserver.Redis(t)
	l, p := behind(t, srv)
	const locks = 12
	held := make([]*locker.Lock, locks)
	for i := range held {
		held[i] = mustHold(t, l, fmt.Sprint(i))
	}
	p.Cut()
	var wg sync.WaitGroup
	for _, lock := range held {
		wg.Go(func() {
			if err := lock.Unlock(context.Background()); !errors.Is(err, locker.ErrUnavailable) {
				t.Errorf("Unlock: %v", err)
			}
		})
	}
	over := make(chan struct{})
	go func() { wg.Wait(); close(over) }()
	select {
	case <-over:
	case <-time.After(30 * time.Second):
		t.Error("still waiting for the server") // let go of before the test ends
		p.Heal()
		<-over
	}
}

// The request of an Unlock is lost, and the server answers again a moment later. The lease
// has an hour: whoever waits must not wait for its end.
func TestUnlockOfASilentServerIsTriedAgain(t *testing.T) {
	srv := testserver.Redis(t)
	l, p := behind(t, srv)
	lock := mustLock(t, l, "a", locker.WithTTL(time.Hour))
	p.Cut()
	if err := lock.Unlock(context.Background()); !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("Unlock: %v", err)
	}
	if srv.Do("EXISTS", "a") != "1" {
		t.Fatal("the scenario does not show what it should: the lock is free already")
	}
	p.Heal()
	until(t, "the lock to be given back", func() bool { return srv.Do("EXISTS", "a") == "0" })
}

// An idle connection may be one that the server has closed: what is sent again
// goes over another.
func TestUnlockOverAConnectionThatBrokeIsSentAgain(t *testing.T) {
	srv := testserver.Redis(t)
	l, p := behind(t, srv)
	mustUnlock(t, mustLock(t, l, "a")) // the server knows the script now
	lock := mustHold(t, l, "a")
	p.CutReplies()
	result := make(chan error, 1)
	go func() { result <- lock.Unlock(context.Background()) }()
	until(t, "the release", func() bool { return srv.Do("EXISTS", "a") == "0" })
	srv.Do("SET", "a", "somebody else's")
	p.Heal()
	if err := <-result; err != nil {
		t.Errorf("Unlock: %v", err)
	}
	if got := srv.Do("GET", "a"); got != "somebody else's" {
		t.Errorf("the key has %q", got)
	}
}
