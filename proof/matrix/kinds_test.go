package matrix

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// atOnce is a history of two who believed at the same time, the second a little later.
func atOnce(a, b Span) *History {
	h := &History{Ended: 10 * second}
	for i, s := range []Span{a, b} {
		s.Worker, s.id = string(rune('A'+i)), 1
		s.Asked, s.From, s.Until = locker.Instant(i+1)*second, locker.Instant(i+1)*second+1, locker.Instant(i+5)*second
		h.granted(s)
	}
	return h
}

func TestOnlyThoseWhoExcludeEachOtherMustNotHoldAtOnce(t *testing.T) {
	for _, c := range []struct {
		name          string
		first, second Span
		want          Verdict
	}{
		{"two readers", Span{Name: "n", Token: 1, Shared: true}, Span{Name: "n", Token: 2, Shared: true}, Kept},
		{"a writer beside a reader", Span{Name: "n", Token: 1, Shared: true}, Span{Name: "n", Token: 2}, FalseClaim},
		{"a reader beside a writer", Span{Name: "n", Token: 1}, Span{Name: "n", Token: 2, Shared: true}, FalseClaim},
		{"two slots", Span{Name: "n/0", Token: 1}, Span{Name: "n/1", Token: 2}, Kept},
		{"two slots, with tokens of their own", Span{Name: "n/0", Token: 2}, Span{Name: "n/1", Token: 1}, Kept},
		{"one slot", Span{Name: "n/0", Token: 1}, Span{Name: "n/0", Token: 2}, FalseClaim},
	} {
		if got, why := judge(locker.Guarantees{}, 0, atOnce(c.first, c.second)); got != c.want {
			t.Errorf("%s: %s (%s), not %s", c.name, got, why, c.want)
		}
	}
}

func TestReadersNumbersAreInOrderLeaseByLease(t *testing.T) {
	for _, c := range []struct {
		name  string
		spans []Span
		want  bool // in order
	}{
		{"a reader after a reader", []Span{{Worker: "A", Token: 1, Asked: 1, From: 2}, {Worker: "C", Token: 2, Asked: 3, From: 4}}, true},
		{"with a smaller number", []Span{{Worker: "A", Token: 2, Asked: 1, From: 2}, {Worker: "C", Token: 1, Asked: 3, From: 4}}, false},
		{"with the same number", []Span{{Worker: "A", Token: 1, Asked: 1, From: 2}, {Worker: "C", Token: 1, Asked: 3, From: 4}}, false},
		{"with the number of one who has left", []Span{{Worker: "A", Token: 1, Asked: 1, From: 2, Until: 3}, {Worker: "C", Token: 1, Asked: 1, From: 4}}, true},
		{"with the number of one who leaves", []Span{{Worker: "A", Token: 1, Asked: 1, From: 2, Until: 5}, {Worker: "C", Token: 1, Asked: 1, From: 4}}, false},
		{"answers in another order", []Span{{Worker: "A", Token: 2, Asked: 1, From: 3, Until: 4}, {Worker: "C", Token: 1, Asked: 2, From: 5}}, true},
		{"joined, and noted in another order", []Span{{Worker: "A", Token: 1, Asked: 1, From: 3}, {Worker: "A", Token: 1, Asked: 2, From: 2}}, true},
		{"joined later", []Span{{Worker: "A", Token: 1, Asked: 1, From: 2}, {Worker: "C", Token: 2, Asked: 3, From: 4}, {Worker: "A", Token: 1, Asked: 5, From: 6}}, true},
	} {
		h := &History{Ended: 10}
		for _, s := range c.spans {
			s.Name, s.Shared = "n", true
			h.granted(s)
		}
		if _, _, disorder := h.Disorder(); disorder == c.want {
			t.Errorf("%s: in order is %v", c.name, !disorder)
		}
	}
}

// Goal: an answer that a network held back while the server forgot the lock and granted others is
// late, and its token is not out of order. Without such an excuse it is.
func TestALateAnswerIsNoDisorderAfterAServerForgot(t *testing.T) {
	g := locker.Guarantees{Exclusion: locker.DurableServer}
	for broken, want := range map[locker.Assumptions]Verdict{locker.DurableServer: Kept, 0: FalseClaim} {
		h := &History{Ended: 10 * second}
		h.granted(Span{Worker: "A", Name: "n", Token: 2, Asked: 3 * second, From: 4 * second, Until: 5 * second})
		h.granted(Span{Worker: "D", Name: "n", Token: 1, Asked: 1 * second, From: 6 * second, Until: 7 * second})
		if got, why := judge(g, broken, h); got != want {
			t.Errorf("%v is broken: %s (%s), not %s", broken, got, why, want)
		}
	}
}

// Goal: locks that were over when their answers came say nothing about the order of grants. A wait
// in the server, as that of a transaction, may be longer than the TTL, and answers may overtake.
func TestLocksThatWereOverWhenTheirAnswersCameAreInNoDisorder(t *testing.T) {
	h := &History{Ended: 10 * second}
	h.granted(Span{Worker: "B", Name: "n", Token: 2, id: 1, Asked: 1 * second, From: 6 * second, Until: 4 * second})
	h.granted(Span{Worker: "B", Name: "n", Token: 1, id: 2, Asked: 2 * second, From: 7 * second, Until: 5 * second})
	if got, why := judge(locker.Guarantees{}, 0, h); got != Kept {
		t.Errorf("%s (%s), not %s", got, why, Kept)
	}
}

// lateBy is a history in which A acts after B was granted the lock and claimed the storage.
func lateBy(a, b Write) *History {
	h, now := &History{}, locker.Now()
	a.Worker, a.Name, b.Worker, b.Name = "A", "n", "B", "n"
	h.granted(Span{Worker: "A", Name: "n", Token: a.Token, Shared: a.Shared, Asked: now, From: now + 1, Until: now + 2})
	h.claim(a)
	h.granted(Span{Worker: "B", Name: "n", Token: b.Token, Shared: b.Shared, Asked: now + 3, From: now + 4, Until: now + 5})
	h.claim(b)
	a.At = now + 6
	h.write(a)
	return h
}

func TestALateReadIsStaleAndRefusedAsALateWriteIs(t *testing.T) {
	g := locker.Guarantees{Exclusion: locker.PromptHolder}
	for _, c := range []struct {
		name           string
		a, b           Write
		stale, refused bool
		want           Verdict
	}{
		{"a read after a writer's claim", Write{Token: 1, Shared: true}, Write{Token: 2}, true, true, Fenced},
		{"a write after a reader's claim", Write{Token: 1}, Write{Token: 2, Shared: true}, true, true, Fenced},
		{"a read after a reader's claim", Write{Token: 1, Shared: true}, Write{Token: 2, Shared: true}, false, false, Kept},
		{"a write, and the reader's number is smaller", Write{Token: 2}, Write{Token: 1, Shared: true}, true, false, FalseClaim},
	} {
		h := lateBy(c.a, c.b)
		if w := h.Writes[0]; w.Stale != c.stale || w.Refused != c.refused {
			t.Errorf("%s: stale %v, refused %v", c.name, w.Stale, w.Refused)
		}
		if got, why := judge(g, locker.PromptHolder, h); got != c.want {
			t.Errorf("%s: %s (%s), not %s", c.name, got, why, c.want)
		}
		if read := strings.Contains(h.Text(), "A reads with"); read != c.a.Shared {
			t.Errorf("%s: the text is\n%s", c.name, h.Text())
		}
	}
}

// Goal: guards that look right are found, whatever the holders do.
func TestAGuardWithoutBothMarksIsNotLinearizable(t *testing.T) {
	reader := func(n fencing.Token, refused bool) Write {
		return Write{Name: "n", Token: n, Shared: true, Refused: refused}
	}
	writer := func(n fencing.Token, refused bool) Write { return Write{Name: "n", Token: n, Refused: refused} }
	for _, c := range []struct {
		name   string
		writes []Write
		want   bool
	}{
		{"two marks", []Write{reader(1, false), reader(3, false), reader(1, false), writer(2, true), writer(4, false), reader(3, true)}, true},
		{"one mark, which readers raise", []Write{reader(1, false), reader(2, false), reader(1, true)}, false},
		{"a mark of writers alone", []Write{writer(1, false), reader(2, false), writer(1, false)}, false},
		{"no guard for readers", []Write{reader(1, false), writer(2, false), reader(1, false)}, false},
	} {
		h := new(History)
		for i, w := range c.writes {
			h.ops = append(h.ops, writeOp{w, locker.Instant(2 * i), locker.Instant(2*i + 1)})
		}
		if got := h.Linearizable(); got != c.want {
			t.Errorf("%s: linearizable is %v", c.name, got)
		}
	}
}

// Goal: what is not declared is shown, and starts no server.
func TestAKindThatIsNotDeclaredIsShownAsMissing(t *testing.T) {
	for _, c := range []struct {
		g      locker.Guarantees
		kinds  [2]locker.Kind
		played bool
	}{
		{locker.Guarantees{}, [2]locker.Kind{}, true},
		{locker.Guarantees{Slots: true}, [2]locker.Kind{locker.Shared, locker.Exclusive}, false},
		{locker.Guarantees{Slots: true}, [2]locker.Kind{locker.Exclusive, locker.Shared}, false},
		{locker.Guarantees{Shared: true}, [2]locker.Kind{locker.Exclusive, locker.Shared}, true},
		{locker.Guarantees{Shared: true}, [2]locker.Kind{locker.Slots, locker.Slots}, false},
	} {
		started := false
		sub := Subject{Name: "it", Guarantees: c.g, Start: func(*Lab) (*System, error) { started = true; return nil, errors.New("no") }}
		cell := Run(t.Context(), Settings{}, []Subject{sub}, []Scenario{{Name: "x", Kinds: c.kinds}}).Cells[0]
		if started != c.played || (cell.Word() == noSuchKind) == c.played || (cell.Verdict == Skipped) == c.played {
			t.Errorf("%+v: started %v, shown as %q", c, started, cell.Word())
		}
	}
}

// Goal: a declaration that has a kind too many is false, and is found at once.
func TestAKindThatIsDeclaredAndRefusedIsAFalseClaim(t *testing.T) {
	for kind, want := range map[locker.Kind]bool{locker.Shared: true, locker.Exclusive: false} {
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
		w := &worker{held: make(map[int]numbered)}
		got, err := w.keep(order{Name: "n", Kind: locker.Slots, Slots: 2}, inSlot{slot: slot})
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

// Goal: the short table hides no other kind of lock that broke.
func TestBriefShowsAKindThatWentAnotherWay(t *testing.T) {
	for verdict, hidden := range map[Verdict]bool{Fenced: true, Skipped: true, Kept: false, FalseClaim: false, Broken: false} {
		m := found(locker.Guarantees{}, Fenced)
		m.Scenarios = append(m.Scenarios[:1], Scenario{Name: "pause (slots)", Breaks: locker.PromptHolder, like: "pause"})
		m.Cells = append(m.Cells, Cell{Scenario: "pause (slots)", Subject: "it", Verdict: verdict})
		var text strings.Builder
		m.WriteBrief(&text, "page", m.Subjects)
		if shown := strings.Contains(text.String(), "[pause (slots)](page#pause)"); shown == hidden {
			t.Errorf("%s: shown is %v in\n%s", verdict, shown, &text)
		}
	}
}

// Goal: every kind is played beside every fault that is to be played with kinds.
func TestScenariosWithKindsAreThereForEachName(t *testing.T) {
	if all := Scenarios(); len(withKinds(all)) != len(mixed)*len(mixes) {
		t.Errorf("%d scenarios for %d names and %d mixes", len(withKinds(all)), len(mixed), len(mixes))
	}
}

// Goal: whoever comes next excludes the one before.
func TestWorkersAskForTheKindsInTurn(t *testing.T) {
	p := &Play{scenario: Scenario{Kinds: [2]locker.Kind{locker.Shared, locker.Exclusive}}}
	for worker, want := range map[string]locker.Kind{"A": locker.Shared, "A2": locker.Shared, "B": locker.Exclusive, "C": locker.Shared, "D": locker.Exclusive} {
		if got := p.kind(worker); got != want {
			t.Errorf("%s asks for the kind %v, not %v", worker, got, want)
		}
	}
}
