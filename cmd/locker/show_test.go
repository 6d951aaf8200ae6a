package main

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/doctor"
	"github.com/lockstile/locker/lockertest"
)

func TestJSONHasHoldersAndTimesInSeconds(t *testing.T) {
	t.Parallel()
	for want, info := range map[string]locker.Info{
		`{"name":"x","held":true,"kind":"exclusive","holder":"me","token":"9007199254740993","seconds_left":1.5,"waiters":2}`: {
			Name: "x", Held: true, Holder: "me", Token: 1<<53 + 1, TimeLeft: 1500 * time.Millisecond, Waiters: 2,
		},
		`{"name":"x","held":true,"kind":"slots","slots":3,"token":"7","waiters":0,"holders":[{"holder":"me","token":"7","slot":0,"seconds_left":0.25}]}`: {
			Name: "x", Held: true, Kind: locker.KindSlots, Slots: 3, Token: 7,
			Holders: []locker.Holder{{Text: "me", Number: 7, TimeLeft: time.Second / 4}},
		},
		`{"name":"x","held":true,"kind":"shared","waiters":0,"holders":[{"token":"9007199254740993"}]}`: {
			Name: "x", Held: true, Kind: locker.KindShared, Holders: []locker.Holder{{Number: 1<<53 + 1, Slot: -1}},
		},
	} {
		if got, err := json.Marshal(infoJSON(info)); err != nil || string(got) != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
}

func TestWaitIsExplainedByTheKindOfTheHold(t *testing.T) {
	t.Parallel()
	two := make([]locker.Holder, 2)
	for want, info := range map[string]locker.Info{
		"nobody is seen to have it":   {},
		"it is shared, by 2":          {Held: true, Kind: locker.KindShared, Holders: two},
		"2 of 3 slots are taken":      {Held: true, Kind: locker.KindSlots, Slots: 3, Holders: two},
		"somebody unknown has it":     {Held: true},
		`"a\nb" has it, with token 7`: {Held: true, Holder: "a\nb", Token: 7},
		`"a" has it, with token 7, for another 3s unless it is renewed`: {Held: true, Holder: "a", Token: 7, TimeLeft: 3 * time.Second},
		"nobody has it, and it is kept for another 3s (minimum hold)":   {Held: true, Kept: true, Holder: "a", TimeLeft: 3 * time.Second},
	} {
		if got := whoHas(info, nil); got != want {
			t.Errorf("%+v: %s, want %s", info, got, want)
		}
	}
	if got := whoHas(locker.Info{}, locker.ErrUnavailable); got != "the store does not say who has it" {
		t.Error(got)
	}
}

// A renewal is no change, and what is new is shown with the times that are left.
func TestTimeThatPassesIsNoNewsOfASharedLock(t *testing.T) {
	t.Parallel()
	shared := func(left time.Duration, holders ...string) []locker.Info {
		info := locker.Info{Name: "x", Held: true, Kind: locker.KindShared, TimeLeft: left}
		for _, h := range holders {
			info.Holders = append(info.Holders, locker.Holder{Text: h, Slot: -1, TimeLeft: left})
		}
		return []locker.Info{info}
	}
	c := new(listCommand)
	if news := c.news(shared(3*time.Second, "a")); len(news) != 1 || news[0].TimeLeft != 3*time.Second || news[0].Holders[0].TimeLeft != 3*time.Second {
		t.Errorf("of a new lock: %+v", news)
	}
	if news := c.news(shared(2*time.Second, "a")); len(news) != 0 {
		t.Errorf("of a second that has passed: %+v", news)
	}
	if news := c.news(shared(2*time.Second, "a", "b")); len(news) != 1 || len(news[0].Holders) != 2 {
		t.Errorf("of one more holder: %+v", news)
	}
}

func TestNewsIsInTheOrderOfNames(t *testing.T) {
	t.Parallel()
	var held []locker.Info
	for i := range 26 {
		held = append(held, locker.Info{Name: string(rune('z' - i)), Held: true})
	}
	c := new(listCommand)
	for _, infos := range [][]locker.Info{held, nil} { // all are taken, and all are free
		news := c.news(infos)
		if len(news) != 26 || !slices.IsSortedFunc(news, func(a, b locker.Info) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("%+v", news)
		}
	}
}

var errEnough = errors.New("enough")

// looked is a store that ends the looking at it in the end.
type looked struct {
	*lockertest.Locker
	late   []error // why no answer was waited for, look by look
	silent func(look int) bool
}

func (l *looked) List(ctx context.Context, prefix string) ([]locker.Info, error) {
	if l.late = append(l.late, ctx.Err()); len(l.late) == 20 {
		return nil, errEnough
	}
	if l.silent != nil && l.silent(len(l.late)) {
		return nil, locker.ErrUnavailable
	}
	return l.Locker.List(ctx, prefix)
}

// A look has ten seconds, and all of them together have no end.
func TestEachLookOfAListThatGoesOnHasATimeOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &looked{Locker: lockertest.New()}
		c := &listCommand{watch: true, json: true}
		first, cancel := context.WithTimeout(t.Context(), askTime)
		defer cancel()
		began := time.Now()
		if err := c.lookAll(first, store); !errors.Is(err, errEnough) || time.Since(began) != 38*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if first.Err() == nil || slices.ContainsFunc(store.late, func(err error) bool { return err != nil }) {
			t.Errorf("the looks ended with %v", store.late)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Whatever is not known is left out, or is "unknown" or "-".
func TestTextsShowWhatIsKnownOfALock(t *testing.T) {
	t.Parallel()
	left := 1500*time.Millisecond + 300*time.Microsecond
	two := []locker.Holder{{Text: "a\nb", Number: 7, TimeLeft: left}, {Number: 9, Slot: 1}}
	readers := []locker.Holder{{Text: "r", Number: 7, Slot: -1, TimeLeft: left}, {Number: 9, Slot: -1}}
	for _, c := range []struct {
		info        locker.Info
		line, whole string
	}{
		{locker.Info{Name: "x"}, `"x"|free|-|-|-`, "name:|x\nheld:|no\nwaiters:|0\n"},
		{locker.Info{Name: "x", Token: 7}, `"x"|free|7|-|-`, "name:|x\nheld:|no\nlast token:|7\nwaiters:|0\n"},
		{locker.Info{Name: "x", Held: true}, `"x"|-|-|-|0`, "name:|x\nheld:|yes\nholder:|unknown\nwaiters:|0\n"},
		{locker.Info{Name: "x", Held: true, Holder: "a\nb", Token: 7, TimeLeft: left, Waiters: 2}, `"x"|"a\nb"|7|1.5s|2`,
			"name:|x\nheld:|yes\nholder:|a\\nb\ntoken:|7\ntime left:|1.5s\nwaiters:|2\n"},
		{locker.Info{Name: "x", Held: true, Kept: true, Holder: "a", Token: 7}, `"x"|nobody (minimum hold)|7|-|0`,
			"name:|x\nheld:|yes, kept by nobody until TIME (minimum hold)\nlast holder:|a\ntoken:|7\nwaiters:|0\n"},
		{locker.Info{Name: "x", Held: true, Kind: locker.KindSlots, Slots: 3, Token: 9, TimeLeft: left, Holders: two}, `"x"|2 of 3 slots|9|1.5s|0`,
			"name:|x\nheld:|yes, 2 of 3 slots\nholder:|slot 0, token 7, time left 1.5s, a\\nb\nholder:|slot 1, token 9, unknown\nlast token:|9\nwaiters:|0\n"},
		{locker.Info{Name: "x", Held: true, Kind: locker.KindShared, Token: 9, TimeLeft: left, Holders: readers}, `"x"|shared by 2|9|1.5s|0`,
			"name:|x\nheld:|yes, shared by 2\nholder:|token 7, time left 1.5s, r\nholder:|token 9, unknown\nlast token:|9\nwaiters:|0\n"},
	} {
		if got := strings.Join(cells(c.info), "|"); got != c.line {
			t.Errorf("%+v: %s, want %s", c.info, got, c.line)
		}
		whole := strings.ReplaceAll(regexp.MustCompile(`:  +`).ReplaceAllString(infoText(c.info), ":|"), `"`, "")
		whole = regexp.MustCompile(`\d\d:\d\d:\d\d`).ReplaceAllString(whole, "TIME")
		if whole != c.whole {
			t.Errorf("%+v:\n%s\nwant\n%s", c.info, whole, c.whole)
		}
	}
}

// The dangers come first. A place without a finding is fine, whatever was found in another.
func TestDoctorShowsDangersFirstAndWhatIsFineLast(t *testing.T) {
	t.Parallel()
	r := &doctor.Report{
		Findings: []doctor.Finding{{Severity: doctor.Note, Where: "a", What: "one"}, {Severity: doctor.Danger, Where: "a", What: "two"}},
		Checked:  []doctor.Checked{{Where: "a", What: []string{"x", "y"}}, {Where: "b", What: []string{"z"}}},
	}
	text := reportText(r)
	last := 0
	for _, want := range []string{"danger: a: two\n", "note: a: one\n", "also checked: a: x, y\n", "fine: b: z\n"} {
		i := strings.Index(text, want)
		if i < last {
			t.Errorf("%q is not in its place:\n%s", want, text)
		}
		last = i
	}
}

func TestWhatABackendCanBesideIsListed(t *testing.T) {
	t.Parallel()
	for want, g := range map[string]locker.Guarantees{"shared, slots": {Shared: true, Slots: true}, "shared": {Shared: true}, "slots": {Slots: true}, "detach": {Detaches: true}, "-": {}} {
		if got := beside(g); got != want {
			t.Errorf("%+v: %s, want %s", g, got, want)
		}
	}
}

// A store that has never answered is an error. One that has is looked at again.
func TestListGoesOnOnlyWhereItHasBegun(t *testing.T) {
	for want, silent := range map[error]func(look int) bool{
		locker.ErrUnavailable: func(int) bool { return true },
		errEnough:             func(look int) bool { return look == 5 || look > 7 },
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &looked{Locker: lockertest.New(), silent: silent}
			if err := (&listCommand{watch: true, json: true}).lookAll(t.Context(), store); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
