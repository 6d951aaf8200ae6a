package register

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker/driver"
)

// The explorer goes through every interleaving of three clients of one name, within a budget of what may happen: each reads what the
// store has, or had, sends a Swap, hears its answer or gives up, believes, renews, releases, withdraws, and may be suspended for ever. A
// Swap may arrive late, or never, and its client may send it twice. Each interleaving that is found to be wrong is printed, action
// after action.
type world struct {
	budget
	now     driver.Instant
	records []written // by version, which counts from 1
	wire    []swap
	clients [3]client
	trail   *trail
}

// budget is what may still happen.
type budget struct{ swaps, ticks, suspended, stale, repeats, losses int }

type written struct {
	*record
	at driver.Instant
}

type swap struct {
	client  int
	what    op
	base    int // version
	record  *record
	since   driver.Instant
	arrived bool
	ok      bool
}

type op uint8

const (
	acquiring op = iota
	renewing
	releasing
	withdrawing
)

type client struct {
	stage     stage
	suspended bool
	known     int // version, -1 if it has to read
	waits     int // for the answer to this swap, or -1
	view      view
	sent      int
	order     uint64 // of the newest record that it knows
	number    number
	belief    driver.Instant // until when
}

type stage uint8

const (
	asks stage = iota
	holds
	leaves
	gone
)

// trail is how a world came about.
type trail struct {
	before *trail
	what   string
}

func (t *trail) String() string {
	if t == nil {
		return ""
	}
	return t.before.String() + "\n" + t.what
}

const (
	tick     = driver.Instant(100 * time.Millisecond)
	modelTTL = 150 * time.Millisecond // a lock is alive after one tick and dead after two
)

func id(c int) string { return string(rune('a' + c)) }

// after returns a copy of the world in which something else may happen.
func (w *world) after(format string, args ...any) *world {
	c := *w
	c.records, c.wire = slices.Clone(w.records), slices.Clone(w.wire)
	c.trail = &trail{w.trail, fmt.Sprintf(format, args...)}
	return &c
}

// key tells worlds apart, by what can make a difference to what may follow. Of the versions that were replaced that is whether somebody
// may still read them.
func (w *world) key(aged bool) string {
	var b strings.Builder
	fmt.Fprint(&b, w.budget, w.now, w.base(len(w.records)).Nonce)
	if aged && len(w.records) > 0 {
		fmt.Fprint(&b, w.records[len(w.records)-1].at)
	}
	for i := range w.records {
		if w.stale > 0 {
			fmt.Fprint(&b, " ", w.records[i].Nonce)
		}
	}
	for i := range w.clients {
		c := &w.clients[i]
		fmt.Fprint(&b, "|", c.stage, c.suspended, c.waits >= 0, c.order, c.number, c.belief, c.view.front)
		if c.known >= 0 {
			fmt.Fprint(&b, "k", w.base(c.known).Nonce)
		}
		for _, id := range slices.Sorted(maps.Keys(c.view.seen)) {
			s := c.view.seen[id]
			fmt.Fprint(&b, " ", id, s.beat, s.since)
			if aged {
				fmt.Fprint(&b, " ", s.least, c.view.read)
			}
		}
	}
	for i, s := range w.wire {
		if !s.arrived {
			fmt.Fprint(&b, "|", s.client, s.what, s.since, w.clients[s.client].waits == i)
			if s.base == len(w.records) {
				fmt.Fprint(&b, s.record.Nonce)
			}
		}
	}
	return b.String()
}

// next returns all worlds that may follow.
func (w *world) next(aged bool) (worlds []*world) {
	if w.ticks > 0 {
		v := w.after("time passes")
		v.ticks, v.now = w.ticks-1, w.now+tick
		worlds = append(worlds, v)
	}
	for i, s := range w.wire {
		if !s.arrived {
			worlds = append(worlds, w.arrives(i)...)
		}
	}
	for i := range w.clients {
		if c := &w.clients[i]; c.suspended || c.stage == gone {
			continue
		} else if i > 0 && w.clients[i-1].view.read == 0 { // who comes first makes no difference
			break
		} else if c.waits >= 0 {
			if w.losses > 0 {
				v := w.after("%s gives up %s", id(i), w.wire[c.waits])
				v.losses--
				v.givesUp(i)
				worlds = append(worlds, v)
			}
			continue
		}
		worlds = append(worlds, w.reads(i, aged)...)
		worlds = append(worlds, w.acts(i)...)
		if w.suspended > 0 {
			v := w.after("%s is suspended", id(i))
			v.suspended--
			v.clients[i].suspended = true
			worlds = append(worlds, v)
		}
	}
	return worlds
}

func (s swap) String() string {
	return fmt.Sprintf("%s's %s on version %d", id(s.client), [...]string{"acquire", "renew", "release", "withdraw"}[s.what], s.base)
}

// arrives has the store get a Swap. If its client still waits, it hears the answer, or it does not, or hears of a second one that it
// has sent by itself.
func (w *world) arrives(i int) (worlds []*world) {
	s := w.wire[i]
	deliver := func(how string) *world {
		v := w.after("the store gets %s%s", s, how)
		v.wire[i].arrived, v.wire[i].ok = true, s.base == len(v.records)
		if v.wire[i].ok {
			v.records = append(v.records, written{s.record, v.now})
		}
		worlds = append(worlds, v)
		return v
	}
	waits := !w.clients[s.client].suspended && w.clients[s.client].waits == i
	if !waits {
		deliver(", for which nobody waits")
		return worlds
	}
	v := deliver("")
	c := &v.clients[s.client]
	c.waits, c.known = -1, -1
	if v.wire[i].ok {
		v.succeeded(s.client, s)
	}
	if w.losses > 0 {
		v := deliver(", and the answer is lost")
		v.losses--
		v.givesUp(s.client)
	}
	if w.repeats > 0 && s.base == len(w.records) {
		v := deliver(" twice, and the second answer is heard")
		v.repeats--
		v.clients[s.client].waits = -1
		v.succeeded(s.client, s) // it reads, and finds its own record
	}
	return worlds
}

// givesUp is what a client does that has waited for long: it asks again, or withdraws.
func (w *world) givesUp(i int) {
	c := &w.clients[i]
	if what := w.wire[c.waits].what; what != renewing {
		c.stage = leaves
	}
	c.waits, c.known = -1, -1
}

// succeeded is what a client makes of a Swap that was carried out.
func (w *world) succeeded(i int, s swap) {
	c := &w.clients[i]
	c.known = s.base + 1
	c.view.observe(s.record, s.since, w.now, 0)
	c.order = s.record.Order
	end := s.since.Add(modelTTL - driver.Drift(modelTTL))
	switch s.what {
	case acquiring:
		if h := find(s.record.Holds, id(i)); h != nil {
			c.stage, c.number, c.belief = holds, h.Number, end
		}
	case renewing:
		if w.now < c.belief { // an answer after the end comes too late
			c.belief = end
		}
	default:
		c.stage = gone
	}
}

// reads has a client read what the store has, or had.
func (w *world) reads(i int, aged bool) (worlds []*world) {
	for version := len(w.records); version >= 0; version-- {
		c := &w.clients[i]
		late := version < len(w.records)
		if version == c.known || late && w.stale == 0 || version > 0 && w.records[version-1].Order < c.order || version == 0 && c.order > 0 {
			continue
		}
		v := w.after("%s reads version %d", id(i), version)
		c = &v.clients[i]
		c.known = version
		age := time.Duration(0)
		if late {
			v.stale--
		} else if aged && version > 0 {
			age = w.now.Sub(w.records[version-1].at)
		}
		c.view.observe(v.base(version), v.now, v.now, age)
		c.order = v.base(version).Order
		worlds = append(worlds, v)
	}
	return worlds
}

func (w *world) base(version int) *record {
	if version == 0 {
		return &record{Format: format, Name: "a", Last: 100}
	}
	return w.records[version-1].record
}

// acts has a client send what may come next.
func (w *world) acts(i int) (worlds []*world) {
	c := &w.clients[i]
	send := func(what op) {
		if v := w.after("%s sends %s", id(i), swap{client: i, what: what, base: c.known}); v.send(i, what) {
			worlds = append(worlds, v)
		}
	}
	switch c.stage {
	case asks:
		send(acquiring)
	case holds:
		if w.now < c.belief {
			send(renewing)
		}
		send(releasing)
	case leaves:
		send(withdrawing)
	}
	return worlds
}

// send makes a client's step on the record that it knows, and sends it. It reports whether there is anything to send.
func (w *world) send(i int, what op) bool {
	c := &w.clients[i]
	if c.known < 0 || w.swaps == 0 {
		return false
	}
	alive := func(e *entry) bool { return e.ID == id(i) && what <= releasing }
	r := c.view.living(w.base(c.known), w.now, alive)
	if what >= releasing {
		c.belief = 0
	}
	switch what {
	case acquiring:
		had := find(r.Queue, id(i)) != nil
		e := entry{ID: id(i), TTL: modelTTL.Milliseconds(), Kind: "exclusive", Claim: 50}
		if got, _, _ := r.acquire(e, true, c.view.due(r, w.now)); got == nil && had {
			return false // it waits on
		}
	case renewing:
		if r.renew(id(i), c.number, modelTTL) != nil {
			c.stage, c.belief = leaves, 0
			return c.known == len(w.records) // it was lost
		}
	case releasing:
		if _, err := r.release(id(i), c.number, 0); err != nil {
			c.stage = gone
			return c.known == len(w.records)
		}
	case withdrawing:
		r.withdraw(id(i))
	}
	w.swaps--
	c.sent++
	r.next(fmt.Sprint(id(i), c.sent), alive, func(e *entry) time.Duration { return c.view.idle(e, w.now) })
	w.wire = append(w.wire, swap{client: i, what: what, base: c.known, record: r, since: w.now})
	c.waits = len(w.wire) - 1
	return true
}

// wrong says what is wrong with the world, or nothing.
func (w *world) wrong() string {
	believers := 0
	for i := range w.clients {
		if c := &w.clients[i]; c.stage == holds && w.now < c.belief {
			believers++
		}
	}
	if believers > 1 {
		return fmt.Sprintf("%d believe that they have the lock", believers)
	}
	for i := 1; i < len(w.records); i++ {
		for _, h := range w.records[i].Holds {
			if find(w.records[i-1].Holds, h.ID) == nil && h.Number <= w.records[i-1].Last {
				return fmt.Sprintf("%s was granted %d after %d", h.ID, h.Number, w.records[i-1].Last)
			}
		}
	}
	if len(w.records) > 0 {
		last := w.records[len(w.records)-1]
		for i := range w.clients {
			if c := &w.clients[i]; c.stage == gone && (find(last.Holds, id(i)) != nil || find(last.Queue, id(i)) != nil) {
				return id(i) + " has withdrawn, and is back"
			}
		}
	}
	return ""
}

// most is how many worlds are looked at, in each of which more may happen.
const most = 3_000_000

// explore returns how many worlds there are, and the first that is wrong.
func explore(b budget, aged bool) (worlds int, wrong string) {
	first := &world{budget: b, now: 10 * tick}
	for i := range first.clients {
		first.clients[i].known, first.clients[i].waits = -1, -1
	}
	seen := map[[sha256.Size]byte]struct{}{}
	for todo := []*world{first}; len(todo) > 0; {
		w := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, v := range w.next(aged) {
			if what := v.wrong(); what != "" {
				return len(seen), what + ":" + v.trail.String()
			}
			if len(seen) == most {
				return most, "there are more worlds than can be looked at"
			}
			key := sha256.Sum256([]byte(v.key(aged)))
			if _, ok := seen[key]; !ok {
				seen[key] = struct{}{}
				todo = append(todo, v)
			}
		}
	}
	return len(seen), ""
}

func TestEveryInterleavingWithinBoundsIsRight(t *testing.T) {
	bounds := []budget{
		{swaps: 2, ticks: 1, suspended: 1},
		{swaps: 2, ticks: 1, stale: 1},
		{swaps: 2, ticks: 1, repeats: 1},
		{swaps: 2, ticks: 1, losses: 1},
	}
	if !testing.Short() {
		bounds = []budget{
			{swaps: 3, ticks: 3, suspended: 1},
			{swaps: 3, ticks: 2, stale: 1},
			{swaps: 3, ticks: 2, repeats: 1},
			{swaps: 3, ticks: 2, losses: 1},
		}
	}
	for _, b := range bounds {
		for _, aged := range []bool{false, true} {
			t.Run(fmt.Sprintf("%+v, aged %v", b, aged), func(t *testing.T) {
				t.Parallel()
				worlds, wrong := explore(b, aged)
				if wrong != "" {
					t.Error(wrong)
				}
				t.Logf("%d worlds", worlds)
			})
		}
	}
}
