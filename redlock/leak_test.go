package redlock_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
)

// One of three nodes cannot be reached, so a waiter that the other two serve is in no queue
// any more. It then loses the lock, so that no release follows. Its boxes must be closed all the same: while one is open, the
// subscription is kept up for it, a connection to every node.
func TestSubscriptionsEndThoughTheLockOfTheLastWaiterWasLost(t *testing.T) {
	t.Parallel()
	servers := startNodes(t, 3)
	clients := clientsOf(servers)
	clients[1].AddHook(slow{by: 300 * time.Millisecond}) // it answers last
	clients[2] = redis.NewClient(&redis.Options{Addr: "no node", DialerRetries: 1, Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("unreachable")
	}})
	holder, l := reaching(t, servers, patient, 0, 1), newLockerOn(t, clients, patient)
	servers = servers[:2]
	first := mustLockOn(t, holder, servers)
	locks := make(chan *locker.Lock, 1)
	go func() {
		defer close(locks)
		lock, err := l.Lock(patience(t), "a", locker.WithTTL(3*time.Second), locker.WithoutRenewal())
		if err != nil {
			t.Error(err)
			return
		}
		locks <- lock
	}()
	for _, s := range servers {
		eventually(t, "queued", func() bool { return s.Do("ZCARD", "lockstile:q:{a}") == "1" })
	}
	mustUnlock(t, first)
	lock, ok := <-locks
	if !ok {
		t.Fatal("not served")
	}
	<-lock.Lost()
	if err := lock.Unlock(patience(t)); !errors.Is(err, locker.ErrLost) {
		t.Error(err)
	}
	for _, s := range servers {
		eventually(t, "nobody listens", func() bool { return s.Do("PUBSUB", "CHANNELS") == "" })
	}
}
