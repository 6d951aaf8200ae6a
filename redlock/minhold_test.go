package redlock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/redlock"
)

// keptOn is how many of the servers keep "a" taken for nobody.
func keptOn(servers []*testserver.RedisServer) (n int) {
	for _, s := range servers {
		if value := s.Do("GET", "a"); len(value) == 28 && value[0] == '-' {
			n++
		}
	}
	return n
}

// A node that keeps the lock is restarted and has forgotten it. A majority still has it or
// has no vote.
func TestMinimumHoldOutlivesTheRestartOfANode(t *testing.T) {
	t.Parallel()
	const hold = 6 * time.Second
	opts := redlock.Options{NodeTimeout: 20 * time.Second, MaxTTL: hold}
	servers := startNodes(t, 3)
	l, other := reaching(t, servers, opts, 0, 1), newLocker(t, servers, opts)
	ttl := locker.WithTTL(hold)
	mustUnlock(t, mustLock(t, other, "b", ttl)) // all of the nodes that matter have votes
	began := time.Now()
	held := mustLock(t, l, "a", ttl, locker.WithMinHold(hold))
	mustUnlock(t, held)
	if keptOn(servers) != 2 {
		t.Fatalf("%d nodes keep it, want the two that had granted it", keptOn(servers))
	}
	forget(servers[0])
	var next *locker.Lock
	eventually(t, "granted", func() (ok bool) {
		var err error
		next, err = other.TryLock(patience(t), "a", ttl)
		return err == nil
	})
	if d := time.Since(began); d < hold {
		t.Errorf("granted %v after it was granted for %v at least", d, hold)
	}
	if next.Token() <= held.Token() {
		t.Errorf("token %d after %d", next.Token(), held.Token())
	}
}

// A node that has forgotten the lock votes again after MaxTTL.
func TestMinimumHoldOverTheLargestTTLIsRefused(t *testing.T) {
	l := newLocker(t, startNodes(t, 3), patient)
	_, err := l.Lock(patience(t), "a", locker.WithMinHold(time.Minute+1))
	if err == nil || !strings.Contains(err.Error(), "minimum hold") || !strings.Contains(err.Error(), "MaxTTL") {
		t.Errorf("%v", err)
	}
}
