package redlock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/lab/testserver"
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

func TestTryLockDoesNotWaitForNodesThatHaveNoVoteYet(t *testing.T) {
	t.Parallel()
	servers := startYoung(t, 2, "3600000")
	l := newLocker(t, servers, redlock.Options{NodeTimeout: 20 * time.Second, MaxTTL: time.Hour})
	ctx, cancel := context.WithCancel(patience(t))
	waited := make(chan error, 1)
	for _, when := range []string{"alone", "behind one that waits"} {
		if _, err := l.TryLock(patience(t), "a"); !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrTaken) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("TryLock %s: %v", when, err)
		} else {
			toldOnce(t, err)
		}
		if when == "alone" {
			go func() {
				_, err := l.Lock(ctx, "a")
				waited <- err
			}()
			waitsForVotes(t, servers)
		}
	}
	cancel()
	<-waited
}

// waitsForVotes waits until somebody listens for word from the nodes.
func waitsForVotes(t *testing.T, servers []*testserver.RedisServer) {
	t.Helper()
	for _, s := range servers {
		eventually(t, "one waits", func() bool { return s.Do("PUBSUB", "CHANNELS") != "" })
	}
}

// toldOnce checks that an error says once why there is no lock.
func toldOnce(t *testing.T, err error) {
	t.Helper()
	if n := strings.Count(err.Error(), "no vote for another"); n != 1 {
		t.Errorf("the reason is told %d times: %v", n, err)
	}
}

// Nobody has said that the lock is taken. That is so for those behind the one that asks,
// too.
func TestWaitForVotesThatEndsIsNotTakenAndSaysWhy(t *testing.T) {
	t.Parallel()
	for young, what := range map[int]string{3: "three of three", 2: "two of three"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			servers := startYoung(t, young, "3600000")
			l := newLocker(t, servers, redlock.Options{NodeTimeout: 20 * time.Second, MaxTTL: time.Hour})
			check := func(ctx context.Context, ended error) {
				_, err := l.Lock(ctx, "a")
				if !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrTaken) || !errors.Is(err, ended) {
					t.Errorf("%v", err)
				} else {
					toldOnce(t, err)
				}
			}
			front, cancel := context.WithCancel(patience(t))
			var all sync.WaitGroup
			defer all.Wait()
			all.Go(func() { check(front, context.Canceled) })
			waitsForVotes(t, servers)
			if _, err := l.TryLock(patience(t), "a"); !errors.Is(err, locker.ErrUnavailable) { // it returns when the nodes have answered
				t.Error(err)
			}
			behind, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			check(behind, context.DeadlineExceeded)
			cancel()
		})
	}
}
