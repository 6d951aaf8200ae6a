package redisnode

import (
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
	for how, begin := range map[string]func(*Lease) request{
		"free": func(l *Lease) request {
			return l.request(n.acquire, &l.Value, l.TTL.Milliseconds(), &l.Holder, claim, n.counts, "", 0, n.keepFor())
		},
		"queued for": func(l *Lease) request {
			srv.Do("SET", l.Keys.Lock, "?"+l.Value, "PX", "5000")
			srv.Do("ZADD", l.Keys.queue, "1", n.member(l))
			return l.request(n.acquire, &l.Value, l.TTL.Milliseconds(), &l.Holder, claim, n.counts, n.member(l), 1, n.keepFor())
		},
		"asked for again": func(l *Lease) request {
			mustGrant(t, n, l)
			srv.Do("PEXPIRE", l.Keys.Lock, "5000")
			return l.request(n.acquire, &l.Value, l.TTL.Milliseconds(), &l.Holder, claim, n.counts, "", 0, n.keepFor())
		},
		"renewed": func(l *Lease) request {
			mustGrant(t, n, l)
			srv.Do("PEXPIRE", l.Keys.Lock, "5000")
			srv.Do("PEXPIRE", l.Keys.last, "5000")
			l.kept.Store(int64(locker.Now().Add(-n.Keep/3 - time.Second))) // it is due
			return n.renewal(l)
		},
		"of a quorum": func(l *Lease) request {
			return l.request(quorum.acquire, &l.Value, l.TTL.Milliseconds(), &l.Holder, claim, n.counts, "", 0, n.keepFor(), 0, serverMicros(srv))
		},
		"raised": func(l *Lease) request {
			first := mustGrant(t, n, l).First
			srv.Do("PEXPIRE", l.Keys.Lock, "3600000") // so that it lasts whatever happens between
			return l.request(raise, &l.Value, first+Tokens, first+1, &l.Holder, n.keepFor())
		},
	} {
		for range 50 {
			l := newLease(t, how)
			lease, counter := ends(t, n.rdb, l, begin(l))
			again := how == "asked for again" // whose counter is the first grant's
			kept := n.Keep + n.Keep/3         // until the next renewal that keeps it, and Keep from then on
			if lease < l.TTL || counter < lease+kept-time.Second && !again {
				t.Fatalf("a lease that was %s: of %v, it lasts for %v and its counter for %v", how, l.TTL, lease, counter)
			}
			srv.Do("FLUSHALL")
		}
	}
}

// ends sends the request, and returns how long after the server's clock before it
// the lease and its counter end.
func ends(t *testing.T, rdb redis.UniversalClient, l *Lease, r request) (lease, counter time.Duration) {
	t.Helper()
	pipe := rdb.Pipeline()
	before := pipe.Time(background(t))
	reply := r.byText(background(t))
	_ = pipe.Process(background(t), reply)
	of := []*redis.DurationCmd{pipe.PExpireTime(background(t), l.Keys.Lock), pipe.PExpireTime(background(t), l.Keys.last)}
	if _, err := pipe.Exec(background(t)); err != nil {
		t.Fatal(err)
	}
	if got, err := reply.Int64(); err != nil || got <= 0 {
		t.Fatalf("not granted: %v, %v", got, err)
	}
	begun := time.Duration(before.Val().UnixMilli()) * time.Millisecond
	return of[0].Val() - begun, of[1].Val() - begun
}

// A withdrawn attempt's request may still be on its way, and its caller counts on a
// TTL at most from then on. A holder that was forced out must hear of it from its
// next renewal, which may be a whole lease away. The marks last for as long.
func TestMarksOutliveWhatTheyRefuse(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	lasts := func(l *Lease) time.Duration { return n.rdb.PTTL(background(t), l.Keys.own).Val() }
	const slack = 10 * time.Second // for a slow machine

	withdrawn := newLease(t, "withdrawn")
	withdrawn.TTL = time.Hour
	withdrawn.unsure.Store(true)
	if err := n.Withdraw(background(t), withdrawn); err != nil {
		t.Fatal(err)
	}
	if left := lasts(withdrawn); left < withdrawn.TTL+lateTime-slack {
		t.Errorf("a withdrawn attempt with a TTL of %v is refused for %v", withdrawn.TTL, left)
	}

	released := newLease(t, "released")
	released.TTL = time.Hour
	mustGrant(t, n, released)
	released.unsure.Store(true)
	if err := n.Release(background(t), released); err != nil {
		t.Fatal(err)
	}
	if left := lasts(released); left < released.TTL+lateTime-slack {
		t.Errorf("a released lock with a TTL of %v is refused for %v", released.TTL, left)
	}

	for _, ttl := range []time.Duration{locker.MinTTL, time.Hour} {
		forced := newLease(t, "forced")
		forced.TTL = ttl
		for broken := false; !broken; { // the shorter may have ended
			mustGrant(t, n, forced)
			var err error
			if broken, err = n.Break(background(t), forced.Keys); err != nil {
				t.Fatal(err)
			}
		}
		if left := lasts(forced); left < max(ttl, lateTime)-slack {
			t.Errorf("that a lock with a TTL of %v was broken is known for %v", ttl, left)
		}
	}
}
