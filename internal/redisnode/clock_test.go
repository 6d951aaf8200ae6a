package redisnode

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// Goal: a lease lasts for its TTL to the millisecond, and a counter for as long as it is
// kept after that, however the lease began. The holder's allowance for the store is 2 ms:
// what a script takes from it, no test with a network can see.
//
// Method: the clock is read in one batch with the script, so it is mostly still the
// same millisecond. A lease that is short by one ends before the reading and the
// TTL, and one that is not never does.
func TestLeasesLastToTheMillisecondAndCountersOutliveThem(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	n.Keep = 2 * time.Hour
	quorum := ofQuorumNode(t, srv.Addr(), 0)
	for how, begin := range map[string]func(*Attempt) request{
		"free": func(a *Attempt) request {
			return a.request(n.acquire, &a.Value, a.TTL.Milliseconds(), &a.Holder, claim, n.counts, "", 0, n.keepMillis())
		},
		"queued for": func(a *Attempt) request {
			srv.Do("SET", a.Keys.Lock, "?"+a.Value, "PX", "5000")
			srv.Do("ZADD", a.Keys.text(queueKey), "1", n.member(a))
			return a.request(n.acquire, &a.Value, a.TTL.Milliseconds(), &a.Holder, claim, n.counts, n.member(a), 1, n.keepMillis())
		},
		"asked for again": func(a *Attempt) request {
			mustGrant(t, n, a)
			srv.Do("PEXPIRE", a.Keys.Lock, "5000")
			return a.request(n.acquire, &a.Value, a.TTL.Milliseconds(), &a.Holder, claim, n.counts, "", 0, n.keepMillis())
		},
		"renewed": func(a *Attempt) request {
			mustGrant(t, n, a)
			srv.Do("PEXPIRE", a.Keys.Lock, "5000")
			return a.renewal()
		},
		"kept": func(a *Attempt) request {
			mustGrant(t, n, a)
			srv.Do("PERSIST", a.Keys.Lock) // so that it lasts whatever happens between
			srv.Do("PEXPIRE", a.Keys.text(lastKey), "5000")
			return n.keeping(a)
		},
		"of a quorum": func(a *Attempt) request {
			return a.request(quorum.acquire, &a.Value, a.TTL.Milliseconds(), &a.Holder, claim, n.counts, "", 0, n.keepMillis(), 0, serverMicros(srv))
		},
		"raised": func(a *Attempt) request {
			first := mustGrant(t, n, a).First
			srv.Do("PEXPIRE", a.Keys.Lock, "3600000") // so that it lasts whatever happens between
			return a.request(raise, &a.Value, first+Tokens, first+1, &a.Holder, n.keepMillis())
		},
		"a reader's": func(a *Attempt) request {
			a.Terms = newReader(t, a.Name).Terms
			return a.request(n.acquire, &a.Value, a.TTL.Milliseconds(), &a.Holder, claim, n.counts, "", 0, n.keepMillis())
		},
		"a reader's beside another": func(a *Attempt) request {
			a.Terms = newReader(t, a.Name).Terms
			mustGrant(t, n, newReader(t, a.Name))
			return a.request(n.acquire, &a.Value, a.TTL.Milliseconds(), &a.Holder, claim, n.counts, "", 0, n.keepMillis())
		},
		"a reader's of a quorum": func(a *Attempt) request {
			a.Terms = newReader(t, a.Name).Terms
			return a.request(quorum.acquire, &a.Value, a.TTL.Milliseconds(), &a.Holder, claim, n.counts, "", 0, n.keepMillis(), 0, serverMicros(srv))
		},
		"a reader's that is renewed": func(a *Attempt) request {
			a.Terms = newReader(t, a.Name).Terms
			mustGrant(t, n, a)
			srv.Do("ZADD", a.Keys.text(endsKey), "XX", fmt.Sprint(serverMicros(srv)/1000+5000), a.Value)
			return a.renewal()
		},
	} {
		for range 50 {
			a := newAttempt(t, how)
			lease, counter := ends(t, n.rdb, a, begin(a))
			again := how == "asked for again" || strings.HasSuffix(how, "renewed") // whose counter is the first grant's
			kept := n.Keep + n.Keep/3                                              // until the next renewal that keeps it, and Keep from then on
			if how == "kept" {                                                     // which leaves the lock alone
				lease = a.TTL
			}
			if lease < a.TTL || counter < lease+kept-time.Second && !again {
				t.Fatalf("a lease that was %s: of %v, it lasts for %v and its counter for %v", how, a.TTL, lease, counter)
			}
			srv.Do("FLUSHALL")
		}
	}
}

// ends sends the request, and returns how long after the server's clock before it
// the lease and its counter end.
func ends(t *testing.T, rdb redis.UniversalClient, a *Attempt, r request) (lease, counter time.Duration) {
	t.Helper()
	pipe := rdb.Pipeline()
	before := pipe.Time(background(t))
	reply := r.byText(background(t))
	_ = pipe.Process(background(t), reply)
	of := []*redis.DurationCmd{pipe.PExpireTime(background(t), a.Keys.Lock), pipe.PExpireTime(background(t), a.Keys.text(lastKey))}
	entry := new(redis.FloatCmd)
	if a.Kind == locker.KindShared {
		entry = pipe.ZScore(background(t), a.Keys.text(endsKey), a.Value)
	}
	if _, err := pipe.Exec(background(t)); err != nil {
		t.Fatal(err)
	}
	if got, err := reply.Int64(); err != nil || got <= 0 {
		t.Fatalf("not granted: %v, %v", got, err)
	}
	begun := time.Duration(before.Val().UnixMilli()) * time.Millisecond
	lease, counter = of[0].Val()-begun, of[1].Val()-begun
	if a.Kind == locker.KindShared {
		lease = min(lease, time.Duration(entry.Val())*time.Millisecond-begun)
	}
	return lease, counter
}

// A withdrawn attempt's request may still be on its way, and its caller counts on a
// TTL at most from then on. A holder that was forced out must hear of it from its
// next renewal, which may be a whole lease away. The marks last for as long.
func TestMarksOutliveWhatTheyRefuse(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	lasts := func(a *Attempt) time.Duration { return n.rdb.PTTL(background(t), a.Keys.text(ownKey)).Val() }
	const slack = 10 * time.Second // for a slow machine

	withdrawn := newAttempt(t, "withdrawn")
	withdrawn.TTL = time.Hour
	withdrawn.unsure.Store(true)
	if err := n.Withdraw(background(t), withdrawn); err != nil {
		t.Fatal(err)
	}
	if left := lasts(withdrawn); left < withdrawn.TTL+lateTime-slack {
		t.Errorf("a withdrawn attempt with a TTL of %v is refused for %v", withdrawn.TTL, left)
	}

	released := newAttempt(t, "released")
	released.TTL = time.Hour
	mustGrant(t, n, released)
	released.unsure.Store(true)
	if err := n.Release(background(t), released, 0); err != nil {
		t.Fatal(err)
	}
	if left := lasts(released); left < released.TTL+lateTime-slack {
		t.Errorf("a released lock with a TTL of %v is refused for %v", released.TTL, left)
	}

	for _, ttl := range []time.Duration{locker.MinTTL, time.Hour} {
		forced := newAttempt(t, "forced")
		forced.TTL = ttl
		for broken := false; !broken; { // the shorter may have ended
			mustGrant(t, n, forced)
			var err error
			if broken, err = n.Break(background(t), forced.Keys, Numbered(0)); err != nil {
				t.Fatal(err)
			}
		}
		if left := lasts(forced); left < max(ttl, lateTime)-slack {
			t.Errorf("that a lock with a TTL of %v was broken is known for %v", ttl, left)
		}
	}
}
