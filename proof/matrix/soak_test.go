package matrix

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

// everything is a system on which everything can be broken.
func everything() *System {
	f := func() error { return nil }
	return &System{
		Client:       func() (string, conformance.Network, error) { return "", conformance.Proxies{}, nil },
		CrashKeeping: f, CrashEmpty: f, CrashOld: f, Snapshot: f, FailOver: f, Lag: f, ClockAhead: f, HandOver: f,
		Pause: f, Resume: f, KillMinority: f, KillMajority: f, Restore: f, SkewClocks: f,
		StepClock: func(time.Duration) error { return nil }, Move: func(string) []Step { return nil },
		Narrow:   func(conformance.Network, int) error { return nil },
		Stranger: func(string) (func() error, error) { return f, nil },
	}
}

// Goal: every fault comes, also beside others, and there is always something to judge.
func TestARoundNeverExcusesEverything(t *testing.T) {
	g := locker.Guarantees{
		Exclusion: locker.PromptHolder | locker.SteadyClocks | locker.DurableServer | locker.DurableReplica | locker.AgreedClocks,
		Tokens:    locker.DurableServer,
	}
	drawn, most, strict := make(map[string]bool), 0, 0
	for seed := range uint64(2000) {
		var broken locker.Assumptions
		servers := 0
		chosen := draw(rand.New(rand.NewPCG(seed, 0)), everything(), g)
		for _, f := range chosen {
			drawn[f.Name] = true
			broken |= f.Breaks
			if f.server() {
				servers++
			}
		}
		most = max(most, len(chosen))
		if g.Exclusion&broken == 0 {
			strict++
		}
		if servers > 1 || g.Exclusion&broken != 0 && g.Tokens&broken != 0 {
			t.Errorf("seed %d: %d faults of servers, and broken is %v", seed, servers, broken)
		}
	}
	for _, f := range faultsByChance(everything()) {
		if want := g.Exclusion&f.Breaks == 0 || g.Tokens&f.Breaks == 0; drawn[f.Name] != want {
			t.Errorf("%q was drawn: %v, not %v", f.Name, drawn[f.Name], want)
		}
	}
	if most != 4 || strict < 1000 {
		t.Errorf("%d faults at once at most, and %d rounds of 2000 excuse nothing", most, strict)
	}
}

// A fault that comes at any moment breaks what its scenario breaks, and perhaps more.
func TestAFaultBreaksWhatItsScenarioBreaksAndMore(t *testing.T) {
	scenarios := Scenarios()
	if n := len(faultsByChance(everything())); n != len(chances) {
		t.Errorf("%d of %d faults can come where everything can be broken", n, len(chances))
	}
	for _, f := range faultsByChance(everything()) {
		i := slices.IndexFunc(scenarios, func(sc Scenario) bool { return sc.Name == f.Name })
		if want := scenarios[i].Breaks | f.also; f.Breaks != want {
			t.Errorf("%q breaks %v, not %v", f.Name, f.Breaks, want)
		}
	}
	for name, also := range map[string]locker.Assumptions{
		"suspended holder": locker.PromptHolder,  // it may be stopped before a write
		"servers disagree": locker.SteadyClocks,  // a clock may jump while a lock is held
		"majority lost":    locker.DurableServer, // servers that keep nothing come back empty while a lock is held
	} {
		i := slices.IndexFunc(chances, func(c chance) bool { return c.scenario == name })
		if chances[i].also != also {
			t.Errorf("%q at any moment breaks %v, too, and not %v", name, also, chances[i].also)
		}
	}
}

func TestAwayIsWhenNobodyWasGrantedALock(t *testing.T) {
	h := &history.History{Began: 1 * second, Calm: 10 * second}
	for _, at := range []driver.Instant{1 * second, 4 * second, 4*second + 5, 9*second + 500*1000*1000, 30 * second} {
		h.Granted(history.Span{Worker: "A", From: at})
	}
	if got := away(h).Round(time.Millisecond); got != 8500*time.Millisecond {
		t.Errorf("nobody could lock for %v, not 8.5s", got)
	}
}

// Goal: the histories that are kept are those that failed, and the last.
func TestASoakKeepsWhatFailed(t *testing.T) {
	s := new(Soaked)
	verdicts := []Verdict{Kept, FalseClaim, Kept, NotPlayed, Kept, Fenced}
	for i, v := range verdicts {
		s.add(Cell{Scenario: string(rune('a' + i)), Verdict: v})
	}
	var got string
	for _, c := range s.Kept {
		got += c.Scenario
	}
	if got != "bdf" || s.Rounds != len(verdicts) {
		t.Errorf("kept %q of %d rounds, not bdf of %d", got, s.Rounds, len(verdicts))
	}
	for range 20 {
		s.add(Cell{Verdict: FalseClaim})
	}
	if len(s.Kept) > maxKept+1 {
		t.Errorf("%d histories are kept", len(s.Kept))
	}
}

func TestWorkersThatComeAfterOthersAreCounted(t *testing.T) {
	a, b := &seat{name: "A1", lives: 1}, &seat{name: "B", lives: 1}
	if got := a.successor() + b.successor() + b.successor(); got != "A1.2B.2B.3" {
		t.Errorf("they are called %s", got)
	}
}

// Goal: tokens that go back between two rounds of a crowd are found: each round has a history of its own.
func TestTokensMustNotGoBackBetweenTheRoundsOfACrowd(t *testing.T) {
	s := new(soak)
	for i, c := range []struct {
		tokens []fencing.Token
		want   Verdict
	}{{[]fencing.Token{3, 1}, Kept}, {[]fencing.Token{4, 9}, Kept}, {[]fencing.Token{10, 9}, FalseClaim}, {[]fencing.Token{11}, Kept}, {[]fencing.Token{2}, FalseClaim}} {
		cell := Cell{Verdict: Kept, History: new(history.History)}
		for _, token := range c.tokens {
			cell.History.Granted(history.Span{Token: token})
		}
		if s.inOrder(&cell); cell.Verdict != c.want {
			t.Errorf("round %d: %s (%s), not %s", i, cell.Verdict, cell.Why, c.want)
		}
	}
}

// Goal: what comes again and again on the same servers excuses no second holder.
func TestFaultsOfACrowdExcuseNothingButLateWrites(t *testing.T) {
	g := locker.Guarantees{Exclusion: locker.PromptHolder | locker.DurableServer, Tokens: locker.DurableServer}
	names := make(map[string]bool)
	for _, f := range lasting(everything(), g) {
		names[f.Name] = true
	}
	for name, want := range map[string]bool{
		"suspended holder": true, "dead holder": true, "holder cut off": true, "server stops": true,
		"pause before the write": false, "server forgets": false, "failover": false, "a stranger's release": false, "clock steps forward": false,
	} {
		if names[name] != want {
			t.Errorf("%q can come again and again: %v", name, names[name])
		}
	}
}

// Goal: what a store keeps for a while is waited for, and what it keeps for good is found.
func TestAStoreMustNotHoldMoreAfterACrowd(t *testing.T) {
	for entries, untrue := range map[string]bool{"2": false, "9 9 2": false, "9": true} {
		synctest.Test(t, func(t *testing.T) {
			left := strings.Fields(entries)
			p := &play{ctx: t.Context(), History: new(history.History), System: &System{Stored: func() (s Stored, err error) {
				s.Entries, err = strconv.Atoi(left[0])
				left = left[min(1, len(left)-1):]
				return s, err
			}}}
			came, gone := 0, 0
			var got Stored
			p.noteStored(&got, 2, func() func() { came++; return func() { gone++ } })
			if (p.History.Untrue != "") != untrue || untrue != (got.Entries == 9) || came-gone > 1 {
				t.Errorf("entries %s: noted %v, and it says %q; %d came and %d left", entries, got, p.History.Untrue, came, gone)
			}
		})
	}
}

// healed counts how a broken network is mended.
type healed struct {
	conformance.Proxies
	closed, delivered int
}

func (n *healed) Heal()    { n.closed++ }
func (n *healed) Deliver() { n.delivered++ }

// A connection that ends has two ends, and nobody says which of them hears of it first. If its
// locks end with it, the server may grant them to others before a busy holder knows: no fault
// may do that in a round that does not excuse it.
//
//	a connection with a lock is closed; the server hears of it, and grants the lock to b;
//	a is granted the processor, and hears of it, 15 ms later
func TestNoConnectionWithLocksIsClosedInARoundThatDoesNotExcuseIt(t *testing.T) {
	for _, c := range []struct {
		ends   locker.FreedBy
		breaks locker.Assumptions
		closes bool
	}{
		{locker.FreedByConnection, locker.PromptHolder, false},
		{locker.FreedByConnection, locker.PromptHolder | locker.ServerUp, true},
		{locker.FreedByExpiry, 0, true},
	} {
		net := new(healed)
		s := new(seat)
		s.worker.Store(&worker{Name: "A", Net: net})
		play := &play{History: new(history.History), guarantees: locker.Guarantees{FreedBy: c.ends}, scenario: Scenario{Breaks: c.breaks}}
		crew := newCrew(play, nil)
		crew.seats, play.TTL, play.ctx = []*seat{s}, time.Millisecond, t.Context()
		close(crew.calm)
		rng := rand.New(rand.NewPCG(1, 0))
		for range 100 {
			network(conformance.Network.Cut)(crew, rng)
		}
		if (net.closed > 0) != c.closes || net.delivered == 0 || net.closed+net.delivered != 100 {
			t.Errorf("locks end %v, broken is %v: of 100 networks %d are mended with new connections and %d with the old", c.ends, c.breaks, net.closed, net.delivered)
		}
	}
}

// loner is a crew whose workers are all w, and whose locks have short leases.
func loner(w *worker) *crew {
	c := newCrew(w.play, nil)
	c.ttls = []time.Duration{100 * time.Millisecond}
	for range workers {
		s := new(seat)
		s.worker.Store(w)
		c.seats = append(c.seats, s)
	}
	return c
}

// Goal: whoever is told that a lock is taken is not called a liar for the sake of an attempt that
// nobody knew the outcome of:
//
//	a asks again; its request is on its way, and a gives up, or is killed: it may hold the lock
//	b is granted the lock, and unlocks it
//	a's request arrives, and is granted
//	c is told that the lock is taken, and so that it holds nothing
//	d is told the same, for as long as a's lock lasts
func TestALockThatIsGrantedLateIsNoFalsePromise(t *testing.T) {
	for _, killed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, next := attempts(t, time.Second, report{}), attempts(t, time.Second, report{})
			c, late, asked := loner(a), "", make(map[string]int)
			locked := make(map[string]bool)
			next.play = a.play
			good := func(w *worker, o order) {
				r := report{ID: o.ID, Kind: kindGranted, Name: o.Name, Lock: o.ID}
				switch {
				case o.Verb == "unlock":
					r.Kind, locked[o.Name] = kindFreed, o.Name == late
				case locked[o.Name]:
					r.Kind, r.Err, r.Taken, r.Nothing = kindRefused, "taken", true, true
				default:
					locked[o.Name] = true
				}
				if asked[o.Name]++; asked[o.Name] == 20 {
					close(c.calm)
				}
				w.hear(r)
			}
			next.out = newLines(ordersFunc(func(o order) { good(next, o) }))
			a.out = newLines(ordersFunc(func(o order) {
				if len(asked) == 0 || o.Verb == "unlock" { // the first time all is well
					good(a, o)
					return
				}
				late = o.Name
				for _, s := range c.seats {
					s.worker.Store(next)
				}
				if killed {
					close(a.gone)
					return
				}
				a.hear(report{ID: o.ID, Kind: kindRefused, Err: "unknown", Unknown: true})
			}))
			c.lone("n", rand.New(rand.NewPCG(1, 0)))
			if untrue := a.play.History.Untrue; untrue != "" || asked[late] != 2 || len(a.play.names) != 2 {
				t.Errorf("killed: %v: %q may be locked, and then asked for are %v, noted %q: %s", killed, late, asked, a.play.names, untrue)
			}
		})
	}
}

// Goal: a name is asked for again only if nobody can have left it locked.
func TestWhatMayHaveBeenLeftLockedIsNotSurelyFree(t *testing.T) {
	granted, freed := report{Kind: kindGranted, Name: "n", Token: 1}, report{Kind: kindFreed}
	refused := func(r report) report { r.Kind, r.Err = kindRefused, "refused"; return r }
	unknown, taken := refused(report{Unknown: true, NoStore: true}), refused(report{Taken: true, Nothing: true})
	failed, nothing := report{Kind: kindFreed, Err: "unknown"}, refused(report{NoStore: true, Nothing: true})
	for _, c := range []struct {
		name    string
		answers []report
		free    bool
	}{
		{"unlocked", []report{granted, freed}, true},
		{"perhaps unlocked", []report{granted, failed}, false},
		{"perhaps granted", []report{unknown}, false},
		{"nothing held, as the next shows", []report{nothing, taken, granted, freed}, true},
		{"nothing held, but perhaps by the next", []report{nothing, granted, failed}, false},
		{"nothing held, but perhaps granted to the next", []report{nothing, unknown}, false},
		{"nothing held by either", []report{nothing, nothing}, true},
	} {
		w := attempts(t, time.Second, c.answers...)
		if free := loner(w).giveUpSoon("n", w, w, rand.New(rand.NewPCG(1, 0))); free != c.free || w.play.History.Untrue != "" {
			t.Errorf("%s: surely free: %v %s", c.name, free, w.play.History.Untrue)
		}
	}
}

// Goal: a promise that an attempt holds nothing is judged, unless a server may have forgotten it.
// It refuses a request that comes late for so long as its clock says:
//
//	a's request is on its way; a gives up, and the server is told to refuse it for a minute
//	the server's clock steps forward by an hour
//	a's request arrives, and is granted
func TestAPromiseThatAServerMayForgetIsExcused(t *testing.T) {
	const clocks = locker.SteadyClocks
	for _, c := range []struct {
		breaks, leans locker.Assumptions
		excused       bool
	}{
		{locker.PromptHolder, locker.PromptHolder | clocks, false},
		{clocks, locker.PromptHolder, false},
		{clocks, locker.PromptHolder | clocks, true},
		{locker.DurableServer, 0, true},
		{locker.DurableReplica, 0, true},
	} {
		nothing := report{Kind: kindRefused, Err: "silence", NoStore: true, Nothing: true}
		taken := report{Kind: kindRefused, Err: "taken", Taken: true, Nothing: true}
		w := attempts(t, time.Second, nothing, taken)
		w.play.scenario.Breaks, w.play.guarantees.Exclusion = c.breaks, c.leans
		free := loner(w).giveUpSoon("n", w, w, rand.New(rand.NewPCG(1, 0)))
		if excused := w.play.History.Untrue == ""; excused != c.excused || free {
			t.Errorf("broken is %v, it assumes %v: excused: %v; surely free: %v", c.breaks, c.leans, excused, free)
		}
	}
}

// Goal: a round that somebody has interrupted is neither counted nor told.
func TestARoundThatIsCutOffDoesNotCount(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	told := 0
	set := Settings{Done: func(Cell) { told++ }}.filled()
	s := &soak{servers: &servers{set: set, subject: Subject{Name: "it", Start: func(*Lab) (*System, error) { return &System{}, nil }}}, how: Soaking{For: time.Hour}}
	defer s.servers.close()
	s.rounds(ctx, func(seed uint64) Scenario {
		return Scenario{Name: "round", play: func(p *play) {
			if seed == 2 {
				interrupt()
				p.Sleep(time.Hour)
			}
		}}
	})
	if s.Rounds != 2 || told != 2 || len(s.Kept) != 1 || s.Kept[0].Verdict != Kept {
		t.Errorf("%d rounds, %d of them told, and kept is %+v", s.Rounds, told, s.Kept)
	}
}
