package redlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/redlock"
)

// stubborn is a node timeout that is longer than any test.
const stubborn = 2 * time.Minute

// stubbornClients wait for a reply for as long as that, too.
func stubbornClients(servers []*testserver.RedisServer) []redis.UniversalClient {
	clients := make([]redis.UniversalClient, len(servers))
	for i, s := range servers {
		clients[i] = redis.NewClient(&redis.Options{Addr: s.Addr(), ReadTimeout: stubborn})
	}
	return clients
}

// The holder has the lock on three nodes, two of them stop, and it unlocks: no
// majority will answer, and what one node may take is far more than the two
// seconds that Unlock promises.
func TestUnlockIsBoundedThoughNodesMayTakeLonger(t *testing.T) {
	t.Parallel()
	servers := startNodes(t, 3)
	l := newLockerOn(t, stubbornClients(servers), redlock.Options{DurableNodes: true, NodeTimeout: stubborn})
	lock := mustLockOn(t, l, servers, locker.WithTTL(time.Minute), locker.WithoutRenewal())
	servers[0].Pause()
	servers[1].Pause()
	ended := make(chan error, 1)
	go func() { ended <- lock.Unlock(patience(t)) }()
	select {
	case err := <-ended:
		if !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrLost) {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("Unlock waits for nodes that are silent")
	}
	servers[0].Resume()
	servers[1].Resume()
	free(t, "a", servers...)
}

// One of three nodes is silent when a lock is taken: the request to it is under
// way for as long as the node may take. Close waits for two seconds.
func TestCloseIsBoundedThoughNodesMayTakeLonger(t *testing.T) {
	t.Parallel()
	servers := startNodes(t, 3)
	l := newLockerOn(t, stubbornClients(servers), redlock.Options{DurableNodes: true, NodeTimeout: stubborn})
	servers[0].Pause()
	mustLock(t, l, "a", locker.WithoutRenewal())
	ended := make(chan error, 1)
	go func() { ended <- l.Close() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("Close waits for a node that is silent")
	}
	servers[0].Resume()
}
