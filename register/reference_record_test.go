package register

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// Reference is the record of a name, without a store and without requests. Each call is one step, at the time that Pass moves, and all
// that it knows it has seen. In the rules that are set it is what a store is said to be instead: the table in reference_test.go
// has them by name.
type Reference struct {
	rules  map[string]bool
	r      *record
	v      view
	now    driver.Instant
	writes int
	begun  int

	places map[string]int            // of those who have waited, in order of arrival
	turns  map[string]driver.Instant // since when the lock has been reserved for a waiter
	slots  map[string]int            // that is reserved
}

// ReferenceAttempt is an attempt at the name of a Reference.
type ReferenceAttempt struct {
	req    *driver.Request
	id     string
	number number
}

const (
	// ReferencePlace is for how long a waiter keeps its place in a Reference without asking. In no store it is longer.
	ReferencePlace = 18 * time.Second
	// reserved is for how long a store reserves the lock for a waiter.
	reserved = 500 * time.Millisecond
)

// NewReference returns the record of a name that nobody has used.
func NewReference(name string, rules map[string]bool) *Reference {
	return &Reference{
		rules: rules, r: &record{Format: format, Name: name, Last: 1000}, now: driver.Instant(time.Hour),
		places: make(map[string]int), turns: make(map[string]driver.Instant), slots: make(map[string]int),
	}
}

// Pass moves the clock.
func (m *Reference) Pass(d time.Duration) { m.now = m.now.Add(d) }

// Begin returns an attempt.
func (m *Reference) Begin(req *driver.Request) any {
	m.begun++
	return &ReferenceAttempt{req: req, id: fmt.Sprint(req.Holder, m.begun)}
}

// step writes what do makes of the record without the dead. Other processes must be able to read it.
func (m *Reference) step(do func(r *record)) {
	nobody := func(*entry) bool { return false }
	r := m.v.living(m.r, m.now, nobody)
	if m.rules["reserved at once"] {
		m.reserve(r, "")
	}
	do(r)
	m.writes++
	r.next(fmt.Sprint(m.writes), nobody, func(e *entry) time.Duration { return m.v.idle(e, m.now) })
	m.r = r
	m.v.observe(r, m.now, m.now, 0)
}

// reserve takes the turn from those who have not claimed it in time, except from the one who asks, and gives it to the next ones.
func (m *Reference) reserve(r *record, asks string) {
	maps.DeleteFunc(m.turns, func(id string, _ driver.Instant) bool { return find(r.Queue, id) == nil })
	for again := m.rules["reservations"]; again; {
		again = false
		for i, w := range r.Queue {
			since, has := m.turns[w.ID]
			if !has && r.due(w.ID) {
				m.turns[w.ID], m.slots[w.ID] = m.now, m.freeSlot(r)
				r.Queue[i].Beat, r.Queue[i].TTL = "", ReferencePlace.Milliseconds() // it is no place any more
			} else if again = has && m.now.Sub(since) >= reserved && w.ID != asks; again {
				delete(m.turns, w.ID)
				if r.Queue = slices.Clone(r.Queue); i > 0 {
					r.Queue = remove(r.Queue, w.ID)
				} else {
					r.overtake(asks, reserved+time.Millisecond)
				}
				break
			}
		}
	}
}

// freeSlot is the smallest that nobody has, and that is reserved for nobody.
func (m *Reference) freeSlot(r *record) (slot int) {
	taken := make(map[int]bool)
	for _, h := range r.Holds {
		taken[h.Slot] = true
	}
	for _, w := range r.Queue {
		if _, has := m.turns[w.ID]; has {
			taken[m.slots[w.ID]] = true
		}
	}
	for taken[slot] {
		slot++
	}
	return slot
}

// comeBack gives a waiter that has lost its place, or its turn, its old place again: behind those who have the turn.
func (m *Reference) comeBack(r *record, e entry) {
	place, had := m.places[e.ID]
	if !had || !m.rules["places are kept"] || find(r.Holds, e.ID) != nil || find(r.Queue, e.ID) != nil {
		return
	}
	at := len(r.Queue)
	for i, w := range slices.Backward(r.Queue) {
		if _, has := m.turns[w.ID]; !has && m.places[w.ID] > place {
			at = i
		}
	}
	e.Beat = ""
	r.Queue = slices.Insert(r.Queue, at, e)
}

// Acquire asks for the lock. The zero Grant says that it is taken.
func (m *Reference) Acquire(h any, waits bool) (g driver.Grant, err error) {
	a := h.(*ReferenceAttempt)
	e := entry{
		ID: a.id, TTL: a.req.TTL.Milliseconds(), Kind: a.req.Kind.String(), Slots: a.req.Slots, Text: a.req.Holder,
		Claim: reserved.Milliseconds(),
	}
	m.step(func(r *record) {
		if a.number != 0 && slices.Contains(r.Broken, a.number) {
			delete(m.places, a.id) // it asks on as another
			a.number = 0
		}
		if waits {
			m.comeBack(r, e)
		}
		_, has := m.turns[a.id]
		pass := !has || !m.rules["somebody has to notice"]
		if pass {
			m.reserve(r, a.id)
		}
		if have := r.mismatch(&e); have != nil {
			err = driver.Mismatch(a.req, kindOf(have), have.Slots)
			return
		}
		var due time.Duration
		if !m.rules["reservations"] {
			due = m.v.due(r, m.now)
		}
		slot := m.freeSlot(r)
		if reserved, has := m.slots[a.id]; has {
			slot = reserved
		}
		got, _, failed := r.acquire(e, waits, due)
		if err = failed; got != nil {
			if fresh := got.Number > a.number; fresh && e.Slots > 0 && m.rules["slots are reserved"] {
				got.Slot = slot
			}
			a.number = got.Number
			g = driver.Grant{First: uint64(got.Number), Count: a.req.Tokens(tokens), Slot: got.Slot}
			m.forget(a.id)
		} else if waits {
			m.waits(r, a)
		}
		if pass {
			m.reserve(r, a.id)
		}
	})
	return g, err
}

// waits notes a waiter's place.
func (m *Reference) waits(r *record, a *ReferenceAttempt) {
	if _, had := m.places[a.id]; !had {
		m.places[a.id] = len(m.places) + 1
	}
	place := find(r.Queue, a.id)
	switch {
	case m.rules["a place lasts for the TTL"]:
		place.TTL = a.req.TTL.Milliseconds()
	default:
		place.TTL = ReferencePlace.Milliseconds()
	}
}

func (m *Reference) forget(id string) {
	delete(m.turns, id)
	delete(m.slots, id)
}

// Renew starts another TTL.
func (m *Reference) Renew(h any) (err error) {
	a := h.(*ReferenceAttempt)
	m.step(func(r *record) {
		if err = r.renew(a.id, a.number); err != nil && m.rules["a loss passes the lock on"] {
			m.reserve(r, "")
		}
	})
	return err
}

// Release gives the lock back, or keeps it.
func (m *Reference) Release(h any, keep time.Duration) (err error) {
	a := h.(*ReferenceAttempt)
	m.step(func(r *record) {
		if h := find(r.Holds, a.id); m.rules["a release is forgotten"] && (h == nil || !h.Kept) {
			r.Freed = slices.DeleteFunc(r.Freed, func(n number) bool { return n == a.number })
		}
		_, err = r.release(a.id, a.number, keep)
		m.reserve(r, "")
	})
	return err
}

// Withdraw removes what the attempt has left.
func (m *Reference) Withdraw(h any) error {
	a := h.(*ReferenceAttempt)
	m.step(func(r *record) {
		if h := find(r.Holds, a.id); h == nil || !h.Kept || !m.rules["what is kept stays"] {
			r.withdraw(a.id)
		}
		m.forget(a.id)
		m.reserve(r, "")
	})
	return nil
}

// Break frees the lock of one holder, or of all.
func (m *Reference) Break(n locker.Number) (broken bool, err error) {
	m.step(func(r *record) {
		broken = r.free(number(n))
		m.reserve(r, "")
	})
	return broken, nil
}

// Inspect shows who has the lock.
func (m *Reference) Inspect() (info locker.Info, err error) {
	if m.writes > 0 {
		if _, err := parse(m.r.Name, m.r.encode()); err != nil { // other processes could not read it
			return info, err
		}
	}
	m.step(func(r *record) {
		info = r.info(&m.v, m.now)
		if m.rules["reservations"] {
			for _, w := range r.Queue {
				if _, has := m.turns[w.ID]; has {
					info.Waiters--
				}
			}
		}
	})
	return info, nil
}
