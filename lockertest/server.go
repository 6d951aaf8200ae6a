package lockertest

import (
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
)

const (
	// tokens is how many tokens the grant of an exclusive lock has.
	tokens = 64
	// reserveTime is how long a lock stays reserved for the waiter whose turn it is.
	reserveTime = 500 * time.Millisecond
	// forever is the end of a lock that was taken by Take.
	forever = driver.Instant(math.MaxInt64)
)

// server is the store. Each method is one atomic step.
type server struct {
	now func() driver.Instant

	mu    sync.Mutex
	names map[string]*entry
}

// entry is what the server knows of a name.
type entry struct {
	holds   []*hold // in order of their grants
	waiters []*place
	last    uint64          // number
	usedUp  map[string]bool // ids of attempts whose handles were used
}

// hold is one share in the lock: all of it, or that of a reader or a slot.
type hold struct {
	of    *attempt
	state state
	end   driver.Instant
}

type state uint8

const (
	held     state = iota
	reserved       // for a waiter, who may claim it
	kept           // it was unlocked, and nobody else gets it until its end
)

// place is a waiter in the queue. It has an end, so that a dead writer does not keep
// readers out: a waiter asks again before.
type place struct {
	*attempt
	end driver.Instant
}

// attempt is one attempt at a name, and the hold that comes of it: the driver's H.
type attempt struct {
	req  *driver.Request
	id   string
	word chan struct{} // of the server: ask again
	link *Link

	adopted bool // another process had it

	// What follows is the server's.
	withdrawn, forced bool
	number            uint64
	slot              int
}

// answer is the server's to an attempt.
type answer struct {
	number    uint64 // 0: taken
	slot      int
	left      time.Duration // until it is worth asking again
	withdrawn bool
	mismatch  error
}

// entry returns a name's entry as it is now: what has ended is gone, and whatever became
// free is reserved for those who waited for it.
func (s *server) entry(name string) *entry {
	e, now := s.names[name], s.now()
	if e == nil {
		e = new(entry)
		s.names[name] = e
	}
	e.waiters = slices.DeleteFunc(e.waiters, func(p *place) bool { return now >= p.end })
	e.drop(now, func(h *hold) bool { return now >= h.end })
	return e
}

// drop takes holds away, and reserves what is free then for the first waiters, as many as
// go together. The next one is told to look again.
func (e *entry) drop(now driver.Instant, which func(*hold) bool) {
	e.holds = slices.DeleteFunc(e.holds, which)
	passed := false
	for len(e.waiters) > 0 && e.room(e.waiters[0].req) {
		next := e.waiters[0].attempt
		e.waiters = e.waiters[1:]
		e.holds = append(e.holds, &hold{next, reserved, now.Add(reserveTime)})
		next.tell()
		passed = true
	}
	if passed && len(e.waiters) > 0 {
		e.waiters[0].tell()
	}
}

// room reports whether those who hold the lock leave room for req.
func (e *entry) room(req *driver.Request) bool {
	switch req.Kind {
	case locker.KindShared:
		return !slices.ContainsFunc(e.holds, func(h *hold) bool { return h.of.req.Kind != locker.KindShared })
	case locker.KindSlots:
		return len(e.holds) < req.Slots && !slices.ContainsFunc(e.holds, func(h *hold) bool { return h.of.req.Kind != locker.KindSlots })
	}
	return len(e.holds) == 0
}

// slot is the smallest that nobody has.
func (e *entry) slot() int {
	for slot := 0; ; slot++ {
		if !slices.ContainsFunc(e.holds, func(h *hold) bool { return h.state == held && h.of.slot == slot }) {
			return slot
		}
	}
}

// mismatch returns an error if those who are there do not go with req.
func (e *entry) mismatch(req *driver.Request) error {
	have := req
	switch {
	case len(e.holds) > 0 && e.holds[0].end == forever: // Take: it is taken for all
	case len(e.holds) > 0:
		have = e.holds[0].of.req
	case len(e.waiters) > 0:
		have = e.waiters[0].req
	}
	if have.Slots == req.Slots {
		return nil
	}
	return driver.Mismatch(req, have.Kind, have.Slots)
}

// hold is by id, for one of another process may be renewed.
func (e *entry) hold(a *attempt) *hold {
	for _, h := range e.holds {
		if h.of.id == a.id {
			return h
		}
	}
	return nil
}

func (a *attempt) tell() {
	a.link.Push(func() {
		select {
		case a.word <- struct{}{}:
		default:
		}
	})
}

// acquire is what Acquire sends.
func (s *server) acquire(a *attempt, queue bool) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, now := s.entry(a.req.Name), s.now()
	h := e.hold(a)
	switch {
	case a.withdrawn || e.usedUp[a.id]:
		return answer{withdrawn: true}
	case h != nil && h.state == held: // the same answer to a request that is sent again
		h.end = max(h.end, now.Add(a.req.TTL)) // as in renew
	case h != nil && h.state == reserved:
		e.holds = slices.DeleteFunc(e.holds, func(other *hold) bool { return other == h })
		e.grant(a, now)
	case e.mismatch(a.req) != nil:
		return answer{mismatch: e.mismatch(a.req)}
	case len(e.waiters) == 0 && e.room(a.req):
		e.grant(a, now)
	default:
		return e.taken(a, now, queue)
	}
	return answer{number: a.number, slot: a.slot}
}

func (e *entry) grant(a *attempt, now driver.Instant) {
	a.number, a.slot, a.forced = e.last+1, e.slot(), false
	e.last += uint64(a.req.Tokens(tokens))
	e.holds = append(e.holds, &hold{a, held, now.Add(a.req.TTL)})
}

// taken answers when it is worth asking again. A waiter asks three times in its TTL at
// least, which its place lasts for.
func (e *entry) taken(a *attempt, now driver.Instant, queue bool) answer {
	at := slices.IndexFunc(e.waiters, func(p *place) bool { return p.attempt == a })
	switch {
	case at >= 0:
		e.waiters[at].end = now.Add(a.req.TTL)
	case queue:
		at = len(e.waiters)
		e.waiters = append(e.waiters, &place{a, now.Add(a.req.TTL)})
	}
	first := forever
	for _, h := range e.holds {
		first = min(first, h.end)
	}
	left := first.Sub(now) + time.Duration(max(at, 0))*reserveTime
	for _, p := range e.waiters[:max(at, 0)] {
		left = min(left, p.end.Sub(now))
	}
	return answer{left: min(left, a.req.TTL/3)}
}

// resume gives a the place of one with one of these ids, and answers the number, or 0 if none of them has the lock.
func (s *server) resume(a *attempt, ids []string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, now := s.entry(a.req.Name), s.now()
	at := slices.IndexFunc(e.holds, func(h *hold) bool {
		return h.state == held && h.of.req.Kind == locker.KindExclusive && (h.of == a || slices.Contains(ids, h.of.id))
	})
	if at < 0 {
		return 0
	}
	e.useUp(ids...)
	e.holds = slices.Delete(e.holds, at, at+1)
	e.grant(a, now)
	return a.number
}

// useUp has a request of an attempt with one of these ids that is still under way find itself refused.
func (e *entry) useUp(ids ...string) {
	if e.usedUp == nil {
		e.usedUp = make(map[string]bool)
	}
	for _, id := range ids {
		e.usedUp[id] = true
	}
}

// renew answers nil, or that a no longer has the lock.
func (s *server) renew(a *attempt) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.entry(a.req.Name).hold(a)
	if err := h.lost(a); err != nil {
		return err
	}
	h.end = max(h.end, s.now().Add(a.req.TTL)) // one that is late does not shorten what a handle has been renewed for
	return nil
}

func (s *server) release(a *attempt, keep time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(a.req.Name)
	if a.adopted {
		e.useUp(a.id)
	}
	h := e.hold(a)
	switch err := h.lost(a); {
	case h != nil && h.state == kept:
		return nil
	case err != nil:
		return err
	}
	a.withdrawn = true // what may yet arrive of it, too: after this nothing is withdrawn
	if keep == 0 {
		e.drop(s.now(), func(other *hold) bool { return other == h })
		return nil
	}
	h.state, h.end = kept, s.now().Add(keep)
	for _, p := range e.waiters { // they ask again, and hear how long to wait
		p.tell()
	}
	return nil
}

// lost is the error of a holder that no longer has h, which may be nil.
func (h *hold) lost(a *attempt) error {
	switch {
	case h != nil && h.state == held:
		return nil
	case a.forced:
		return &locker.LostError{Reason: locker.ReasonForced}
	}
	return &locker.LostError{Reason: locker.ReasonTakenOver}
}

// withdraw removes what a has left, and refuses what may yet come.
func (s *server) withdraw(a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(a.req.Name)
	a.withdrawn = true
	e.waiters = slices.DeleteFunc(e.waiters, func(p *place) bool { return p.attempt == a })
	e.drop(s.now(), func(h *hold) bool { return h.of == a && h.state != kept })
}

func (s *server) inspect(name string) locker.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info(name)
}

// list returns what is held.
func (s *server) list(prefix string) []locker.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	var infos []locker.Info
	for name := range s.names {
		if info := s.info(name); info.Held && strings.HasPrefix(name, prefix) {
			infos = append(infos, info)
		}
	}
	return infos
}

func (s *server) info(name string) locker.Info {
	e, now := s.entry(name), s.now()
	info := locker.Info{Name: name, Token: fencing.Token(e.last), Waiters: len(e.waiters)}
	for _, h := range e.holds {
		if h.state == reserved {
			continue
		}
		left := h.end.Sub(now)
		info.Held, info.Kind, info.Slots, info.TimeLeft = true, h.of.req.Kind, h.of.req.Slots, max(info.TimeLeft, left)
		switch info.Kind {
		case locker.KindExclusive:
			info.Holder, info.Token, info.Kept = h.of.req.Holder, fencing.Token(h.of.number), h.state == kept
		case locker.KindShared:
			info.Holders = append(info.Holders, locker.Holder{Text: h.of.req.Holder, Number: locker.Number(h.of.number), Slot: -1, TimeLeft: left})
		case locker.KindSlots:
			info.Holders = append(info.Holders, locker.Holder{Text: h.of.req.Holder, Number: locker.Number(h.of.number), Slot: h.of.slot, TimeLeft: left})
		}
	}
	return info
}

// free takes the lock from those holders, and returns them. It also ends Take. If forced, they
// are told so.
func (s *server) free(name string, forced bool, which func(*hold) bool) (holders []*attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(name)
	e.drop(s.now(), func(h *hold) bool {
		if h.state == reserved || !which(h) {
			return false
		}
		holders = append(holders, h.of)
		h.of.forced = forced
		return true
	})
	return holders
}

func (s *server) take(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	nobody := &attempt{req: &driver.Request{Name: name}}
	s.entry(name).holds = []*hold{{nobody, held, forever}}
}
