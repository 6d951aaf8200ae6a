package redisnode

import (
	"context"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/netproxy"
	"github.com/lockstile/locker/internal/testserver"
)

// A server that has restarted, or has taken another's place, does not know our
// scripts and answers NOSCRIPT. Whoever does not hear that never sends the text.
// So what must be done though no answer ever comes has to be one request.
func TestGivingBackIsOneRequestToAServerThatKnowsNoScripts(t *testing.T) {
	release := func(ctx context.Context, n *Node, l *Lease) { _ = n.Release(ctx, l) }
	withdraw := func(ctx context.Context, n *Node, l *Lease) { _ = n.Withdraw(ctx, l) }
	for name, test := range map[string]struct {
		released bool // this process has released a lock there before
		heard    bool // and has heard since that the server has forgotten its scripts
		give     func(context.Context, *Node, *Lease)
	}{
		"first release":                  {false, false, release},
		"release after a restart":        {true, true, release},
		"first withdrawal":               {false, false, withdraw},
		"withdrawal after a restart":     {true, true, withdraw},
		"withdrawal, restart not heard":  {true, false, withdraw},
		"Break where it is not heard of": {true, false, func(ctx context.Context, n *Node, l *Lease) { _, _ = n.force(ctx, l.Keys, l.Value, time.Minute) }},
	} {
		t.Run(name, func(t *testing.T) {
			srv := testserver.Redis(t)
			p, err := netproxy.Listen(srv.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			n, _ := client(t, p.Addr(), nil)
			if test.released {
				before := newLease(t, "before")
				mustGrant(t, n, before)
				if err := n.Release(background(t), before); err != nil {
					t.Fatal(err)
				}
				if err := n.Withdraw(background(t), before); err != nil {
					t.Fatal(err)
				}
			}
			l := newLease(t, "a")
			mustGrant(t, n, l)
			srv.Do("SCRIPT", "FLUSH")
			if test.heard {
				if err := n.Renew(background(t), []*Lease{l})[0]; err != nil {
					t.Fatal(err)
				}
				srv.Do("SCRIPT", "FLUSH")
			}
			p.CutReplies()
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			go test.give(ctx, n, l)
			for deadline := time.Now().Add(10 * time.Second); srv.Do("EXISTS", "a") != "0"; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the lock is still there")
				}
			}
		})
	}
}
