package redisnode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/testserver"
)

func ofQuorumNode(t *testing.T, addr string, quarantine time.Duration) *Node {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	n := NewOfQuorum(rdb, quarantine)
	t.Cleanup(func() {
		n.mail.Close()
		_ = rdb.Close()
	})
	return n
}

// serverMicros is the server's clock.
func serverMicros(srv *testserver.RedisServer) int64 {
	var sec, micro int64
	_, _ = fmt.Sscan(srv.Do("TIME"), &sec, &micro)
	return sec*1e6 + micro
}

// Nodes that are offered the same clock draw the same token. A client whose
// clock is wrong moves it by a tenth of a second and no further: else a counter
// would be in a future that the clock cannot pass after a crash.
func TestTokenFollowsTheOfferAsFarAsTheNodesClockAllows(t *testing.T) {
	srv := testserver.Redis(t)
	n := ofQuorumNode(t, srv.Addr(), 0)
	const tenth = 100_000
	for name, offset := range map[string]int64{"right, behind": -20_000, "right, ahead": 20_000, "a day ahead": 86_400e6, "a day behind": -86_400e6} {
		before := serverMicros(srv)
		offer := before + offset
		s, err := n.Acquire(background(t), newAttempt(t, name), Ask{Offer: offer})
		if err != nil {
			t.Fatal(err)
		}
		token, after := int64(s.First), serverMicros(srv)
		switch {
		case strings.HasPrefix(name, "right") && after-before < tenth/2 && token != offer:
			t.Errorf("token %d is not what was offered, %d", token, offer)
		case token < before-tenth || token > after+tenth:
			t.Errorf("%s: token %d with a server clock of %d to %d", name, token, before, after)
		}
	}
}

// endsWithItsLease checks that a counter which is raised to a number ahead of the clock is kept for as long
// after that time as others are after theirs: for the lease, and Keep.
func endsWithItsLease(t *testing.T, n *Node, srv *testserver.RedisServer, a *Attempt, number int64) {
	t.Helper()
	most := number/1000 + a.TTL.Milliseconds() + n.keepMillis()
	if got := end(srv, a.Keys.text(lastKey)); got > most || got < most-20_000 {
		t.Errorf("the counter ends at %d ms of the clock, want %d", got, most)
	}
}

// A counter that is raised stands at the end of the majority's range. The grant itself
// answers the same when it is asked for again.
func TestRaisedTokenIsWhatTheNextGrantExceeds(t *testing.T) {
	srv := testserver.Redis(t)
	n := ofQuorumNode(t, srv.Addr(), 0)
	a := newAttempt(t, "a")
	const high = 4000000000000000
	if _, err := n.Raise(background(t), a, high); err == nil {
		t.Error("raised where nothing is held")
	}
	if srv.Do("EXISTS", "lockstile:t:{a}") != "0" {
		t.Error("the counter was written")
	}
	first := mustGrant(t, n, a).First
	if _, err := n.Raise(background(t), a, high); err != nil {
		t.Fatal(err)
	}
	if again := mustGrant(t, n, a).First; again != first {
		t.Errorf("asked again: token %d, want %d", again, first)
	}
	if _, err := n.Raise(background(t), a, first); err != nil {
		t.Error(err)
	}
	outlivesTheClock := func(when string) {
		if ttl := srv.Do("PTTL", "lockstile:t:{a}"); len(ttl) < 13 {
			t.Errorf("a counter ahead of the clock expires in %s ms %s, before the clock has passed it", ttl, when)
		}
	}
	endsWithItsLease(t, n, srv, a, high+Tokens-1)
	a.kept.Store(int64(driver.Now().Add(-n.Keep)))
	if err := n.Renew(background(t), []*Attempt{a})[0]; err != nil {
		t.Fatal(err)
	}
	outlivesTheClock("after a renewal")
	if info, err := n.Look(background(t), a.Keys); err != nil || info.Holder != "the test" || info.Token != high {
		t.Errorf("%+v, %v", info, err)
	}
	if err := n.Release(background(t), a, 0); err != nil {
		t.Fatal(err)
	}
	for want := uint64(high + Tokens); want < high+4*Tokens; want += Tokens {
		next := newAttempt(t, "a")
		if got := mustGrant(t, n, next).First; got != want {
			t.Errorf("token %d after a range that began with %d", got, want-Tokens)
		}
		outlivesTheClock("after the next grant")
		if err := n.Release(background(t), next, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// The counter is lost between the grant and the raise. What is written then answers the
// grant when that is sent again.
func TestRaiseOfACounterThatWasLostKeepsTheGrant(t *testing.T) {
	srv := testserver.Redis(t)
	n := ofQuorumNode(t, srv.Addr(), 0)
	a := newAttempt(t, "a")
	first := mustGrant(t, n, a).First + 1000
	srv.Do("DEL", a.Keys.text(lastKey))
	if _, err := n.Raise(background(t), a, first); err != nil {
		t.Fatal(err)
	}
	if again := mustGrant(t, n, a).First; again != first {
		t.Errorf("asked again: token %d, want %d", again, first)
	}
}

// Lua's numbers are exact below 2^53: a range that does not end below it is refused, and
// nothing is held.
func TestLastTokenIsBelowTwoToTheFiftyThree(t *testing.T) {
	srv := testserver.Redis(t)
	n := ofQuorumNode(t, srv.Addr(), 0)
	const end uint64 = 1 << 53
	a := newAttempt(t, "a")
	srv.Do("SET", a.Keys.text(lastKey), fmt.Sprint(end-Tokens-1))
	if got := mustGrant(t, n, a).First; got != end-Tokens {
		t.Errorf("the last range begins with %d, want %d", got, end-Tokens)
	}
	for _, last := range []uint64{end - Tokens, end - 1} {
		srv.Do("SET", a.Keys.text(lastKey), fmt.Sprint(last))
		srv.Do("DEL", "a")
		if s, err := n.Acquire(background(t), newAttempt(t, "a"), Ask{}); err == nil || srv.Do("EXISTS", "a") != "0" {
			t.Errorf("after token %d: %+v, %v", last, s, err)
		}
	}
}

// A refused attempt has nothing to clean up.
func TestYoungNodeRefusesAndTakesNothing(t *testing.T) {
	srv := testserver.Redis(t)
	n := ofQuorumNode(t, srv.Addr(), time.Hour)
	a := newAttempt(t, "a")
	_, err := n.Acquire(background(t), a, Ask{Queue: true})
	if !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "no vote") || a.Unsure() {
		t.Errorf("unsure %v: %v", a.Unsure(), err)
	}
	var left int
	_, text, _ := strings.Cut(err.Error(), "no vote for another ")
	if _, scan := fmt.Sscanf(text, "%d s", &left); scan != nil || left > 3601 || left < 3000 || strings.Contains(err.Error(), "YOUNG") {
		t.Errorf("it does not say to people for how long: %v", err)
	}
	if wait := Young(err); wait < 3000*time.Second || wait > 3601*time.Second {
		t.Errorf("it says to programs that it has no vote for another %v", wait)
	}
	if keys := srv.Do("KEYS", "*"); keys != "" {
		t.Errorf("left behind: %q", keys)
	}
}

// The uptime is counted in whole seconds, from the one in which the server was
// started: a second may have begun a moment ago. One that says that it has been up
// for exactly the quarantine may have been up for almost a second less. It is asked
// when it has been up for a while, so that a rule which lets a node vote after a part
// of the quarantine is seen, too.
func TestSecondThatMayNotBeOverDoesNotCountForTheUptime(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		up := uptime(srv)
		if up < 4*time.Second {
			continue
		}
		var errs []error
		for _, quarantine := range []time.Duration{up - 500*time.Millisecond, up} {
			_, err := ofQuorumNode(t, srv.Addr(), quarantine).Acquire(background(t), newAttempt(t, "a"), Ask{})
			errs = append(errs, err)
		}
		if uptime(srv) != up {
			continue // it has been up for longer meanwhile, perhaps before it was asked
		}
		for _, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "no vote") {
				t.Errorf("up for at most %v, with a quarantine of as much or half a second less: %v", up, err)
			}
		}
		return
	}
	t.Fatal("never asked within one second of its clock")
}

// A client that heeds deadlines cannot heed a context that has none, or ends before its own: its
// release, too, ends with the context, and not with the client's own patience.
func TestReleaseEndsWithAContextThatHasNoDeadline(t *testing.T) {
	releaseEndsWith(t, context.Background())
}

func TestReleaseEndsWithAContextThatEndsBeforeItsDeadline(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	releaseEndsWith(t, ctx)
}

// Unlock is bounded, though the client of a Cluster is not told to heed deadlines.
func TestReleaseToASilentMasterOfAClusterEndsWithItsContext(t *testing.T) {
	srv := testserver.Redis(t)
	endsRelease(t, context.Background(), srv, New(clusterOfOne(t, srv), 0))
}

func releaseEndsWith(t *testing.T, ctx context.Context) {
	t.Helper()
	srv := testserver.Redis(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), ContextTimeoutEnabled: true, ReadTimeout: 10 * time.Second})
	defer rdb.Close()
	endsRelease(t, ctx, srv, NewOfQuorum(rdb, 0))
}

// endsRelease ends the context of a release that a server does not answer.
func endsRelease(t *testing.T, ctx context.Context, srv *testserver.RedisServer, n *Node) {
	t.Helper()
	defer n.mail.Close()
	holder := newAttempt(t, "a")
	mustGrant(t, n, holder)
	srv.Pause()
	ctx, cancel := context.WithCancelCause(ctx)
	slow := errors.New("the node is slow")
	time.AfterFunc(100*time.Millisecond, func() { cancel(slow) })
	if err := n.Release(ctx, holder, 0); !errors.Is(err, slow) {
		t.Errorf("the release ended with: %v", err)
	}
}
