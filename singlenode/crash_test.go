package singlenode_test

import (
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

func TestTokensIncreaseThoughTheServerForgotEverything(t *testing.T) {
	srv := testserver.Redis(t)
	l := newLocker(t, srv.Addr(), singlenode.Options{})
	before := mustLock(t, l, "a")
	mustUnlock(t, before)
	srv.Kill()
	srv.Wipe()
	srv.Start()
	after := mustLock(t, l, "a")
	if after.Token() <= before.Token() {
		t.Errorf("token %d after a crash, %d before", after.Token(), before.Token())
	}
	mustUnlock(t, after)
}

func TestTokensIncreaseThoughTheServerCameBackFromAnOldSnapshot(t *testing.T) {
	srv := testserver.Redis(t)
	l := newLocker(t, srv.Addr(), singlenode.Options{})
	mustUnlock(t, mustLock(t, l, "a"))
	srv.Do("SAVE")
	var before *locker.Lock
	for range 100 {
		before = mustLock(t, l, "a")
		mustUnlock(t, before)
	}
	srv.Kill()
	srv.Start()
	after := mustLock(t, l, "a")
	if after.Token() <= before.Token() {
		t.Errorf("token %d after the old snapshot, %d before", after.Token(), before.Token())
	}
	mustUnlock(t, after)
}

// The clock went back on a server that kept its data: the counter decides.
func TestTokensIncreaseThoughTheClockIsBehindTheCounter(t *testing.T) {
	srv := testserver.Redis(t)
	l := newLocker(t, srv.Addr(), singlenode.Options{})
	srv.Do("SET", "lockstile:t:{a}", "4000000000000000 value 3999999999999937 holder") // the year 2096
	for want := fencing.Token(4000000000000001); want < 4000000000000001+3*64; want += 64 {
		lock := mustLock(t, l, "a")
		if lock.Token() != want {
			t.Errorf("token %d, want %d", lock.Token(), want)
		}
		mustUnlock(t, lock)
	}
	if ttl := srv.Do("PTTL", "lockstile:t:{a}"); len(ttl) < 13 {
		t.Errorf("a counter ahead of the clock expires in %s ms, before the clock has passed it", ttl)
	}
}

func TestCounterOutOfRangeIsAnErrorAndNotAnOldToken(t *testing.T) {
	srv := testserver.Redis(t)
	l := newLocker(t, srv.Addr(), singlenode.Options{})
	srv.Do("SET", "lockstile:t:{a}", "9007199254740991 value holder")
	if lock, err := l.TryLock(patience(t), "a"); err == nil {
		t.Errorf("token %d", lock.Token())
	}
	if srv.Do("EXISTS", "a") != "0" {
		t.Error("the lock is held all the same")
	}
}
