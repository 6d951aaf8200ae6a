package matrix

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/specimen"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/matrix/internal/judge"
)

// Goal: what is not declared is shown, and starts no server.
func TestAKindThatIsNotDeclaredStartsNoServer(t *testing.T) {
	for _, c := range []struct {
		g      locker.Guarantees
		kinds  [2]locker.Kind
		played bool
	}{
		{locker.Guarantees{}, [2]locker.Kind{}, true},
		{locker.Guarantees{Slots: true}, [2]locker.Kind{locker.KindShared, locker.KindExclusive}, false},
		{locker.Guarantees{Slots: true}, [2]locker.Kind{locker.KindExclusive, locker.KindShared}, false},
		{locker.Guarantees{Shared: true}, [2]locker.Kind{locker.KindExclusive, locker.KindShared}, true},
		{locker.Guarantees{Shared: true}, [2]locker.Kind{locker.KindSlots, locker.KindSlots}, false},
	} {
		started := false
		sub := Subject{Name: "it", Guarantees: c.g, Start: func(*Lab) (*System, error) { started = true; return nil, errors.New("no") }}
		cell := Run(t.Context(), Settings{}, []Subject{sub}, []Scenario{{Name: "x", Kinds: c.kinds, play: func(*play) {}}}).Cells[0]
		if started != c.played || (cell.Why == judge.NoSuchKind) == c.played || (cell.Verdict == Skipped) == c.played {
			t.Errorf("%+v: started %v, skipped for %q", c, started, cell.Why)
		}
	}
}

// Goal: a declaration that has a kind too many is false, and is found at once.
func TestAKindThatIsDeclaredAndRefusedIsAFalseClaim(t *testing.T) {
	for kind, want := range map[locker.Kind]bool{locker.KindShared: true, locker.KindExclusive: false} {
		w := attempts(t, 0, report{Kind: kindRefused, Err: "no", NoKind: true}, report{Kind: kindGranted})
		w.play.scenario.Kinds = [2]locker.Kind{kind, kind}
		_, err := w.persist(w.tell(order{}))
		var still *standstill
		if errors.As(err, &still) != want || (w.play.History.Untrue != "") != want {
			t.Errorf("%v: %v, and untrue is %q", kind, err, w.play.History.Untrue)
		}
	}
}

func TestASlotThatThereIsNotIsNoGrant(t *testing.T) {
	for slot, want := range map[int]string{-1: "", 0: "n/0", 1: "n/1", 2: ""} {
		w := &workerProcess{held: make(map[int]numbered)}
		got, err := w.keep(order{Name: "n", Kind: locker.KindSlots, Slots: 2}, inSlot{slot: slot})
		if (err == nil) != (want != "") || got.resource != want {
			t.Errorf("slot %d: %q, %v", slot, got.resource, err)
		}
	}
}

// inSlot is a lock with a slot, right or wrong.
type inSlot struct {
	shortLived
	slot int
}

func (s inSlot) Slot() int                      { return s.slot }
func (inSlot) SharedToken() fencing.SharedToken { return 0 }

// Goal: every kind is played beside every fault that is to be played with kinds.
func TestScenariosWithKindsAreThereForEachName(t *testing.T) {
	if all := Scenarios(); len(withKinds(all)) != len(mixed)*len(mixes) {
		t.Errorf("%d scenarios for %d names and %d mixes", len(withKinds(all)), len(mixed), len(mixes))
	}
}

// Goal: whoever comes next excludes the one before.
func TestWorkersAskForTheKindsInTurn(t *testing.T) {
	p := &play{scenario: Scenario{Kinds: [2]locker.Kind{locker.KindShared, locker.KindExclusive}}}
	for worker, want := range map[string]locker.Kind{"A": locker.KindShared, "A2": locker.KindShared, "B": locker.KindExclusive, "C": locker.KindShared, "D": locker.KindExclusive} {
		if got := p.kind(worker); got != want {
			t.Errorf("%s asks for the kind %v, not %v", worker, got, want)
		}
	}
}

// Goal: what is done about one slot must leave the others alone, also where nobody asks for
// them. Method: nothing is done, for longer than their leases are. The workers are those of the example.
func TestWhoeverHasAnotherSlotMustKeepIt(t *testing.T) {
	wait := Scenario{Name: "nothing (slots)", Kinds: [2]locker.Kind{locker.KindSlots, locker.KindSlots}, play: func(p *play) { p.Sleep(11 * p.TTL) }}
	verdicts := map[string]Verdict{"": Kept, "slots are not renewed": FalseClaim}
	var subjects []Subject
	for flaw := range verdicts {
		subjects = append(subjects, Subject{Name: flaw, Guarantees: new(specimen.Locker).Guarantees(), TTL: time.Second / 2, Start: func(lab *Lab) (*System, error) {
			srv := testserver.Redis(lab)
			return &System{Client: func() (string, conformance.Network, error) {
				ps, err := lab.Proxy(srv.Addr())
				return ps.Addrs() + "#" + flaw, ps, err
			}}, nil
		}})
	}
	for _, c := range Run(t.Context(), Settings{Start: testserver.StartChild}, subjects, []Scenario{wait}).Cells {
		if c.Verdict == Skipped {
			t.Skip(c.Why)
		}
		if want := verdicts[c.Subject]; c.Verdict != want {
			t.Errorf("%q: %s (%s), not %s\n%s", c.Subject, c.Verdict, c.Why, want, c.History.Text())
		}
	}
}
