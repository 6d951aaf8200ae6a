package matrix

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/internal/specimen"
	"github.com/lockstile/locker/internal/testserver"
)

// Goal: who has written a wrong address is told so once, and not that a promise was broken. Method: nobody
// listens there. One of the scenarios breaks its servers before anybody locks.
func TestASubjectThatCannotBeReachedIsNotPlayed(t *testing.T) {
	if testing.Short() {
		t.Skip("a worker asks for a minute: make proof runs it")
	}
	nothing := func() error { return nil }
	sub := Subject{Name: "it", Guarantees: new(specimen.Locker).Guarantees(), Start: func(*Lab) (*System, error) {
		return &System{
			Client:     func() (string, conformance.Network, error) { return "localhost:1", conformance.Proxies{}, nil },
			SkewClocks: nothing, Narrow: func(conformance.Network, int) error { return nil },
		}, nil
	}}
	var some []Scenario
	for _, sc := range Scenarios() {
		if sc.Name == "herd" || sc.Name == "pause before the write" || sc.Name == "servers disagree" {
			some = append(some, sc)
		}
	}
	for _, c := range Run(t.Context(), Settings{Start: testserver.StartChild}, []Subject{sub}, some).Cells {
		if c.Verdict != NotPlayed || !strings.Contains(c.Why, "refused") || len(c.History.Marks) > 1 {
			t.Errorf("%s: %s (%s)\n%s", c.Scenario, c.Verdict, c.Why, c.History.Text())
		}
	}
}

// Goal: what a lock does wrong is not put down to a store that cannot be reached.
func TestOnlyAStoreThatIsSilentForEverIsNotReached(t *testing.T) {
	no := report{Kind: kindRefused, Err: "connection refused", NoStore: true}
	for _, c := range []struct {
		name    string
		answers []report
		reached bool
	}{
		{"granted", []report{{Kind: kindGranted, Name: "n", Token: 1}, {}}, true},
		{"granted, and not given back", []report{{Kind: kindGranted, Name: "n", Token: 1}, {Kind: kindFreed, Err: "lost"}}, true},
		{"slow to start", []report{no, no, {Kind: kindGranted, Name: "n", Token: 1}, {}}, true},
		{"taken for ever", []report{no, {Kind: kindRefused, Err: "taken", Taken: true}}, true},
		{"refused for ever, and the store is there", []report{{Kind: kindRefused, Err: "mismatch"}}, true},
		{"silent for ever", []report{no}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, begin := attempts(t, time.Second, c.answers...), time.Now()
			err := try(w.reach)
			if (err == nil) != c.reached || err != nil && !strings.Contains(err.Error(), no.Err) {
				t.Errorf("%s: %v", c.name, err)
			}
			if errors.As(err, new(*standstill)) {
				t.Errorf("%s: the error passes for a result of the scenario", c.name)
			}
			if n := len(w.play.History.Marks); n > 2 {
				t.Errorf("%s: that takes %d lines to tell", c.name, n)
			}
			if took := time.Since(begin); !c.reached && took < patience {
				t.Errorf("%s: given up after %v", c.name, took)
			}
		})
	}
}

// Goal: nothing is played on servers that could not be reached, and no fault there counts.
func TestNoScenarioIsPlayedOnServersThatCannotBeReached(t *testing.T) {
	s := &servers{set: Settings{}.filled(), subject: Subject{Name: "it", Start: func(*Lab) (*System, error) { return &System{}, nil }}}
	defer s.close()
	s.asked.Do(func() { s.unreached = errors.New("nobody listens") })
	for _, breaks := range []locker.Assumptions{0, locker.DurableServer} {
		sc := Scenario{Name: "it", Breaks: breaks, play: func(p *play) {
			p.Break("the servers forget", func() error { return nil })
			_, err := p.startAt(p.ctx, "A", "url", nil)
			p.must(err)
		}}
		if c := s.once(t.Context(), sc, "n"); c.Verdict != NotPlayed || c.Why != "nobody listens" {
			t.Errorf("breaks %v: %s (%s)", breaks, c.Verdict, c.Why)
		}
	}
}
