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
	l := Observe(WithCounter(promise{}, &fencing.Memory{}), func(Event) {})
	err := Require(l, Correctness)
	if want := "tokens of locker.promise with the counter *fencing.Memory lean on"; err == nil || !strings.Contains(err.Error(), want) {
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
		{"efficiency leans on much", PromptHolder | SteadyClocks | AgreedClocks | DurableServer | DurableReplica, Unpromised, Efficiency, ""},
		{"efficiency without exclusion", Unpromised, 0, Efficiency, "does not promise exclusion"},
		{"efficiency without exclusion that leans on something", Unpromised | PromptHolder, 0, Efficiency, "does not promise exclusion"},
		{"correctness leans on nothing", 0, 0, Correctness, ""},
		{"correctness leans on what is tolerable", Unpromised, ServerUp | ForwardClock | DelayedRestart, Correctness, ""},
		{"correctness leans on prompt holders", 0, PromptHolder, Correctness, "prompt holder"},
		{"correctness leans on clocks", 0, SteadyClocks, Correctness, "steady clocks"},
		{"correctness leans on clocks that agree", 0, AgreedClocks, Correctness, "agreed clocks"},
		{"correctness leans on the disk", 0, DurableServer, Correctness, "durable server"},
		{"correctness leans on replicas", 0, DurableReplica, Correctness, "durable replica"},
		{"correctness without tokens", 0, Unpromised, Correctness, "not promised"},
		{"what is tolerable is not named", 0, ServerUp | DurableServer, Correctness, "lean on: durable server; correctness"},
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

func TestReleasesAndNeedsInWords(t *testing.T) {
	for r, want := range map[Release]string{
		0: "unknown", ByExpiry: "expiry", BySession: "session", ByConnection: "connection",
		ByProcess: "process", ByTransaction: "transaction", ByTransaction + 1: "unknown", 255: "unknown",
	} {
		if got := r.String(); got != want {
			t.Errorf("Release %d reads %q, want %q", uint8(r), got, want)
		}
	}
	for n, want := range map[Need]string{0: "unknown need", Efficiency: "efficiency", Correctness: "correctness", 3: "unknown need"} {
		if got := n.String(); got != want {
			t.Errorf("Need %d reads %q, want %q", uint8(n), got, want)
		}
	}
}

func TestGuaranteesSayInWordsWhatTheyAre(t *testing.T) {
	g := Guarantees{Exclusion: PromptHolder | SteadyClocks, Fair: true, Keeps: true, Release: BySession, Tolerates: 1}
	want := "exclusion leans on: prompt holder, steady clocks; tokens lean on: nothing; a dead holder's lock is freed by: session; " +
		"waiters are served in order of arrival; the store keeps WithMinHold; servers that may fail: 1"
	if got := g.String(); got != want {
		t.Errorf("%q, not %q", got, want)
	}
	if got := (Guarantees{Release: ByProcess}).String(); got != "exclusion leans on: nothing; tokens lean on: nothing; a dead holder's lock is freed by: process; servers that may fail: 0" {
		t.Errorf("%q", got)
	}
}
