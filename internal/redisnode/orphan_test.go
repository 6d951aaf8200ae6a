package redisnode

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// The server evicts one of a name's keys alone, or somebody deletes it. What is left in the
// others must not give two holders one slot for longer than until a renewal, nor a slot that
// is none.
func TestSlotsWithoutOneOfTheirKeys(t *testing.T) {
	for what, key := range map[string]int{"leases": endsKey, "facts": factsKey} {
		t.Run(what, func(t *testing.T) {
			srv := testserver.Redis(t)
			n, _ := client(t, srv.Addr())
			slot := func() *Attempt { return newShare(t, "a", locker.WithSlots(2)) }
			before := []*Attempt{slot(), slot()}
			mustGrant(t, n, before[0])
			mustGrant(t, n, before[1])
			srv.Do("DEL", before[0].Keys.text(key))
			if key == factsKey {
				mustRelease(t, n, before[0])
				before = before[1:]
			}
			for range before {
				if s := mustGrant(t, n, slot()); s.Slot < 0 || s.Slot > 1 {
					t.Errorf("slot %d of two", s.Slot)
				}
			}
			for i, err := range n.Renew(background(t), before) {
				if !errors.Is(err, locker.ErrLost) {
					t.Errorf("the renewal of holder %d, whose slot another may have: %v", i, err)
				}
			}
		})
	}
}

// A key that is made anew has an end as well.
func TestFactsThatWereDeletedDoNotStay(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	for what, act := range map[string]func(*Attempt){
		"a writer that waits":              func(*Attempt) { mustQueue(t, n, m, newAttempt(t, "a")) },
		"a reader that joins":              func(*Attempt) { mustGrant(t, n, newReader(t, "a")) },
		"the reader's request, sent again": func(reader *Attempt) { mustGrant(t, n, reader) },
		"a reader's write-back": func(reader *Attempt) {
			if number, err := n.Raise(background(t), reader, 4000000000000000); err == nil {
				t.Errorf("number %d is written back to a reader that the server knows no number of", number)
			}
		},
	} {
		srv.Do("FLUSHALL")
		reader := newReader(t, "a")
		mustGrant(t, n, reader)
		facts := reader.Keys.text(factsKey)
		srv.Do("DEL", facts)
		act(reader)
		if left := srv.Do("PTTL", facts); left == "-1" {
			t.Errorf("%s: %s stays for ever, with %s", what, facts, srv.Do("HGETALL", facts))
		}
	}
}

// Readers come and go, some of them die, and there is always one. Nobody waits, and nobody
// renews. What the dead had goes with their leases.
func TestReadersThatJoinClearAwayTheDead(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	long := newReader(t, "a")
	long.TTL = time.Hour
	mustGrant(t, n, long)
	var dead *Attempt
	for range 10 {
		dead = newReader(t, "a")
		mustGrant(t, n, dead)
		srv.Do("ZADD", dead.Keys.text(endsKey), "1", dead.Value) // its lease is long over
	}
	mustGrant(t, n, newReader(t, "a"))
	for key, count := range map[int]string{endsKey: "ZCARD", factsKey: "HLEN"} {
		if got, _ := strconv.Atoi(srv.Do(count, dead.Keys.text(key))); got != 2 {
			t.Errorf("two read, and %s has %d entries", dead.Keys.text(key), got)
		}
	}
}

// A reader that a renewal has told of its loss keeps nobody out any more, for it is not
// withdrawn: a stranger had the lock, or one of the name's keys was deleted alone.
func TestReaderThatHasHeardOfItsLossLeavesNothing(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	for what, act := range map[string]func(*Attempt){
		"a stranger":    func(*Attempt) { srv.Do("SET", "a", "a stranger's", "PX", "60000") },
		"facts deleted": func(a *Attempt) { srv.Do("DEL", a.Keys.text(factsKey)) },
	} {
		srv.Do("FLUSHALL")
		reader := newReader(t, "a")
		mustGrant(t, n, reader)
		act(reader)
		if err := n.Renew(background(t), []*Attempt{reader})[0]; !errors.Is(err, locker.ErrLost) {
			t.Errorf("%s: the renewal: %v", what, err)
		}
		if what == "a stranger" {
			srv.Do("DEL", "a")
		}
		if s, err := n.Acquire(background(t), newAttempt(t, "a"), Ask{}); err != nil || s.First == 0 {
			t.Errorf("%s: a writer is kept out by a reader that was told of its loss: %+v, %v", what, s, err)
		}
	}
}

// The dead are shown no more than a key that has expired, though only the next request removes
// them; and so is a reader for whom the lock is reserved.
func TestReadersWithoutALeaseAreNotShown(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	dead := newReader(t, "a")
	mustGrant(t, n, dead)
	srv.Do("ZADD", dead.Keys.text(endsKey), "1", dead.Value, "9000000000000", "?"+newReader(t, "a").Value)
	if v, err := n.Look(background(t), dead.Keys); err != nil || v.Held || len(v.Holders) != 0 {
		t.Errorf("%+v, %v", v, err)
	}
}

// Two readers are broken, and the second leaves between the look and its end.
func TestBreakOfTwoOfWhomOneHasLeftHasBrokenOne(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	first, second := newReader(t, "a"), newReader(t, "a")
	mustGrant(t, n, first)
	mustGrant(t, n, second)
	if _, err := n.Look(background(t), first.Keys); err != nil { // the server knows that script
		t.Fatal(err)
	}
	n.rdb.AddHook(&afterScript{text: true, keep: true, act: func() { srv.Do("ZREM", second.Keys.text(endsKey), second.Value) }})
	if broken, err := n.Break(background(t), first.Keys, Numbered(0)); err != nil || !broken {
		t.Errorf("broken: %v, %v", broken, err)
	}
}
