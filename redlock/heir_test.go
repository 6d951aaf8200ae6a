package redlock_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/redlock"
)

// handOver has one goroutine hold the lock, another of the same Locker wait for
// it behind, and the first unlock, after between. It returns the second's lock.
func handOver(t *testing.T, l *redlock.Locker, first *locker.Lock, between func()) *locker.Lock {
	t.Helper()
	heirs := make(chan *locker.Lock, 1)
	go func() {
		defer close(heirs)
		lock, err := l.Lock(patience(t), "a", locker.WithoutRenewal())
		if err != nil {
			t.Error(err)
			return
		}
		heirs <- lock
	}()
	eventually(t, "the heir stands in line", func() bool { return redlock.InLine(l, "a") == 2 })
	between()
	mustUnlock(t, first)
	heir, ok := <-heirs
	if !ok {
		t.Fatal("the heir was not served")
	}
	return heir
}

// The counters differ, so each node draws another token for the heir, and the
// node that is far ahead answers first. One node's word is not enough: the token
// must be on a majority before the heir has the lock, or the next one's could be
// smaller.
func TestHeirsTokenIsOnAMajority(t *testing.T) {
	t.Parallel()
	const ahead fencing.Token = 4000000000000000 // the year 2096
	servers := startNodes(t, 3)
	clients := clientsOf(servers)
	for _, c := range clients[1:] {
		c.AddHook(slow{by: 200 * time.Millisecond})
	}
	l := newLockerOn(t, clients, patient)
	heir := handOver(t, l, mustLockOn(t, l, servers), func() {
		for i, s := range servers {
			s.Do("SET", "lockstile:t:{a}", fmt.Sprintf("%d v h", ahead-1000*fencing.Token(i)))
		}
	})
	agree := 0
	for _, s := range servers {
		var n fencing.Token
		_, _ = fmt.Sscan(s.Do("GET", "lockstile:t:{a}"), &n)
		if n >= heir.Token() {
			agree++
		}
	}
	if heir.Token() <= ahead-1000 || agree < 2 {
		t.Errorf("token %d is on %d nodes", heir.Token(), agree)
	}
	mustUnlock(t, heir)
	free(t, "a", servers...)
}

// The nodes begin the heir's lease when they carry the release out, and their
// answers take a while: its validity counts from before the release was sent.
//
// A node that a slow machine lets carry out the release late draws another token,
// and the heir has to ask by itself: then there is nothing to see, and the test
// begins again.
func TestHeirsValidityCountsFromBeforeTheReleaseWasSent(t *testing.T) {
	for !heirIsSeenToCountFromTheRelease(t) {
		t.Log("the heir had to ask")
	}
}

func heirIsSeenToCountFromTheRelease(t *testing.T) bool {
	servers := startNodes(t, 3)
	clients := clientsOf(servers)
	var mu sync.Mutex
	var began time.Time // the first of the leases
	var asked atomic.Bool
	for _, c := range clients {
		c.(*redis.Client).AddHook(&onScript{act: func(n int32) {
			if n != 2 { // the acquisition was the first
				asked.Store(asked.Load() || n > 2)
				return
			}
			mu.Lock()
			if began.IsZero() {
				began = time.Now()
			}
			mu.Unlock()
			time.Sleep(500 * time.Millisecond)
		}})
	}
	l := newLockerOn(t, clients, patient)
	heir := handOver(t, l, mustLockOn(t, l, servers), func() {})
	seen := !asked.Load()
	mu.Lock()
	end := began.Add(locker.DefaultTTL - locker.Drift(locker.DefaultTTL))
	mu.Unlock()
	if seen && !heir.Deadline().Before(end) {
		t.Errorf("believed in until %v after the lease may have ended", heir.Deadline().Sub(end))
	}
	mustUnlock(t, heir)
	return seen
}
