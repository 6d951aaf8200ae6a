package redisnode

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/internal/netproxy"
	"github.com/lockstile/locker/internal/testserver"
)

// The holder's release with the hand-over in it is under way when both give up:
// the release is not answered, and the heir's context ends. When it arrives, the
// heir is gone, and nobody must get the lock.
func TestHandOverThatArrivesAfterItsHeirHasGoneLeavesNothing(t *testing.T) {
	srv := testserver.Redis(t)
	p, err := netproxy.Listen(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	slow, _ := client(t, p.Addr(), nil)
	n, _ := client(t, srv.Addr(), nil)
	slow.rdb.(*redis.Client).Options().ContextTimeoutEnabled = true
	warm := newLease(t, "warm") // the server knows the scripts, and a connection is there
	mustGrant(t, slow, warm)
	if _, err := slow.Release(background(t), warm, nil, false); err != nil {
		t.Fatal(err)
	}
	holder, heir := newLease(t, "a"), newLease(t, "a")
	mustGrant(t, slow, holder)
	p.Cut()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := slow.Release(ctx, holder, heir, false); err == nil {
		t.Fatal("released through a network that is cut")
	}
	if err := n.Withdraw(background(t), heir); err != nil {
		t.Fatal(err)
	}
	p.Deliver()
	for deadline := time.Now().Add(30 * time.Second); srv.Do("EXISTS", "a") != "0"; time.Sleep(time.Millisecond) {
		if srv.Do("GET", "a") == heir.Value {
			t.Fatal("the lock is held by an heir that has gone")
		}
		if time.Now().After(deadline) {
			t.Fatal("the release did not arrive")
		}
	}
}
