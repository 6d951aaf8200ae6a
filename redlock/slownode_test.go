package redlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/netproxy"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/redlock"
)

// Two nodes of five answer later than the majority, always. A renewal that is
// over when three have answered must not take theirs back: else the lock ends
// there with its first TTL, and one more node that fails is the loss of it.
func TestNodesThatAnswerLaterThanTheMajorityAreRenewedToo(t *testing.T) {
	t.Parallel()
	servers := startNodes(t, 5)
	var clients []redis.UniversalClient
	for i, s := range servers {
		c := redis.NewClient(&redis.Options{Addr: s.Addr()})
		if i < 2 {
			c.AddHook(slow{by: 50 * time.Millisecond})
		}
		clients = append(clients, c)
	}
	l := newLockerOn(t, clients, redlock.Options{DurableNodes: true, NodeTimeout: 20 * time.Second})
	lock := mustLockOn(t, l, servers, locker.WithTTL(5*time.Second))
	for range 3 {
		deadline := lock.Deadline()
		eventually(t, "renewed", func() bool { return lock.Deadline().After(deadline.Add(100 * time.Millisecond)) })
	}
	deadline := lock.Deadline()
	eventually(t, "the lease of old is over", func() bool { return lock.Deadline().After(deadline.Add(5*time.Second)) || lock.Err() != nil })
	for i, s := range servers {
		if s.Do("EXISTS", "a") != "1" {
			t.Errorf("node %d was not renewed", i)
		}
	}
	mustUnlock(t, lock)
}

// One node has forgotten the lock and one is silent, and the caller's time is
// over before it speaks: the two that are left could be the majority, so nothing
// is lost yet.
func TestRenewalThatIsCutShortIsNoLoss(t *testing.T) {
	servers := startNodes(t, 3)
	l := newLocker(t, servers, patient)
	lock := mustLockOn(t, l, servers, locker.WithTTL(time.Minute), locker.WithoutRenewal())
	servers[0].Do("DEL", "a")
	servers[1].Pause()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := lock.Renew(ctx)
	if errors.Is(err, locker.ErrLost) || !errors.Is(err, locker.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	servers[1].Resume()
	mustRenew(t, lock)
	mustUnlock(t, lock)
}

// A connection takes several round trips to make, and then a request takes one. A node has time
// for the one only. If a request that is given up cost its connection, and the next request had to
// make another one, no request would ever be answered: on slow networks, and where one slow moment
// of a busy machine has ended all connections.
func TestNodesWhoseConnectionsTakeLongToMakeAreOfUse(t *testing.T) {
	t.Parallel()
	servers := startNodes(t, 3)
	for name, heeds := range map[string]bool{"ContextTimeoutEnabled": true, "default": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clients, network := networked(t, servers, redis.Options{ContextTimeoutEnabled: heeds})
			for _, p := range network {
				p.Delay(400 * time.Millisecond)
			}
			l := newLockerOn(t, clients, redlock.Options{DurableNodes: true, NodeTimeout: 1500 * time.Millisecond})
			ctx := patience(t)
			renewed := func() bool {
				lock, err := l.TryLock(ctx, name, locker.WithTTL(12*time.Second), locker.WithoutRenewal())
				if err != nil {
					return false
				}
				for _, p := range network {
					p.Heal() // which ends connections
				}
				for lock.Err() == nil {
					if lock.Renew(ctx) == nil {
						mustUnlock(t, lock)
						return true
					}
				}
				return false
			}
			for !renewed() {
				if ctx.Err() != nil {
					t.Fatal("no lock was granted, and renewed over new connections")
				}
			}
		})
	}
}

// A firewall forgets connections: they stay silent for ever, and nobody ends them. The client leaves
// the end of a request to its context: ContextTimeoutEnabled, and no ReadTimeout. A request that is
// given up must not keep its connection's place in the pool for ever, or the pool is used up and no
// node can be asked again.
func TestConnectionsThatAreSilentForEverDoNotUseUpThePool(t *testing.T) {
	t.Parallel()
	servers := startNodes(t, 3)
	clients, network := networked(t, servers, redis.Options{ContextTimeoutEnabled: true, ReadTimeout: -1, PoolSize: 1})
	l := newLockerOn(t, clients, redlock.Options{DurableNodes: true, NodeTimeout: time.Second})
	lock := mustLockOn(t, l, servers, locker.WithTTL(30*time.Second), locker.WithoutRenewal())
	for _, p := range network {
		p.Stall()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := lock.Renew(ctx); !errors.Is(err, locker.ErrUnavailable) {
		t.Fatal(err)
	}
	mustRenew(t, lock)
	mustUnlock(t, lock)
}

// networked returns clients with these options, and the network between each and its node.
func networked(t *testing.T, servers []*testserver.RedisServer, opts redis.Options) (clients []redis.UniversalClient, network []*netproxy.Proxy) {
	for _, s := range servers {
		p, err := netproxy.Listen(s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		network = append(network, p)
		own := opts
		own.Addr = p.Addr()
		clients = append(clients, redis.NewClient(&own))
	}
	return clients, network
}
