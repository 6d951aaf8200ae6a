package matrix

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// updated is a history of elements that were confirmed, and of those that are there in the
// end. The first of them was added before anybody was paused.
func updated(unguarded, guarded []int, final Sets) *History {
	return &History{Updates: &Updates{Confirmed: Sets{unguarded, guarded}, Final: final, Calm: 1}}
}

// Goal: what the storage has in the end is judged, whatever is known of the holders. Here
// nothing is known of them.
func TestALostUpdateIsJudgedByWhatWasDeclared(t *testing.T) {
	all := []int{1, 2, 3}
	kept := updated(all, all, Sets{all, all})
	bare := updated(all, []int{1, 3}, Sets{[]int{1, 3}, []int{3, 1}})
	guarded := updated(all, all, Sets{all, []int{1, 3}})
	calm := updated(all, all, Sets{[]int{2, 3}, all})
	leans := locker.Guarantees{Exclusion: locker.PromptHolder}
	for _, c := range []struct {
		name string
		g    locker.Guarantees
		h    *History
		want Verdict
	}{
		{"nothing lost", locker.Guarantees{}, kept, Kept},
		{"without the guard, as declared", leans, bare, Fenced},
		{"without the guard, and it leans on something else", locker.Guarantees{Exclusion: locker.DurableServer}, bare, FalseClaim},
		{"without the guard, and exclusion is not promised", locker.Guarantees{Exclusion: locker.Unpromised}, bare, Fenced},
		{"with the guard", leans, guarded, FalseClaim},
		{"with the guard, and tokens lean on it", locker.Guarantees{Exclusion: locker.PromptHolder, Tokens: locker.PromptHolder}, guarded, Broken},
		{"before anybody was paused", leans, calm, FalseClaim},
		{"before anybody was paused, and exclusion is not promised", locker.Guarantees{Exclusion: locker.Unpromised}, calm, Fenced},
	} {
		if got, why := judge(c.g, locker.PromptHolder, c.h); got != c.want {
			t.Errorf("%s: %s (%s), not %s", c.name, got, why, c.want)
		}
	}
	bare.Tokenless = true
	if got, why := judge(leans, locker.PromptHolder, bare); got != Broken {
		t.Errorf("without a token: %s (%s), not %s", got, why, Broken)
	}
}

func TestACellSaysHowManyUpdatesWereLost(t *testing.T) {
	const told = "updates lost without the guard: 1 of 3; with it: 0 of 2"
	h := updated([]int{1, 2, 3}, []int{1, 3}, Sets{[]int{1, 3}, []int{1, 3}})
	p := &Play{History: h, scenario: Scenario{Name: "set", Breaks: locker.PromptHolder}}
	sub := Subject{Name: "it", Guarantees: locker.Guarantees{Exclusion: locker.PromptHolder}}
	c := p.cell(Cell{Scenario: "set", Subject: "it"}, sub, nil)
	if c.Verdict != Fenced || !strings.HasSuffix(c.Why, "; "+told) {
		t.Errorf("%s (%s)", c.Verdict, c.Why)
	}
	m := &Matrix{Subjects: []Subject{sub}, Scenarios: []Scenario{{Name: "set"}}, Cells: []Cell{c}}
	var text, markdown, html strings.Builder
	m.WriteText(&text)
	m.WriteMarkdown(&markdown)
	if err := m.WriteHTML(&html); err != nil {
		t.Fatal(err)
	}
	for page, want := range map[string]string{
		text.String(): "\nit, set: " + told + "\n", markdown.String(): " | fenced; " + told + " |", html.String(): ">fenced; " + told + "</a>",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not in\n%s", want, page)
		}
	}
	h.Tokenless = true
	if want := "updates lost without the guard: 1 of 3; no token, so no guard"; h.updates() != want {
		t.Errorf("without a token: %q, not %q", h.updates(), want)
	}
}

// Goal: the storage with the guard takes what the guard accepts, and the other one takes
// everything. Method: A and B read the same, B writes first, and then A writes with its old token.
func TestOnlyTheStorageWithAGuardRefusesAStaleSet(t *testing.T) {
	for _, c := range []struct {
		name            string
		tokenless       bool
		tokenOfB        fencing.Token
		guarded, wanted []int // that are there, and that were confirmed
	}{
		{"tokens in order", false, 2, []int{2}, []int{2}},
		{"one token for all", false, 1, []int{1}, []int{2, 1}},
		{"no token", true, 2, nil, nil},
	} {
		h := &History{Tokenless: c.tokenless}
		h.granted(Span{Worker: "A", Name: "n", Token: 1, From: 1, Until: 2})
		h.granted(Span{Worker: "B", Name: "n", Token: c.tokenOfB, From: 3, Until: 4})
		read := h.read()
		ofA, ofB := read.with(1), read.with(2)
		h.put(Write{Worker: "B", Name: "n", Token: c.tokenOfB, Value: 2, Adds: true, At: 5}, &ofB)
		h.put(Write{Worker: "A", Name: "n", Token: 1, Value: 1, Adds: true, At: 6}, &ofA)
		h.put(Write{Worker: "B", Name: "n", Token: c.tokenOfB, Value: 7, At: 7}, nil) // no set is written
		h.found(h.read(), 0)
		u := h.Updates
		if !same(u.Final.Unguarded, []int{1}) || !same(u.Confirmed.Unguarded, []int{2, 1}) {
			t.Errorf("%s: without a guard there is %v of %v", c.name, u.Final.Unguarded, u.Confirmed.Unguarded)
		}
		if !same(u.Final.Guarded, c.guarded) || !same(u.Confirmed.Guarded, c.wanted) {
			t.Errorf("%s: with a guard there is %v of %v, not %v of %v", c.name, u.Final.Guarded, u.Confirmed.Guarded, c.guarded, c.wanted)
		}
	}
}

func same(a, b []int) bool { return len(missing(a, b))+len(missing(b, a)) == 0 && len(a) == len(b) }

// Goal: nobody reads the set between the check of a write and the write. Method: the check
// cannot end, and all the while the storage cannot be read.
func TestACheckAndItsWriteAreOneStep(t *testing.T) {
	h, done := new(History), make(chan struct{})
	h.mu.Lock()
	go func() { h.put(Write{Worker: "A", Name: "n", Token: 1, Value: 1}, &Sets{}); close(done) }()
	for end := time.Now().Add(patience / 4); h.sets.mu.TryLock(); time.Sleep(time.Millisecond) {
		h.sets.mu.Unlock()
		if time.Now().After(end) {
			t.Fatal("the storage can be read while a write is checked")
		}
	}
	h.mu.Unlock()
	<-done
}

// Goal: two who have read the same write different sets.
func TestASetThatWasReadIsNotChangedByItsReaders(t *testing.T) {
	read := Sets{append(make([]int, 0, 9), 1), append(make([]int, 0, 9), 1)}
	a, b := read.with(2), read.with(3)
	if !same(a.Unguarded, []int{1, 2}) || !same(a.Guarded, []int{1, 2}) || !same(b.Unguarded, []int{1, 3}) || !same(b.Guarded, []int{1, 3}) {
		t.Errorf("one writes %v, the other %v", a, b)
	}
}

// Goal: a check that cannot fail is none.
func TestAScenarioInWhichNobodyLosesAnUpdateHasShownNothing(t *testing.T) {
	all := []int{1, 2}
	kept, lost := updated(all, all, Sets{all, all}), updated(all, all, Sets{[]int{1}, all})
	leaning, sound := locker.Guarantees{Exclusion: locker.PromptHolder}, locker.Guarantees{}
	for _, c := range []struct {
		name   string
		first  *History
		second *History
		g      locker.Guarantees // of the second; the first leans on nothing
		shown  bool
	}{
		{"one that may has lost", kept, lost, leaning, true},
		{"none has lost", kept, kept, leaning, false},
		{"one has lost that must not", lost, kept, leaning, true},
		{"none may lose", kept, kept, sound, true},
		{"exclusion is not promised", kept, kept, locker.Guarantees{Exclusion: locker.Unpromised}, false},
		{"the set was never read", new(History), new(History), leaning, true},
		{"nothing was played", nil, nil, leaning, true},
	} {
		m := &Matrix{
			Subjects:  []Subject{{Name: "first"}, {Name: "second", Guarantees: c.g}},
			Scenarios: []Scenario{{Name: "set", Breaks: locker.PromptHolder}},
			Cells: []Cell{
				{Scenario: "set", Subject: "first", Verdict: Kept, History: c.first},
				{Scenario: "set", Subject: "second", Verdict: Kept, History: c.second},
				{Scenario: "herd", Subject: "second", Verdict: Kept, History: lost},
			},
		}
		m.nothingLost()
		if m.Cells[0].Verdict != Kept || m.Cells[2].Verdict != Kept || (m.Cells[1].Verdict == Kept) != c.shown {
			t.Errorf("%s: %s, %s, %s", c.name, m.Cells[0].Verdict, m.Cells[1].Verdict, m.Cells[2].Verdict)
		}
		m.Cells[1].Verdict = FalseClaim
		if m.nothingLost(); m.Cells[1].Verdict != FalseClaim {
			t.Errorf("%s: a false claim is now %s", c.name, m.Cells[1].Verdict)
		}
	}
}

// Goal: an update counts as confirmed if its commit was, or the storage has taken it.
func TestAnUpdateInATransactionIsConfirmedByItsCommit(t *testing.T) {
	failed := report{Err: "the connection has ended"}
	for _, c := range []struct {
		add, unlock   report
		transactional bool
		confirmed     bool
	}{
		{report{}, report{}, true, true},
		{report{}, failed, true, false},
		{failed, report{}, true, false},
		{report{}, report{}, false, false}, // that is for put to say
	} {
		w := attempts(t, time.Second, c.add, c.unlock)
		if c.transactional {
			w.play.System.Register = func(string) ([]Entry, error) { return nil, nil }
		}
		(&adders{Play: w.play}).add(WorkerLock{Worker: w}, order{})
		if got := w.play.History.sets.confirmed; (len(got.Unguarded) == 1) != c.confirmed || (len(got.Guarded) == 1) != c.confirmed {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// Goal: a reader that has lost its lock does not say what is there in the end.
func TestTheSetIsReadUnderALockThatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		granted, there := report{Kind: kindGranted}, &Sets{[]int{4}, []int{5}}
		w := attempts(t, time.Second, granted, report{Err: "lost", Sets: &Sets{}}, report{}, granted, report{Sets: there}, report{})
		a := &adders{Play: w.play, workers: []*Worker{w}, before: 3}
		a.readAll()
		if u := w.play.History.Updates; !same(u.Final.Unguarded, there.Unguarded) || !same(u.Final.Guarded, there.Guarded) || u.Calm != 3 {
			t.Errorf("%+v", u)
		}
	})
}

// Goal: a reader sees which element was lost.
func TestTheElementOfAWriteIsShown(t *testing.T) {
	h := updated([]int{3}, []int{3}, Sets{})
	h.put(Write{Worker: "A", Name: "n", Token: 1, Value: 3, Adds: true, At: 1}, &Sets{})
	h.put(Write{Worker: "A", Name: "n", Token: 1, Value: 4, At: 2}, nil)
	if text := h.Text(); !strings.Contains(text, "A writes element 3 with token 1: in turn") || !strings.Contains(text, "A writes with token 1: in turn") {
		t.Errorf("the text is\n%s", text)
	}
	if drawn := h.Timeline(); !strings.Contains(drawn, ">write element 3, token 1</text>") {
		t.Errorf("the timeline is\n%s", drawn)
	}
}

// Goal: Run asks that question.
func TestRunDoesNotCallKeptWhatShowedNothing(t *testing.T) {
	sub := Subject{Name: "it", Guarantees: locker.Guarantees{Exclusion: locker.PromptHolder}, Start: func(*Lab) (*System, error) { return &System{}, nil }}
	sc := Scenario{Name: "set", Breaks: locker.PromptHolder, Play: func(p *Play) { p.History.found(Sets{}, 0) }}
	if c := Run(t.Context(), Settings{}, []Subject{sub}, []Scenario{sc}).Cells[0]; c.Verdict != NotPlayed {
		t.Errorf("%s (%s)", c.Verdict, c.Why)
	}
}

// Method: a lock that is lost while its holder works. Only a careful holder notices.
func TestOnlyACarefulHolderLooksAgainBeforeItWrites(t *testing.T) {
	for _, c := range []struct {
		o      order
		end    time.Duration // of the lock
		writes bool
		failed bool
	}{
		{order{Value: 3, Work: time.Second}, time.Minute, true, false},
		{order{Value: 3, Work: time.Second}, time.Millisecond, true, false},
		{order{Value: 3, Work: time.Second, Careful: true}, time.Minute, true, false},
		{order{Value: 3, Work: time.Second, Careful: true}, time.Millisecond, false, true},
		{order{Value: 3}, 0, false, true},
		{order{}, time.Minute, false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var told bytes.Buffer
			w := &worker{out: newLines(&told), held: make(map[int]numbered), peer: shortLived{}}
			w.held[1] = numbered{Holding: endsAfter{shortLived{}, time.Now().Add(c.end)}, number: 1}
			c.o.Lock, c.o.Sets = 1, &Sets{[]int{1, 2}, []int{2}}
			var r report
			w.add(t.Context(), c.o, &r)
			if wrote := strings.Contains(told.String(), `"sets":{"unguarded":[1,2,3],"guarded":[2,3]}`); wrote != c.writes || (told.Len() > 0) != c.writes {
				t.Errorf("%+v, lost after %v: it says %s", c.o, c.end, &told)
			}
			if (r.Err != "") != c.failed {
				t.Errorf("%+v, lost after %v: %q", c.o, c.end, r.Err)
			}
			if c.o.Value == 0 && (r.Sets == nil || !same(r.Sets.Unguarded, []int{1, 2}) || !same(r.Sets.Guarded, []int{2})) {
				t.Errorf("a reader finds %v", r.Sets)
			}
		})
	}
}

// endsAfter is a lock that is held until then.
type endsAfter struct {
	shortLived
	until time.Time
}

func (e endsAfter) Err() error {
	if time.Now().Before(e.until) {
		return nil
	}
	return locker.ErrLost
}

// Goal: the holder of a transaction reads and writes in it.
func TestTheSetOfATransactionIsReadAndWrittenThere(t *testing.T) {
	tx := &inside{there: Sets{[]int{7}, []int{8}}}
	var told bytes.Buffer
	w := &worker{out: newLines(&told), held: make(map[int]numbered), peer: tx}
	w.held[1] = numbered{Holding: endsAfter{shortLived{}, time.Now().Add(time.Hour)}, number: 1}
	var r report
	w.add(t.Context(), order{Lock: 1, Value: 9, Sets: &Sets{}}, &r)
	if !same(tx.there.Unguarded, []int{7, 9}) || !same(tx.there.Guarded, []int{8, 9}) || told.Len() > 0 || r.Err != "" {
		t.Errorf("there is %v; it says %s, %s", tx.there, &told, r.Err)
	}
	tx.err = fencing.ErrStale
	if w.add(t.Context(), order{Lock: 1, Value: 10, Sets: &Sets{}}, &r); r.Err == "" || len(tx.there.Guarded) != 2 {
		t.Errorf("a read that is refused is followed by %v, %q", tx.there, r.Err)
	}
}

// inside is a Writer with a set.
type inside struct {
	shortLived
	there Sets
	err   error
}

func (i *inside) Write(context.Context, string, fencing.Token, int) error { return nil }

func (i *inside) Sets(context.Context, string, fencing.Token) (Sets, error) { return i.there, i.err }

func (i *inside) Add(_ context.Context, _ string, _ fencing.Token, _ int, s Sets) error {
	i.there = s
	return nil
}
