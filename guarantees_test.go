package locker

import (
	"context"
	"strings"
	"testing"

	"github.com/lockstile/locker/fencing"
)

// promise is a Locker of which only the promise is asked.
type promise struct{ g Guarantees }

func (promise) Lock(context.Context, string, ...Option) (*Lock, error)    { return nil, ErrClosed }
func (promise) TryLock(context.Context, string, ...Option) (*Lock, error) { return nil, ErrClosed }
func (p promise) Guarantees() Guarantees                                  { return p.g }

func TestRequireNamesTheLockerAndItsCounter(t *testing.T) {
	l := Observe(WithCounter(promise{}, &fencing.Memory{}, DurableServer), func(Event) {})
	err := Require(l, Correctness)
	if want := "tokens of locker.promise with the counter *fencing.Memory assume"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q in it", err, want)
	}
}

func TestRequireRefusesWhatIsNotGoodEnough(t *testing.T) {
	for _, c := range []struct {
		name              string
		exclusion, tokens Assumptions
		need              Need
		says              string // part of the error; "" for none
	}{
		{"efficiency that assumes much", PromptHolder | SteadyClocks | AgreedClocks | DurableServer | DurableReplica, Unpromised, Efficiency, ""},
		{"efficiency without exclusion", Unpromised, 0, Efficiency, "does not promise exclusion"},
		{"efficiency without exclusion that assumes something", Unpromised | PromptHolder, 0, Efficiency, "does not promise exclusion"},
		{"correctness that assumes nothing", 0, 0, Correctness, ""},
		{"correctness that assumes what is tolerable", Unpromised, ServerUp | ForwardClock | DelayedRestart, Correctness, ""},
		{"correctness that assumes prompt holders", 0, PromptHolder, Correctness, "prompt holder"},
		{"correctness that assumes clocks", 0, SteadyClocks, Correctness, "steady clocks"},
		{"correctness that assumes clocks that agree", 0, AgreedClocks, Correctness, "agreed clocks"},
		{"correctness that assumes the disk", 0, DurableServer, Correctness, "durable server"},
		{"correctness that assumes replicas", 0, DurableReplica, Correctness, "durable replica; correctness needs tokens that do not: set SyncStandby in postgres.Options"},
		{"correctness that assumes a crash loses nothing", 0, DurableServer | DurableReplica, Correctness, "writes to its disk before it answers"},
		{"correctness needs a guard", 0, DurableReplica, Correctness, "the storage must refuse stale tokens besides (package fencing)"},
		{"correctness with tokens of a counter", 0, SteadyClocks | ForwardClock, Correctness, "in place of a counter's"},
		{"correctness without tokens", 0, Unpromised, Correctness, "not promised; correctness needs tokens that do not: take a backend that gives its tokens in order"},
		{"what is tolerable is not named", 0, ServerUp | DurableServer, Correctness, "assume: durable server; correctness"},
		{"no need", 0, 0, 0, "need 0 is neither"},
		{"an unknown need", 0, 0, 3, "need 3 is neither"},
	} {
		err := Require(promise{Guarantees{Exclusion: c.exclusion, Tokens: c.tokens}}, c.need)
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: error %v does not say %q", c.name, err, c.says)
		case err != nil && !strings.HasPrefix(err.Error(), "locker: "):
			t.Errorf("%s: error %q does not say who speaks", c.name, err)
		case err != nil && c.need < 3 && c.need > 0 && !strings.Contains(err.Error(), "locker.promise"):
			t.Errorf("%s: error %q does not name the backend", c.name, err)
		}
	}
}

func TestWhatFreesAndNeedsInWords(t *testing.T) {
	for r, want := range map[FreedBy]string{
		0: "unknown", FreedByExpiry: "expiry", FreedBySession: "session", FreedByConnection: "connection",
		FreedByProcess: "process", FreedByTransaction: "transaction", FreedByTransaction + 1: "unknown", 255: "unknown",
	} {
		if got := r.String(); got != want {
			t.Errorf("FreedBy %d reads %q, want %q", uint8(r), got, want)
		}
	}
	for n, want := range map[Need]string{0: "unknown need", Efficiency: "efficiency", Correctness: "correctness", 3: "unknown need"} {
		if got := n.String(); got != want {
			t.Errorf("Need %d reads %q, want %q", uint8(n), got, want)
		}
	}
}

func TestGuaranteesSayInWordsWhatTheyAre(t *testing.T) {
	g := Guarantees{Exclusion: PromptHolder | SteadyClocks, Fair: true, KeepsMinHold: true, FreedBy: FreedBySession, ServerFailures: 1}
	want := "exclusion assumes: prompt holder, steady clocks; tokens assume: nothing; a dead holder's lock is freed by: session; " +
		"waiters are served in order of arrival; the store keeps WithMinHold; servers that may fail: 1"
	if got := g.String(); got != want {
		t.Errorf("%q, not %q", got, want)
	}
	if got := (Guarantees{FreedBy: FreedByProcess}).String(); got != "exclusion assumes: nothing; tokens assume: nothing; a dead holder's lock is freed by: process; servers that may fail: 0" {
		t.Errorf("%q", got)
	}
}
