package redisnode

import (
	"context"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/netproxy"
	"github.com/lockstile/locker/internal/testserver"
)

// The server has restarted, so it knows no scripts, and none of its answers arrives:
// what gives a lock back has to do so in one request.
func TestGivingBackIsOneRequestToAServerThatKnowsNoScripts(t *testing.T) {
	for name, give := range map[string]func(context.Context, *Node, *Attempt){
		"release":  func(ctx context.Context, n *Node, a *Attempt) { _ = n.Release(ctx, a, 0) },
		"keep":     func(ctx context.Context, n *Node, a *Attempt) { _ = n.Release(ctx, a, time.Hour) },
		"withdraw": func(ctx context.Context, n *Node, a *Attempt) { _ = n.Withdraw(ctx, a) },
		"break": func(ctx context.Context, n *Node, a *Attempt) {
			_, _ = n.force(ctx, a.Keys, Hold{Value: a.Value, stored: a.Value})
		},
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
				a := newAttempt(t, "a")
				a.TTL = time.Hour
				mustGrant(t, n, a)
				srv.Do("SCRIPT", "FLUSH")
				p.CutReplies()
				ctx, cancel := context.WithTimeout(background(t), time.Second)
				go give(ctx, n, a)
				srv.Await("the lock to be given back", func() bool { return srv.Do("GET", "a") != a.Value })
				p.Heal()
				cancel()
				give(background(t), n, a)
				srv.Do("DEL", "a") // as if its time were over, where it is kept taken
			}
		})
	}
}
