package redisnode

import (
	"context"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/netproxy"
	"github.com/lockstile/locker/internal/testserver"
)

// The server has restarted, so it knows no scripts, and no answer of its arrives: what
// gives a lock back has to do so in one request.
func TestGivingBackIsOneRequestToAServerThatKnowsNoScripts(t *testing.T) {
	for name, give := range map[string]func(context.Context, *Node, *Lease){
		"release":  func(ctx context.Context, n *Node, l *Lease) { _ = n.Release(ctx, l) },
		"withdraw": func(ctx context.Context, n *Node, l *Lease) { _ = n.Withdraw(ctx, l) },
		"break":    func(ctx context.Context, n *Node, l *Lease) { _, _ = n.force(ctx, l.Keys, l.Value, time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			srv := testserver.Redis(t)
			p, err := netproxy.Listen(srv.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			n, _ := client(t, p.Addr())
			for range 2 { // the second time, this process has heard that the server knew the script
				l := newLease(t, "a")
				l.TTL = time.Hour
				mustGrant(t, n, l)
				srv.Do("SCRIPT", "FLUSH")
				p.CutReplies()
				ctx, cancel := context.WithTimeout(background(t), time.Second)
				go give(ctx, n, l)
				srv.Await("the lock to be free", func() bool { return srv.Do("EXISTS", "a") == "0" })
				p.Heal()
				cancel()
				give(background(t), n, l)
			}
		})
	}
}
