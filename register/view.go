package register

import (
	"slices"
	"time"

	"github.com/lockstile/locker/driver"
)

// view is what this process has seen of a name's record. Expiry is observed, on this process's clock: an entry whose beat has not changed for
// its TTL is dead. No two machines' clocks are compared.
type view struct {
	seen  map[string]sighting // by the entry's id
	read  driver.Instant      // when the last record was asked for, 0 if none was
	front turn
}

// sighting is since when an entry has had the same beat.
type sighting struct {
	beat  string
	since driver.Instant
	// least is when another beat, or no entry, was asked for. The beat is not older, whatever the store's clock says.
	least driver.Instant
}

// turn is since when the first in the queue could have had the lock. A waiter who queues again, after it had the lock, has another
// turn, for the last number is another.
type turn struct {
	id    string
	last  number
	since driver.Instant
}

// observe notes a record that was asked for, and arrived, at these instants. Age is for how long at least the store has had it.
func (v *view) observe(r *record, asked, arrived driver.Instant, age time.Duration) {
	seen := make(map[string]sighting, len(r.Holds)+len(r.Queue))
	for _, e := range slices.Concat(r.Holds, r.Queue) {
		since := arrived.Add(-age - milliseconds(e.Idle))
		s, ok := v.seen[e.ID]
		if !ok || s.beat != e.Beat {
			s = sighting{e.Beat, arrived, v.read}
		}
		if s.least != 0 {
			since = max(since, s.least)
		}
		s.since = min(s.since, since)
		seen[e.ID] = s
	}
	v.seen, v.read = seen, max(v.read, asked)
}

// idle returns for how long at least an entry's beat has not changed.
func (v *view) idle(e *entry, now driver.Instant) time.Duration {
	if s, ok := v.seen[e.ID]; ok && s.beat == e.Beat {
		return max(now.Sub(s.since), 0)
	}
	return 0
}

// end returns when an entry counts as dead, unless its beat changes before. Its holder stops believing earlier, by twice the
// allowance for clocks of different rates.
func (v *view) end(e *entry, now driver.Instant) driver.Instant {
	ttl := milliseconds(e.TTL)
	return now.Add(ttl + driver.Drift(ttl) - v.idle(e, now))
}

// living returns a copy of a record without the dead. Those for whom alive is true, this process's own attempts, stay.
func (v *view) living(r *record, now driver.Instant, alive func(*entry) bool) *record {
	r = r.clone()
	dead := func(e entry) bool { return !alive(&e) && now >= v.end(&e, now) }
	r.Holds, r.Queue = slices.DeleteFunc(r.Holds, dead), slices.DeleteFunc(r.Queue, dead)
	return r
}

// due returns for how long the first in the queue could have had the lock.
func (v *view) due(r *record, now driver.Instant) time.Duration {
	if len(r.Queue) == 0 || !fits(r.Holds, &r.Queue[0]) {
		v.front = turn{}
		return 0
	}
	if id := r.Queue[0].ID; v.front.id != id || v.front.last != r.Last {
		v.front = turn{id, r.Last, now}
	}
	return now.Sub(v.front.since)
}

// look returns when a waiter has to look again if nothing changes until then. More is when it may overtake the first in the queue,
// counted from when that one's turn came, or 0.
func (v *view) look(r *record, id string, more time.Duration, now driver.Instant, alive func(*entry) bool) driver.Instant {
	at := now.Add(longest)
	if more > 0 {
		at = v.front.since.Add(more + time.Millisecond)
	}
	for _, e := range slices.Concat(r.Holds, r.Queue) {
		if e.ID == id {
			break
		}
		if !alive(&e) {
			at = min(at, v.end(&e, now))
		}
	}
	return at
}
