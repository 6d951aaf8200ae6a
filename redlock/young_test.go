package redlock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/redlock"
)

// startYoung starts three nodes, of which so many have no vote yet.
func startYoung(t *testing.T, young int, quarantine string) []*testserver.RedisServer {
	t.Helper()
	servers := startNodes(t, 3)
	for _, s := range servers[young:] {
		_, rest, _ := strings.Cut(s.Do("INFO", "server"), "run_id:")
		run, _, _ := strings.Cut(rest, "\r")
		s.Do("SET", "lockstile:voter", run+" "+quarantine) // as if it had voted before
	}
	return servers
}

// Nodes get their votes ten seconds after they were started. Whoever waits for that, waits
// in order and does not ask all the time.
func TestLockWaitsForNodesThatHaveNoVoteYet(t *testing.T) {
	t.Parallel()
	const quarantine = 10 * time.Second
	opts := redlock.Options{NodeTimeout: 20 * time.Second, MaxTTL: quarantine}
	for young, what := range map[int]string{3: "three of three", 2: "two of three"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			servers := startYoung(t, young, "10000")
			l := newLocker(t, servers, opts)
			first := make(chan error, 1)
			var all sync.WaitGroup
			for range 5 { // one talks to the nodes, the others stand behind it
				all.Go(func() {
					lock, err := l.Lock(patience(t), "a", locker.WithTTL(quarantine))
					if err == nil {
						select {
						case first <- nil:
						default:
						}
						err = lock.Unlock(patience(t))
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			<-first
			for i, s := range servers {
				most := 10
				if i >= young { // it grants each time, and is given back
					most = 15
				}
				if n := calls(s, "eval") + calls(s, "evalsha"); n > most {
					t.Errorf("%d requests to node %d in %v", n, i, quarantine)
				}
			}
			all.Wait()
		})
	}
}

// waitsForVotes waits until somebody listens for word from the nodes.
func waitsForVotes(t *testing.T, servers []*testserver.RedisServer) {
	t.Helper()
	for _, s := range servers {
		eventually(t, "one waits", func() bool { return s.Do("PUBSUB", "CHANNELS") != "" })
	}
}

// Nobody has said that the lock is taken. That is so for those behind the one that asks, too,
// and for a TryLock, which does not wait.
func TestLockWithoutVotesIsNotTakenAndSaysWhy(t *testing.T) {
	t.Parallel()
	for young, what := range map[int]string{3: "three of three", 2: "two of three"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			servers := startYoung(t, young, "3600000")
			l := newLocker(t, servers, redlock.Options{NodeTimeout: 20 * time.Second, MaxTTL: time.Hour})
			try := func() { noVotes(t, patience(t), l.TryLock, locker.ErrUnavailable) }
			try()
			front, cancel := context.WithCancel(patience(t))
			var all sync.WaitGroup
			defer all.Wait()
			all.Go(func() { noVotes(t, front, l.Lock, context.Canceled) })
			waitsForVotes(t, servers)
			try()
			behind, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			noVotes(t, behind, l.Lock, context.DeadlineExceeded)
			cancel()
		})
	}
}

// noVotes checks the error of a call that ends without an answer: what it was, and the
// reason once.
func noVotes(t *testing.T, ctx context.Context, lock func(context.Context, string, ...locker.Option) (*locker.Lock, error), want error) {
	t.Helper()
	_, err := lock(ctx, "a")
	waited := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if !errors.Is(err, want) || !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrTaken) || waited == (want == locker.ErrUnavailable) ||
		strings.Count(err.Error(), "no vote for another") != 1 {
		t.Errorf("%v", err)
	}
}
