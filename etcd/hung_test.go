package etcd

import (
	"context"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/netproxy"
	"github.com/lockstile/locker/internal/testserver"
)

// anHour returns one more attempt of a process, on a session of an hour: whoever
// waits for the TTL to be over waits for ever.
func anHour(t *testing.T, ctx context.Context, l *Locker) *attempt {
	t.Helper()
	return again(t, ctx, l, locker.WithTTL(time.Hour))
}

// The connection of a watch that is kept may fall silent. Whoever takes it is
// told of nothing, but looks early, and then does without it.
//
//	b waits for a, and keeps its watch; a locks and unlocks once more, of which
//	the watch tells; a locks, b takes a place, and the watch's connection falls
//	silent; b waits and looks; a goes
func TestWatchThatFallsSilentWhileItIsKeptKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	srv := testserver.Etcd(t, 1).Members[0]
	proxy, err := netproxy.Listen(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	first := process(t, ctx, []string{srv.Addr()})
	second := process(t, ctx, []string{proxy.Addr()})
	la, lb := first.session.owner, second.session.owner
	lb.keepTime = time.Hour
	a, b := anHour(t, ctx, la), anHour(t, ctx, lb)
	waitsFor(t, ctx, a, b)
	a = anHour(t, ctx, la)
	takes(t, ctx, a, "")
	gives(t, ctx, a)
	for len(lb.watches[b.folder].words) == 0 { // until it has told of that
		if ctx.Err() != nil {
			t.Fatal("the watch tells nothing")
		}
		time.Sleep(time.Millisecond)
	}
	a, b = anHour(t, ctx, la), anHour(t, ctx, lb)
	takes(t, ctx, a, "")
	takes(t, ctx, b, a.key)
	proxy.Stall()
	lb.client.SetEndpoints(proxy.Addr(), srv.Addr())
	before := quorums(srv)
	done := follows(ctx, b, a.key)
	for quorums(srv) == before { // until it has looked
		if ctx.Err() != nil {
			t.Fatal("it does not look")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := la.client.Delete(ctx, a.key); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || !b.granted {
		t.Errorf("granted: %v, %v", b.granted, err)
	}
}
