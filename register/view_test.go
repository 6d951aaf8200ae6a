package register

import (
	"slices"
	"testing"
	"time"

	"github.com/lockstile/locker/driver"
)

func held(beat string, idle time.Duration) *record {
	return &record{Order: 1, Holds: []entry{{ID: "a", Beat: beat, TTL: 1000, Idle: idle.Milliseconds(), Kind: "exclusive"}}}
}

const s = driver.Instant(time.Second)

// at returns when the view takes the only holder for dead.
func (v *view) at(r *record, now driver.Instant) driver.Instant { return v.end(&r.Holds[0], now) }

const allowed = driver.Instant(time.Second + 12*time.Millisecond) // a TTL, and what clocks may differ by

func TestWhoIsDeadIsObserved(t *testing.T) {
	for _, c := range []struct {
		what string
		see  func(v *view)
		end  driver.Instant
	}{
		{"counted from the answer, not from the question", func(v *view) { v.observe(held("x", 0), 10*s, 11*s, 0) }, 11*s + allowed},
		{"seen again, it is no younger", func(v *view) {
			v.observe(held("x", 0), 10*s, 11*s, 0)
			v.observe(held("x", 0), 12*s, 12*s, 0)
		}, 11*s + allowed},
		{"another beat", func(v *view) {
			v.observe(held("x", 0), 10*s, 11*s, 0)
			v.observe(held("y", 0), 12*s, 12*s, 0)
		}, 12*s + allowed},
		{"what the store says of the record's age", func(v *view) { v.observe(held("x", 0), 10*s, 11*s, 5*time.Second) }, 6*s + allowed},
		{"what those have seen who wrote before", func(v *view) { v.observe(held("x", time.Second), 10*s, 11*s, 5*time.Second) }, 5*s + allowed},
		{"the store's clock jumps: not before another beat was asked for", func(v *view) {
			v.observe(held("x", 0), 10*s, 11*s, 0)
			v.observe(held("y", 0), 12*s, 13*s, time.Hour)
		}, 10*s + allowed},
		{"the same, and before there was no entry", func(v *view) {
			v.observe(&record{}, 10*s, 11*s, 0)
			v.observe(held("y", 0), 12*s, 13*s, time.Hour)
			v.observe(held("y", 0), 14*s, 14*s, time.Hour)
		}, 10*s + allowed},
	} {
		var v view
		c.see(&v)
		r := held("y", 0)
		if _, ok := v.seen["a"]; !ok || v.seen["a"].beat == "x" {
			r = held("x", 0)
		}
		if got := v.at(r, 20*s); got != c.end {
			t.Errorf("%s: it counts as dead at %v, and not at %v", c.what, time.Duration(got), time.Duration(c.end))
		}
	}
}

// A beat is the nonce of a write, and nothing that may come back when a record was deleted, or restored from a backup.
func TestBeatIsTheNonceOfAWrite(t *testing.T) {
	one, other := held("", 0), held("", 0)
	one.next("x", nil, nil)
	other.next("y", nil, nil)
	if one.Order != other.Order || one.Holds[0].Beat == other.Holds[0].Beat {
		t.Errorf("%+v, %+v", one, other)
	}
}

// Those who write say of others how long these have been silent, so that processes which live for a moment add up what they see.
func TestIdleAddsUp(t *testing.T) {
	r := held("x", 0)
	now := 10 * s
	for range 3 {
		var v view
		v.observe(r, now, now, 0)
		now += s / 4
		next := r.clone()
		next.next("n", func(*entry) bool { return false }, func(e *entry) time.Duration { return v.idle(e, now) })
		r = next
	}
	if got := milliseconds(r.Holds[0].Idle); got != 750*time.Millisecond {
		t.Errorf("idle %v after three looks of a quarter of a second", got)
	}
}

// places returns a record in which these wait, and nobody has the lock.
func places(ids string, claim time.Duration) *record {
	r := new(record)
	for _, id := range ids {
		r.Queue = append(r.Queue, entry{ID: string(id), Beat: "x", TTL: 10_000, Kind: "exclusive", Claim: claim.Milliseconds()})
	}
	return r
}

func TestTurnCountsFromWhenTheLockWasFree(t *testing.T) {
	r := places("ab", time.Second)
	var v view
	if due := v.due(r, 10*s); due != 0 {
		t.Error("the turn begins with the first look", due)
	}
	if due := v.due(r, 12*s); due != 2*time.Second {
		t.Error(due)
	}
	r.Last += 64 // a had the lock, and queues again
	if due := v.due(r, 13*s); due != 0 {
		t.Error("another turn of the same waiter has the time of the first", due)
	}
	r.Holds = []entry{{ID: "c", Kind: "exclusive"}}
	v.due(r, 14*s)
	r.Holds = nil
	if due := v.due(r, 15*s); due != 0 {
		t.Error("the lock was taken meanwhile", due)
	}
}

func TestEachWaiterHasTimeToClaim(t *testing.T) {
	mine := func(kind string) entry { return entry{ID: "z", TTL: 1000, Kind: kind} }
	for _, c := range []struct {
		what string
		r    *record
		e    entry
		due  time.Duration
		got  bool
		left string
		more time.Duration
	}{
		{"the first may still come", places("abz", time.Second), mine("exclusive"), time.Second, false, "abz", time.Second},
		{"the second may still come", places("abz", time.Second), mine("exclusive"), 2 * time.Second, false, "bz", 2 * time.Second},
		{"nobody came", places("abz", time.Second), mine("exclusive"), 2*time.Second + 1, true, "", 0},
		{"who stands behind is not overtaken", places("azb", time.Second), mine("exclusive"), time.Hour, true, "b", 0},
		{"a holder is never overtaken", func() *record {
			r := places("az", time.Second)
			r.Holds = []entry{{ID: "h", Kind: "exclusive", TTL: 1000}}
			return r
		}(), mine("exclusive"), time.Hour, false, "az", 0},
		{"a reader behind a writer, while another reads", func() *record {
			r := places("waz", time.Second)
			r.Holds = []entry{{ID: "h", Kind: "shared", TTL: 1000}}
			r.Queue[1].Kind, r.Queue[2].Kind = "shared", "shared"
			return r
		}(), mine("shared"), time.Hour, false, "waz", 0},
	} {
		got, more, err := c.r.acquire(c.e, true, c.due)
		var left string
		for _, w := range c.r.Queue {
			left += w.ID
		}
		if err != nil || (got != nil) != c.got || left != c.left || more != c.more {
			t.Errorf("%s: granted %v, queue %s, more %v, %v", c.what, got != nil, left, more, err)
		}
	}
}

// Numbers of those who were freed by force, or have released, are remembered, and not without end.
func TestNumbersAreRemembered(t *testing.T) {
	r := new(record)
	for n := range number(300) {
		r.Holds = append(r.Holds, entry{ID: "a", Number: n + 1, Kind: "shared"})
	}
	if !r.free(0) || len(r.Broken) != broken || !slices.Contains(r.Broken, 300) {
		t.Errorf("%d numbers are remembered", len(r.Broken))
	}
}

func FuzzParse(f *testing.F) {
	r := places("ab", time.Second)
	r.Format, r.Name, r.Last, r.Holds = format, "a", 64, []entry{{ID: "h", Kind: "slots", Slots: 3, TTL: 1000, Number: 1}}
	r.next("nonce", func(*entry) bool { return false }, func(*entry) time.Duration { return 0 })
	f.Add(string(r.encode()))
	f.Add(`{"lockstile":1,"name":"a","order":"1","nonce":"x","last":"5"}`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parse("a", []byte(text))
		if err != nil {
			return
		}
		again, err := parse("a", r.encode())
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		if string(again.encode()) != string(r.encode()) {
			t.Errorf("%s became %s", r.encode(), again.encode())
		}
		var v view
		v.observe(r, s, s, 0)
		for range 3 { // whatever it says, a step leaves what can be read
			_, _, _ = r.acquire(entry{ID: "new", TTL: 1000, Kind: "exclusive"}, true, time.Hour)
			v.due(r, s)
			v.look(r, "new", 0, s, func(*entry) bool { return false })
			r.next("n", func(*entry) bool { return false }, func(e *entry) time.Duration { return v.idle(e, s) })
			if _, err := parse("a", r.encode()); err != nil && r.Order > 0 {
				t.Fatalf("after a step: %v", err)
			}
		}
	})
}
