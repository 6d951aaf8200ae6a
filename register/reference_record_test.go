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
// that it knows it has seen. Where a rule is set, it is as those stores are said to be that differ: see the table in reference_test.go.
type Reference struct {
	rules  map[string]bool
	r      *record
	v      view
	now    driver.Instant
	writes int

	begun  int
	places map[string]int         // of those who have waited, in order of arrival
	turns  map[string]reservation // of those for whom a store has reserved the lock
}

type reservation struct {
	since driver.Instant
	slot  int
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
		places: make(map[string]int), turns: make(map[string]reservation),
	}
}

// Pass moves the clock.
func (m *Reference) Pass(d time.Duration) { m.now = m.now.Add(d) }

// step writes what do makes of the record without the dead.
func (m *Reference) step(do func(r *record)) {
	nobody := func(*entry) bool { return false }
	r := m.v.living(m.r, m.now, nobody)
	if !m.rules["somebody has to notice"] {
		m.tidy(r)
	}
	if m.rules["reserved at once"] {
		m.reserve(r, "")
	}
	do(r)
	m.writes++
	r.next(fmt.Sprint(m.writes), nobody, func(e *entry) time.Duration { return m.v.idle(e, m.now) })
	m.r = r
	m.v.observe(r, m.now, m.now, 0)
}

// tidy forgets the turns of those who wait no more.
func (m *Reference) tidy(r *record) {
	maps.DeleteFunc(m.turns, func(id string, _ reservation) bool { return find(r.Queue, id) == nil })
}

// reserve takes the turn from those who have not claimed it in time, except from the one who asks, and gives it to the next ones.
func (m *Reference) reserve(r *record, asks string) {
	waits := func(w entry) bool { _, has := m.turns[w.ID]; return !has }
	if m.rules["somebody has to notice"] && asks == "" && !slices.ContainsFunc(r.Queue, waits) {
		return
	}
	m.tidy(r)
	for i := 0; i < len(r.Queue) && m.rules["reservations"]; i++ {
		w := &r.Queue[i]
		turn, has := m.turns[w.ID]
		switch {
		case !has && r.due(w.ID):
			m.turns[w.ID] = reservation{m.now, m.slot(r, w.ID)}
			w.Beat, w.TTL = "", ReferencePlace.Milliseconds() // it has no place any more
		case has && m.now.Sub(turn.since) >= reserved && w.ID != asks:
			delete(m.turns, w.ID)
			if i > 0 {
				r.Queue = remove(r.Queue, w.ID)
			} else {
				r.overtake(asks, reserved+time.Millisecond)
			}
			i = -1
		}
	}
}

// slot is the one that is reserved for an attempt, or else the smallest that nobody has and that is reserved for nobody.
func (m *Reference) slot(r *record, id string) (slot int) {
	if turn, has := m.turns[id]; has {
		return turn.slot
	}
	taken := make(map[int]bool)
	for _, h := range r.Holds {
		taken[h.Slot] = true
	}
	for _, turn := range m.turns {
		taken[turn.slot] = true
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
	at := slices.IndexFunc(r.Queue, func(w entry) bool { _, has := m.turns[w.ID]; return !has && m.places[w.ID] > place })
	if at < 0 {
		at = len(r.Queue)
	}
	r.Queue = slices.Insert(r.Queue, at, e)
}

// Begin returns an attempt.
func (m *Reference) Begin(req *driver.Request) any {
	m.begun++
	return &ReferenceAttempt{req: req, id: fmt.Sprint(req.Holder, m.begun)}
}

// Acquire asks for the lock. The zero Grant says that it is taken.
func (m *Reference) Acquire(h any, waits bool) (g driver.Grant, err error) {
	a := h.(*ReferenceAttempt)
	e := entry{
		ID: a.id, TTL: a.req.TTL.Milliseconds(), Kind: a.req.Kind.String(), Slots: a.req.Slots, Text: a.req.Holder,
		Claim: reserved.Milliseconds(),
	}
	m.step(func(r *record) {
		if slices.Contains(r.Broken, a.number) {
			delete(m.places, a.id) // it asks on as another
			a.number = 0
		}
		if waits {
			m.comeBack(r, e)
		}
		if _, has := m.turns[a.id]; !has || !m.rules["somebody has to notice"] {
			m.reserve(r, a.id)
			defer func() { m.reserve(r, a.id) }()
		}
		g, err = m.acquire(r, a, e, waits)
	})
	return g, err
}

func (m *Reference) acquire(r *record, a *ReferenceAttempt, e entry, waits bool) (driver.Grant, error) {
	if have := r.mismatch(&e); have != nil {
		return driver.Grant{}, driver.Mismatch(a.req, kindOf(have), have.Slots)
	}
	var due time.Duration
	if !m.rules["reservations"] {
		due = m.v.due(r, m.now)
	}
	slot := m.slot(r, a.id)
	got, _, err := r.acquire(e, waits, due)
	switch {
	case err != nil:
		return driver.Grant{}, err
	case got != nil:
		if got.Number > a.number && e.Slots > 0 && m.rules["slots are reserved"] {
			got.Slot = slot
		}
		a.number = got.Number
		delete(m.turns, a.id)
		return driver.Grant{First: uint64(got.Number), Count: a.req.Tokens(tokens), Slot: got.Slot}, nil
	case waits:
		if _, had := m.places[a.id]; !had {
			m.places[a.id] = len(m.places) + 1
		}
		place := find(r.Queue, a.id)
		if place.TTL = ReferencePlace.Milliseconds(); m.rules["a place lasts for the TTL"] {
			place.TTL = e.TTL
		}
	}
	return driver.Grant{}, nil
}

// Renew starts another TTL.
func (m *Reference) Renew(h any) (err error) {
	a := h.(*ReferenceAttempt)
	m.step(func(r *record) {
		if err = r.renew(a.id, a.number, a.req.TTL); err != nil && m.rules["a loss passes the lock on"] {
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
		m.reserve(r, "")
	})
	return nil
}

// Break frees the lock of one holder, or of all.
func (m *Reference) Break(n locker.Number) (broken bool, err error) {
	m.step(func(r *record) {
		if broken = r.free(number(n)); broken {
			m.reserve(r, "")
		}
	})
	return broken, nil
}

// Inspect shows who has the lock.
func (m *Reference) Inspect() (info locker.Info, err error) {
	m.step(func(r *record) {
		info = r.info(&m.v, m.now)
		for id := range m.turns {
			if find(r.Queue, id) != nil {
				info.Waiters--
			}
		}
	})
	_, err = parse(m.r.Name, m.r.encode()) // other processes have to be able to
	return info, err
}
