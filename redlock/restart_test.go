package redlock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/redisnode"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/redlock"
)

// reaching returns a Locker that reaches only some of the servers.
func reaching(t *testing.T, servers []*testserver.RedisServer, opts redlock.Options, reached ...int) *redlock.Locker {
	t.Helper()
	clients := make([]redis.UniversalClient, len(servers))
	for i := range servers {
		clients[i] = redis.NewClient(&redis.Options{Addr: nowhere(i)})
	}
	for _, i := range reached {
		clients[i] = redis.NewClient(&redis.Options{Addr: servers[i].Addr()})
	}
	return newLockerOn(t, clients, opts)
}

// nowhere is the address of a node where nobody listens. A port that was free a moment ago may be
// another test's server by now. No server of ours has a port as low as these.
func nowhere(node int) string { return fmt.Sprint("127.0.0.1:", 1+node) }

// forget restarts a server that keeps nothing.
func forget(s *testserver.RedisServer) {
	s.Kill()
	s.Wipe()
	s.Start()
}

// The classic double grant: a lock on A, B and C; C is restarted empty; another
// client gets C, D and E. This is what the rule for restarted nodes is for.
func TestWithoutTheRestartRuleTwoClientsHoldTheLock(t *testing.T) {
	t.Parallel()
	servers := startNodes(t, 5)
	first := mustLock(t, reaching(t, servers, patient, 0, 1, 2), "a") // it takes the nodes for durable, which they are not
	forget(servers[2])
	second, err := reaching(t, servers, patient, 2, 3, 4).TryLock(patience(t), "a")
	if err != nil || first.Err() != nil {
		t.Fatalf("the scenario does not show what it should: %v, %v", err, first.Err())
	}
	if second.Token() <= first.Token() {
		t.Errorf("token %d after %d: a guard could not tell", second.Token(), first.Token())
	}
}

// Two nodes of three forget their counters, one after the other, and are the next majority.
func TestTokensIncreaseThoughAMajorityForgotOneAfterAnother(t *testing.T) {
	t.Parallel()
	servers := startNodes(t, 3)
	first := mustLockOn(t, newLocker(t, servers, patient), servers)
	mustUnlock(t, first)
	free(t, "a", servers...)
	forget(servers[0])
	forget(servers[1])
	second := mustLock(t, reaching(t, servers, patient, 0, 1), "a")
	if second.Token() < first.Token()+redisnode.Tokens {
		t.Errorf("token %d after the range that begins with %d", second.Token(), first.Token())
	}
	mustUnlock(t, second)
}

func TestWithTheRestartRuleOneClientHoldsTheLock(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	servers := startNodes(t, 5)
	opts := redlock.Options{NodeTimeout: 20 * time.Second, MaxTTL: ttl}
	one, other := reaching(t, servers, opts, 0, 1, 2), reaching(t, servers, opts, 2, 3, 4)
	for _, l := range []*redlock.Locker{one, other} {
		eventually(t, "young servers get their votes", func() bool {
			lock, err := l.TryLock(patience(t), "a", locker.WithTTL(ttl))
			if err == nil {
				mustUnlock(t, lock)
			} else if !errors.Is(err, locker.ErrUnavailable) {
				t.Error(err)
			}
			return err == nil
		})
		free(t, "a", servers...)
	}
	first := mustLock(t, one, "a", locker.WithTTL(ttl), locker.WithoutRenewal())
	forget(servers[2])
	refused := false
	eventually(t, "the other client has it", func() bool {
		second, err := other.TryLock(patience(t), "a", locker.WithTTL(ttl))
		if err != nil {
			refused = refused || strings.Contains(err.Error(), "no vote")
			return false
		}
		if first.Err() == nil {
			t.Error("two holders")
		}
		if second.Token() <= first.Token() {
			t.Errorf("token %d after %d", second.Token(), first.Token())
		}
		mustUnlock(t, second)
		return true
	})
	if !refused {
		t.Error("no error said that the restarted node had no vote")
	}
}
