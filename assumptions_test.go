package locker

import "testing"

func TestAssumptionsInWords(t *testing.T) {
	all := PromptHolder | SteadyClocks | AgreedClocks | DurableServer | DurableReplica | DelayedRestart | ForwardClock | ServerUp | Unpromised
	for a, want := range map[Assumptions]string{
		0:                         "nothing",
		PromptHolder:              "prompt holder",
		SteadyClocks:              "steady clocks",
		AgreedClocks:              "agreed clocks",
		DurableServer:             "durable server",
		DurableReplica:            "durable replica",
		DelayedRestart:            "delayed restart",
		ForwardClock:              "forward clock",
		ServerUp:                  "server up",
		Unpromised:                "not promised",
		PromptHolder | ServerUp:   "prompt holder, server up",
		SteadyClocks | Unpromised: "steady clocks, not promised",
		all:                       "prompt holder, steady clocks, agreed clocks, durable server, durable replica, delayed restart, forward clock, server up, not promised",
	} {
		if got := a.String(); got != want {
			t.Errorf("%b reads %q, want %q", a, got, want)
		}
	}
	if a := PromptHolder | ServerUp; !a.Has(PromptHolder) || !a.Has(a) || !a.Has(0) || a.Has(PromptHolder|SteadyClocks) {
		t.Error("Has does not tell all from some")
	}
}
