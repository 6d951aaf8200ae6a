package redisnode

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// fill makes the server's memory full. It evicts nothing.
func fill(t *testing.T, srv *testserver.RedisServer, n *Node) {
	t.Helper()
	srv.Do("CONFIG", "SET", "maxmemory", "1", "maxmemory-policy", "noeviction")
	if err := n.rdb.Set(background(t), "x", "y", 0).Err(); !redis.HasErrorPrefix(err, "OOM") {
		t.Fatalf("the server's memory is not full, and nothing is tested: %v", err)
	}
}

// The server refuses what needs memory, in a script that has written nothing yet. What keeps a
// lock or gives it back is carried out all the same: else all readers lose their locks, and
// what would free memory is refused.
func TestAServerWhoseMemoryIsFullKeepsLocksAndTakesThemBack(t *testing.T) {
	for name, kind := range map[string][]locker.Option{
		"exclusive": nil, "shared": {locker.WithShared()}, "slots": {locker.WithSlots(3)},
	} {
		t.Run(name, func(t *testing.T) {
			srv := testserver.Redis(t)
			n, m := client(t, srv.Addr())
			renewed, released, unsure, forced, left := newShare(t, "renewed", kind...), newShare(t, "released", kind...), newShare(t, "unsure", kind...), newShare(t, "forced", kind...), newShare(t, "left", kind...)
			all := []*Attempt{renewed, released, unsure, forced, left}
			for _, a := range all {
				mustGrant(t, n, a)
			}
			beside := newShare(t, "released", kind...)
			if kind != nil {
				mustGrant(t, n, beside)
			}
			waiter := newAttempt(t, "unsure")
			if name != "slots" {
				mustQueue(t, n, m, waiter)
			}
			fill(t, srv, n)
			mustRenew(t, n, renewed)
			for i, err := range n.Renew(background(t), all) {
				if err != nil {
					t.Errorf("renewal %d: %v", i, err)
				}
			}
			mustRelease(t, n, renewed, released)
			unsure.unsure.Store(true) // so that its value must be refused from now on
			mustRelease(t, n, unsure)
			if broken, err := n.Break(background(t), forced.Keys, Numbered(0)); !broken || err != nil {
				t.Errorf("Break: %v, %v", broken, err)
			}
			if err := n.Withdraw(background(t), left); err != nil {
				t.Errorf("Withdraw: %v", err)
			}
		})
	}
}

func TestAServerWhoseMemoryIsFullKeepsAMinimumHold(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	a := newAttempt(t, "a")
	mustGrant(t, n, a)
	a.unsure.Store(true)
	fill(t, srv, n)
	if err := n.Release(background(t), a, time.Minute); err != nil {
		t.Fatal(err)
	}
	if left := srv.Do("PTTL", "a"); len(left) < 5 {
		t.Errorf("what is left of a minimum hold of a minute: %s ms", left)
	}
}

// A reader with a TTL of an hour leaves, and the one beside it has a second: clients of other
// libraries look at the plain key, which lasts for as long as somebody holds the lock.
func TestThePlainKeyLastsNoLongerThanThoseWhoAreLeft(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	long, short := newShare(t, "a", locker.WithShared(), locker.WithTTL(time.Hour)), newShare(t, "a", locker.WithShared(), locker.WithTTL(time.Second))
	mustGrant(t, n, long)
	mustGrant(t, n, short)
	mustRelease(t, n, long)
	if left := srv.Do("PTTL", "a"); len(left) > 4 || left == "-1" {
		t.Errorf("after a reader with a TTL of an hour has left, the key of one with a second lasts for %s ms", left)
	}
	mustRenew(t, n, short)
	mustRelease(t, n, short)
	if is := srv.Do("EXISTS", "a"); is != "0" {
		t.Errorf("the key is there (%s) though nobody has the lock", is)
	}
}

// Two programs have different settings for one name. The one that wants the counter for longer
// relies on it, whichever has the lock last, renews it, or leaves a minimum hold.
func TestTheLongestTimeThatAProgramWantsACounterForCounts(t *testing.T) {
	srv := testserver.Redis(t)
	long, _ := client(t, srv.Addr())
	short, _ := client(t, srv.Addr())
	long.Keep, short.Keep = 10*time.Hour, time.Minute
	a := newAttempt(t, "a")
	mustGrant(t, long, a)
	mustRelease(t, long, a)
	kept := func(how string, of *Attempt) {
		t.Helper()
		if left := counterLeft(t, srv, of); left < long.Keep {
			t.Errorf("%s by a program that wants it for %v, a counter lasts for %v; another program wants %v", how, short.Keep, left, long.Keep)
		}
	}
	for range 2 { // and a third program's grant, after the second's, knows of the first's
		b := newAttempt(t, "a")
		mustGrant(t, short, b)
		kept("granted", b)
		srv.Do("PEXPIRE", b.Keys.text(lastKey), "1000")
		short.keepCounters(background(t), []*Attempt{b})
		kept("renewed", b)
		srv.Do("PEXPIRE", b.Keys.text(lastKey), "1000")
		if err := short.Release(background(t), b, time.Second); err != nil {
			t.Fatal(err)
		}
		kept("left for a minimum hold", b)
		srv.Do("DEL", "a")
	}
	reader := newReader(t, "a")
	mustGrant(t, short, reader)
	kept("granted to a reader", reader)
}

// What a client of this package reads of a counter has its number alone.
func TestACounterThatSaysHowLongToKeepItIsRead(t *testing.T) {
	for text, want := range map[string]uint64{"163:4800000 value 100 holder": 100, "163 value 100 holder": 100, "100:4800000": 100, "100": 100} {
		if token, _, _ := lastGrant(text); uint64(token) != want {
			t.Errorf("%q is read as %d, want %d", text, token, want)
		}
	}
}
