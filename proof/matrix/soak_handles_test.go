package matrix

import (
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/proof/matrix/internal/judge"
)

// crewOf is a crew of these workers.
func crewOf(p *play, workers ...*worker) *crew {
	c := newCrew(p, nil)
	for _, w := range workers {
		s := new(seat)
		s.worker.Store(w)
		c.seats = append(c.seats, s)
	}
	return c
}

// Goal: a soak finds nothing wrong with handles that are as they should be.
func TestLocksThatAreHandedOverAtRandomAreKept(t *testing.T) {
	t.Parallel()
	p, a, b := inMemory(t)
	c := crewOf(p, a, b)
	const lanes, turns = 3, 8
	p.all(together(make([]int, lanes), func(i, _ int) {
		rng := rand.New(rand.NewPCG(uint64(i), 0)) //nolint:gosec // not negative
		for range turns {
			w, o := c.anyone(rng), order{Verb: "lock", Name: p.name, TTL: 200 * time.Millisecond, Bound: patience}
			l, err := w.claimed(w.granted(o.Name, w.tell(o)))
			p.must(err)
			c.handOver(l, o, rng)
		}
	}))
	a.Lock().Unlock()
	p.History.Ended = now()
	f := judge.Find(p.guarantees, 0, p.History)
	if f.Verdict != Kept || len(p.History.Spans) <= lanes*turns+1 {
		t.Errorf("%s: %s; %d locks\n%s", f.Verdict, f.Why, len(p.History.Spans), p.History.Text())
	}
}

// Goal: a handle that is good for two is a false claim, though the two hold one after the other. A server may have forgotten the first.
func TestTwoWhoResumeOneLockAreAFalseClaim(t *testing.T) {
	for _, c := range []struct {
		breaks locker.Assumptions
		second report
		untrue bool
	}{
		{0, report{Kind: kindGranted, Token: 3}, true},
		{locker.PromptHolder, report{Kind: kindGranted, Token: 3}, true},
		{locker.DurableServer, report{Kind: kindGranted, Token: 3}, false},
		{0, report{Kind: kindRefused, Err: "lost", Lost: true}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := attempts(t, time.Second)
			w.play.scenario.Breaks = c.breaks
			resumed := 0
			w.out = newLines(ordersFunc(func(o order) {
				r := report{ID: o.ID, Name: o.Name, Handle: "h"}
				if o.Verb == "resume" {
					r = report{ID: o.ID, Kind: kindGranted, Token: 2}
					if resumed++; resumed > 1 {
						r.Kind, r.Token, r.Err, r.Lost = c.second.Kind, c.second.Token, c.second.Err, c.second.Lost
					}
				}
				w.hear(r)
			}))
			for seed := uint64(0); resumed < 2; seed++ { // until two are drawn
				resumed = 0
				crewOf(w.play, w).handOver(workerLock{Worker: w, Token: 1}, order{Name: "n", TTL: time.Second}, rand.New(rand.NewPCG(seed, 0)))
			}
			if untrue := w.play.History.Untrue; (untrue != "") != c.untrue {
				t.Errorf("%v is broken, and the second is told %+v: noted %q", c.breaks, c.second, untrue)
			}
		})
	}
}

// Goal: whoever does not know whether it has resumed a lock asks with the handle that stands for both cases, and nobody asks for ever.
func TestAResumeIsTriedAgainWhileTheLockMayBeThere(t *testing.T) {
	unknown := report{Kind: kindRefused, Err: "unknown", Unknown: true, Handle: "either"}
	refused, lost := report{Kind: kindRefused, Err: "no"}, report{Kind: kindRefused, Err: "lost", Lost: true}
	for _, c := range []struct {
		name    string
		answers []report
		handles string
		resumed bool
	}{
		{"granted", []report{{Kind: kindGranted}}, "first", true},
		{"lost", []report{lost}, "first", false},
		{"unknown, then granted", []report{unknown, {Kind: kindGranted}}, "first either", true},
		{"unknown, then lost", []report{unknown, lost}, "first either", false},
		{"refused, then granted", []report{refused, {Kind: kindGranted}}, "first first", true},
		{"refused for ever", []report{refused}, "first first first", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := attempts(t, time.Second, c.answers...)
			answer, asked := w.out, []string(nil)
			w.out = newLines(ordersFunc(func(o order) {
				if o.Verb == "resume" {
					asked = append(asked, string(o.Handle))
				}
				_ = answer.send(o)
			}))
			if resumed := w.goOn(order{Name: "n", Handle: "first"}, time.Millisecond); resumed != c.resumed || strings.Join(asked, " ") != c.handles {
				t.Errorf("%s: resumed: %v, with the handles %q", c.name, resumed, asked)
			}
		})
	}
}

// Goal: a soak detaches what can be detached.
func TestOnlyExclusiveLocksAreDetachedAtRandom(t *testing.T) {
	for _, declared := range []bool{true, false} {
		c, drawn := newCrew(&play{guarantees: locker.Guarantees{Detaches: declared}}, nil), make(map[locker.Kind]bool)
		rng := rand.New(rand.NewPCG(1, 0))
		for range 100 {
			for kind := locker.KindExclusive; kind <= locker.KindSlots; kind++ {
				drawn[kind] = drawn[kind] || c.detaches(order{Kind: kind}, rng)
			}
		}
		if drawn[locker.KindExclusive] != declared || drawn[locker.KindShared] || drawn[locker.KindSlots] {
			t.Errorf("declared: %v, and detached are %v", declared, drawn)
		}
	}
}
