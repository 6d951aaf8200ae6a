package matrix

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

func sets(unguarded, guarded []int) *history.Sets {
	return &history.Sets{Unguarded: unguarded, Guarded: guarded}
}

func TestACellSaysHowManyUpdatesWereLost(t *testing.T) {
	h := &history.History{Updates: &history.Updates{Confirmed: *sets([]int{1, 2, 3}, []int{1, 3}), Final: *sets([]int{1, 3}, []int{1, 3})}}
	p := &play{History: h, scenario: Scenario{Name: "set", Breaks: locker.PromptHolder}}
	sub := Subject{Name: "it", Guarantees: locker.Guarantees{Exclusion: locker.PromptHolder}}
	verdicts := map[bool]Verdict{false: Fenced, true: Broken}
	for tokenless, told := range map[bool]string{
		false: "; updates lost without the guard: 1 of 3; with it: 0 of 2",
		true:  "; updates lost without the guard: 1 of 3; no token, so no guard",
	} {
		h.Tokenless = tokenless
		if c := p.cell(Cell{Scenario: "set", Subject: "it"}, sub, nil); c.Verdict != verdicts[tokenless] || !strings.HasSuffix(c.Why, told) {
			t.Errorf("%s (%s), not %q", c.Verdict, c.Why, told)
		}
	}
}

// Goal: a check that cannot fail is none.
func TestAScenarioInWhichNobodyLosesAnUpdateHasShownNothing(t *testing.T) {
	all := []int{1, 2}
	updated := func(final *history.Sets) *history.History {
		return &history.History{Updates: &history.Updates{Confirmed: *sets(all, all), Final: *final}}
	}
	kept, lost := updated(sets(all, all)), updated(sets([]int{1}, all))
	assuming, sound := locker.Guarantees{Exclusion: locker.PromptHolder}, locker.Guarantees{}
	for _, c := range []struct {
		name   string
		first  *history.History
		second *history.History
		g      locker.Guarantees // of the second; the first assumes nothing
		shown  bool
	}{
		{"one that may has lost", kept, lost, assuming, true},
		{"none has lost", kept, kept, assuming, false},
		{"one has lost that must not", lost, kept, assuming, true},
		{"none may lose", kept, kept, sound, true},
		{"exclusion is not promised", kept, kept, locker.Guarantees{Exclusion: locker.Unpromised}, false},
		{"the set was never read", new(history.History), new(history.History), assuming, true},
		{"nothing was played", nil, nil, assuming, true},
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
		{report{}, report{}, false, false}, // that is for Put to say
	} {
		w := attempts(t, time.Second, c.add, c.unlock)
		if c.transactional {
			w.play.System.Register = func(string) ([]Entry, error) { return nil, nil }
		}
		(&adders{play: w.play}).add(workerLock{Worker: w}, order{})
		w.play.History.NoteFinal(history.Sets{}, 0)
		if got := w.play.History.Updates.Confirmed; (len(got.Unguarded) == 1) != c.confirmed || (len(got.Guarded) == 1) != c.confirmed {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// Goal: a reader that has lost its lock does not say what is there in the end.
func TestTheSetIsReadUnderALockThatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		granted, there := report{Kind: kindGranted}, sets([]int{4}, []int{5})
		w := attempts(t, time.Second, granted, report{Err: "lost", Sets: new(history.Sets)}, report{}, granted, report{Sets: there}, report{})
		a := &adders{play: w.play, workers: []*worker{w}, before: 3}
		a.readAll()
		if u := w.play.History.Updates; !slices.Equal(u.Final.Unguarded, there.Unguarded) || !slices.Equal(u.Final.Guarded, there.Guarded) || u.Calm != 3 {
			t.Errorf("%+v", u)
		}
	})
}

// Goal: Run asks that question.
func TestRunDoesNotCallKeptWhatShowedNothing(t *testing.T) {
	sub := Subject{Name: "it", Guarantees: locker.Guarantees{Exclusion: locker.PromptHolder}, Start: func(*Lab) (*System, error) { return &System{}, nil }}
	sc := Scenario{Name: "set", Breaks: locker.PromptHolder, play: func(p *play) { p.History.NoteFinal(history.Sets{}, 0) }}
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
			w := &workerProcess{out: newLines(&told), held: make(map[int]numbered), peer: shortLived{}}
			w.held[1] = numbered{Holding: endsAfter{shortLived{}, time.Now().Add(c.end)}, number: 1}
			c.o.Lock, c.o.Sets = 1, sets([]int{1, 2}, []int{2})
			var r report
			w.add(t.Context(), c.o, &r)
			if wrote := strings.Contains(told.String(), `"sets":{"unguarded":[1,2,3],"guarded":[2,3]}`); wrote != c.writes || (told.Len() > 0) != c.writes {
				t.Errorf("%+v, lost after %v: it says %s", c.o, c.end, &told)
			}
			if (r.Err != "") != c.failed {
				t.Errorf("%+v, lost after %v: %q", c.o, c.end, r.Err)
			}
			if c.o.Value == 0 && (r.Sets == nil || !slices.Equal(r.Sets.Unguarded, []int{1, 2}) || !slices.Equal(r.Sets.Guarded, []int{2})) {
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
	w := &workerProcess{out: newLines(&told), held: make(map[int]numbered), peer: tx}
	w.held[1] = numbered{Holding: endsAfter{shortLived{}, time.Now().Add(time.Hour)}, number: 1}
	var r report
	w.add(t.Context(), order{Lock: 1, Value: 9, Sets: new(history.Sets)}, &r)
	if !slices.Equal(tx.there.Unguarded, []int{7, 9}) || !slices.Equal(tx.there.Guarded, []int{8, 9}) || told.Len() > 0 || r.Err != "" {
		t.Errorf("there is %v; it says %s, %s", tx.there, &told, r.Err)
	}
	tx.err = fencing.ErrStale
	if w.add(t.Context(), order{Lock: 1, Value: 10, Sets: new(history.Sets)}, &r); r.Err == "" || len(tx.there.Guarded) != 2 {
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
