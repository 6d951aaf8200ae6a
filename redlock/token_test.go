package redlock_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/redisnode"
)

// Counters that run ahead of every clock, differently on each node: the lock's
// token is the greatest of its majority, all of whose counters are at the end of the
// range before Lock returns.
func TestTokensOfNodesThatDisagreeAreWrittenBack(t *testing.T) {
	const ahead = 4000000000000000 // the year 2096
	servers := startNodes(t, 5)
	l := newLocker(t, servers, patient)
	rnd := rand.New(rand.NewPCG(1, 2))
	last := fencing.Token(0)
	for range 20 {
		base := max(uint64(last), ahead)
		for _, i := range rnd.Perm(5)[:2] { // a minority: what a grant without a majority may have left
			servers[i].Do("SET", "lockstile:t:{a}", fmt.Sprintf("%d v h", base+rnd.Uint64N(5)))
		}
		lock := mustLock(t, l, "a")
		if lock.Token() <= last {
			t.Errorf("token %d after %d", lock.Token(), last)
		}
		last = lock.Token()
		agree := 0
		for _, s := range servers {
			var n fencing.Token
			_, _ = fmt.Sscan(s.Do("GET", "lockstile:t:{a}"), &n)
			if n >= last+redisnode.Tokens-1 {
				agree++
			}
		}
		if agree < 3 {
			t.Errorf("token %d is on %d nodes only", last, agree)
		}
		mustUnlock(t, lock)
		free(t, "a", servers...)
	}
}

// A node that has lost the lock before its token was written back has no vote:
// somebody else may hold it there already.
func TestNodeThatCannotConfirmTheTokenHasNoVote(t *testing.T) {
	servers := startNodes(t, 3)
	for i, s := range servers {
		s.Do("SET", "lockstile:t:{a}", fmt.Sprintf("%d v h", 4000000000000000+10*uint64(i)))
	}
	l := newLocker(t, servers, patient)
	// The grant stays without its write-back where the script for that is
	// refused.
	for _, s := range servers {
		s.Do("ACL", "SETUSER", "default", "-pttl") // the write-back needs it, a grant of a free lock does not
	}
	_, err := l.TryLock(patience(t), "a")
	if err == nil {
		t.Fatal("granted with a token that is on one node")
	}
	free(t, "a", servers...)
	for _, s := range servers {
		s.Do("ACL", "SETUSER", "default", "+pttl")
	}
	mustUnlock(t, mustLock(t, l, "a"))
}

// A name that is idle for less than that does not depend on clocks.
func TestCounterOfAnIdleNameIsKeptForAnHourUnlessToldOtherwise(t *testing.T) {
	servers := startNodes(t, 3)
	for _, option := range []time.Duration{0, 5 * time.Hour} { // of programs with one name, the longest time counts
		opts, want := patient, max(option, time.Hour)
		opts.KeepCounter = option
		mustUnlock(t, mustLockOn(t, newLocker(t, servers, opts), servers))
		for i, s := range servers {
			ms, err := strconv.Atoi(s.Do("PTTL", "lockstile:t:{a}"))
			if left := time.Duration(ms) * time.Millisecond; err != nil || left < want || left > 2*want {
				t.Errorf("with %v node %d keeps the counter for %v, %v", option, i, left, err)
			}
		}
		free(t, "a", servers...)
	}
}
