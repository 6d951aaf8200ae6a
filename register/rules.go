package register

import (
	"errors"
	"slices"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
)

// What follows is what a lock is: each is a step from one record to the next. It asks no clock and no store.

const (
	// tokens is how many tokens the grant of an exclusive lock has.
	tokens = 64
	// placeTTL is for how long a place in the queue lasts at least without a heartbeat.
	placeTTL = 10 * time.Second
	// freed and broken are how many numbers a record remembers. A release whose answer was lost may come again; each of a
	// crowd of readers may have to hear that its lock was broken.
	freed, broken = 16, 256
)

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// find returns the entry of an attempt, or nil.
func find(entries []entry, id string) *entry {
	if i := slices.IndexFunc(entries, func(e entry) bool { return e.ID == id }); i >= 0 {
		return &entries[i]
	}
	return nil
}

func remove(entries []entry, id string) []entry {
	return slices.DeleteFunc(entries, func(e entry) bool { return e.ID == id })
}

// fits reports whether holders leave room for e.
func fits(holds []entry, e *entry) bool {
	same := !slices.ContainsFunc(holds, func(h entry) bool { return h.Kind != e.Kind })
	switch kindOf(e) {
	case locker.KindShared:
		return same
	case locker.KindSlots:
		return same && len(holds) < e.Slots
	}
	return len(holds) == 0
}

// mismatch returns a holder or waiter whose slots are not those of e, or nil.
func (r *record) mismatch(e *entry) *entry {
	for _, entries := range [][]entry{r.Holds, r.Queue} {
		if len(entries) > 0 {
			if entries[0].Slots != e.Slots {
				return &entries[0]
			}
			return nil
		}
	}
	return nil
}

// acquire grants the lock to e if it is e's turn, which includes all at the front of the queue who go together. Otherwise e gets
// a place, or keeps the one that it has, if it waits. Due is for how long the first in the queue could have had the lock. When that
// has grown to more, e may overtake the first; more is 0 if the turn of the first has not come.
func (r *record) acquire(e entry, waits bool, due time.Duration) (got *entry, more time.Duration, err error) {
	if have := find(r.Holds, e.ID); have != nil { // it was granted, and did not hear so
		have.Beat = ""
		return have, 0, nil
	}
	if have := find(r.Queue, e.ID); have != nil {
		have.Beat = ""
	} else {
		place := e
		place.TTL = max(e.TTL, placeTTL.Milliseconds())
		r.Queue = append(r.Queue, place)
	}
	turn := r.due(e.ID)
	if !turn {
		more = r.overtake(e.ID, due)
		turn = r.due(e.ID)
	}
	if turn {
		got, err = r.grant(e)
		return got, 0, err
	}
	if !waits {
		r.Queue = remove(r.Queue, e.ID)
	}
	return nil, more, nil
}

// due reports whether it is the turn of the waiter with this id.
func (r *record) due(id string) bool {
	holds := slices.Clone(r.Holds)
	for _, w := range r.Queue {
		if !fits(holds, &w) {
			return false
		}
		if w.ID == id {
			return true
		}
		holds = append(holds, w)
	}
	return false
}

// overtake removes waiters at the front who do not claim the lock, each after the time in which those before it and itself could
// have. It returns that time for the first who stays, or 0 if its turn has not come. A hold is never removed so.
func (r *record) overtake(id string, due time.Duration) (patience time.Duration) {
	for len(r.Queue) > 0 && r.Queue[0].ID != id && fits(r.Holds, &r.Queue[0]) {
		patience += milliseconds(r.Queue[0].Claim)
		if due <= patience {
			return patience
		}
		r.Queue = slices.Delete(r.Queue, 0, 1)
	}
	return 0
}

func (r *record) grant(e entry) (*entry, error) {
	if r.Last > maxNumber-tokens {
		return nil, driver.Refused(errors.New("the tokens of this name are used up"))
	}
	r.Queue = remove(r.Queue, e.ID)
	e.Number, e.Slot, e.Claim = r.Last+1, 0, 0
	if kindOf(&e) == locker.KindExclusive {
		r.Last += tokens
	} else {
		r.Last++
	}
	for e.Slots > 0 && slices.ContainsFunc(r.Holds, func(h entry) bool { return h.Slot == e.Slot }) {
		e.Slot++
	}
	r.Holds = append(r.Holds, e)
	return &r.Holds[len(r.Holds)-1], nil
}

// resume grants e the lock in place of an attempt with one of these ids, or of e itself, whose answer was lost.
func (r *record) resume(ids []string, e entry) (*entry, error) {
	for _, h := range r.Holds {
		if h.ID == e.ID || slices.Contains(ids, h.ID) {
			r.Holds = remove(r.Holds, h.ID)
			return r.grant(e)
		}
	}
	return nil, &locker.LostError{Reason: locker.ReasonTakenOver}
}

// held returns the hold of an attempt, or why it is lost.
func (r *record) held(id string, n number) (*entry, error) {
	switch have := find(r.Holds, id); {
	case have != nil && !have.Kept:
		return have, nil
	case slices.Contains(r.Broken, n):
		return nil, &locker.LostError{Reason: locker.ReasonForced}
	}
	return nil, &locker.LostError{Reason: locker.ReasonTakenOver}
}

// renew starts another TTL. By a handle a longer one may be asked for, which a late request of the process that had the lock before does not shorten.
func (r *record) renew(id string, n number, ttl time.Duration) error {
	have, err := r.held(id, n)
	if err == nil {
		have.TTL, have.Beat = max(have.TTL, ttl.Milliseconds()), ""
	}
	return err
}

// release gives the lock back, or keeps it for so long from now on. It reports whether there is anything to write: what comes
// again after it has worked is a success.
func (r *record) release(id string, n number, keep time.Duration) (write bool, err error) {
	if slices.Contains(r.Freed, n) {
		return false, nil
	}
	have, err := r.held(id, n)
	if err != nil {
		return false, err
	}
	r.Freed = latest(append(r.Freed, have.Number), freed) // which is n, unless the caller has only a handle
	if keep == 0 {
		r.Holds = remove(r.Holds, id)
		return true, nil
	}
	have.Kept, have.TTL, have.Beat = true, (keep + time.Millisecond - 1).Milliseconds(), ""
	return true, nil
}

// withdraw removes what an attempt has left, and reports whether that was a hold.
func (r *record) withdraw(id string) bool {
	before := len(r.Holds)
	r.Queue = remove(r.Queue, id)
	r.Holds = remove(r.Holds, id)
	return len(r.Holds) < before
}

// free takes the lock from the holder with this number, or if that is 0 from all. It reports whether there was one.
func (r *record) free(n number) bool {
	before := len(r.Holds)
	r.Holds = slices.DeleteFunc(r.Holds, func(e entry) bool {
		gone := n == 0 || e.Number == n
		if gone {
			r.Broken = append(r.Broken, e.Number)
		}
		return gone
	})
	r.Broken = latest(r.Broken, broken)
	return len(r.Holds) < before
}

func latest(numbers []number, most int) []number { return numbers[max(0, len(numbers)-most):] }

// load is the share of the store's time that the heartbeats in the record take, if each write takes so long and one follows another,
// without the busiest entry, which has to manage alone. It is 1 for a quarter: refused writes, and those who come and go, need the rest.
func (r *record) load(each time.Duration) float64 {
	var sum, most float64
	for _, e := range slices.Concat(r.Holds, r.Queue) {
		if !e.Kept {
			one := 4 * 3 * float64(each) / float64(milliseconds(e.TTL))
			sum, most = sum+one, max(most, one)
		}
	}
	return sum - most
}

// size is how many bytes the record can have, at most, while nobody comes in: waiters become holders, idle times are added, and numbers.
func (r *record) size() int {
	const grows, numeral = 64, 22
	return len(r.encode()) + grows*(len(r.Holds)+len(r.Queue)) + numeral*(freed+broken)
}

// span is after how long without a heartbeat all who are in the record are dead.
func (r *record) span() time.Duration {
	last := placeTTL
	for _, e := range slices.Concat(r.Holds, r.Queue) {
		last = max(last, milliseconds(e.TTL))
	}
	return last + driver.Drift(last)
}

// info is what people are shown of a record.
func (r *record) info(v *view, now driver.Instant) locker.Info {
	info := locker.Info{Name: r.Name, Waiters: len(r.Queue)}
	for _, h := range r.Holds {
		left := max(milliseconds(h.TTL)-v.idle(&h, now), time.Millisecond)
		info.Held, info.Kind, info.Slots, info.TimeLeft = true, kindOf(&h), h.Slots, max(info.TimeLeft, left)
		holder := locker.Holder{Text: h.Text, Number: locker.Number(h.Number), Slot: -1, TimeLeft: left}
		switch info.Kind {
		case locker.KindExclusive:
			info.Holder, info.Token, info.Kept = h.Text, fencing.Token(h.Number), h.Kept
			continue
		case locker.KindSlots:
			holder.Slot = h.Slot
		}
		info.Holders = append(info.Holders, holder)
	}
	return info
}
