package testbed_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/testbed"
)

// flaws says which scenario finds which flaw.
var flaws = []struct{ scenario, flaw string }{
	{"slow answer", "validity from the reply"},
	{"holder cut off", "no clock of its own"},
	{"holder cut off", "renewal is not sent"},
	{"late unlock", "release does not compare"},
	{"late unlock", "fixed value"},
	{"late renewal", "renewal does not compare"},
	{"unlock by a former holder", "tries are blind"},
	{"dead holder", "counter goes with the lease"},
	{"herd", "token is drawn before the wait"},
	{"herd", "counter goes with the lock"},
	{"herd", "tokens are all one"},
	{"herd", "waits for nobody"},
	{"late lock", "clean-up without a mark"},
	{"lost reply to a lock", "no clean-up"},
	{"slow answer to an unlock", "get, then del"},
	{"slow second answer", "timestamps"},
	{"a stranger's release", "waits for nobody"},
	{"herd (reader first)", "a writer does not see readers"},
	{"herd (reader first)", "a reader draws no number"},
	{"herd (slots)", "a slot is the number of holders"},
	{"herd (slots)", "the token of a slot is its number"},
	{"late unlock (slots)", "the end of a slot is not noticed"},
	{"lost reply to a lock (reader first)", "no clean-up"},
	{"handed over", "whoever resumes has the old token"},
	{"handed over", "a handle is used up by nobody"},
}

// onlyThere are flaws that no soak finds: it does not know whether a lock that was detached has ended for a good reason.
var onlyThere = []struct{ scenario, flaw string }{
	{"handed over", "a lock that is detached is given back"},
}

// hangs are flaws that take long to see: nobody gets the lock any more.
var hangs = []struct{ scenario, flaw string }{
	{"dead waiter", "dead waiters stay"},
	{"lost notification", "waiters rely on being told"},
	{"dead holder", "no expiry"},
	{"death before the answer", "set, then expire"},
	{"a stranger's release", "waiters sleep until the lease ends"},
	{"dead holder (slots)", "slots are a bare counter"},
	{"dead waiter (reader first)", "dead waiters stay"},
}

func TestEveryFlawIsFoundByTheScenarioMeantForIt(t *testing.T) {
	found := slices.Concat(flaws, onlyThere)
	if full() {
		found = append(found, hangs...)
	}
	byScenario := make(map[string][]matrix.Subject)
	for _, f := range found {
		byScenario[f.scenario] = append(byScenario[f.scenario], testbed.Specimen(f.flaw))
	}
	for scenario, specimens := range byScenario {
		t.Run(scenario, func(t *testing.T) {
			t.Parallel()
			sound := testbed.Specimen("")
			m := matrix.Run(t.Context(), settings(t), append(specimens, sound), theScenario(t, scenario))
			for _, c := range m.Cells {
				good := func() bool { return c.Verdict == matrix.FalseClaim }
				if c.Subject == sound.Name { // otherwise the flaw is not what was found
					good = func() bool {
						return slices.Contains([]matrix.Verdict{matrix.Kept, matrix.Unavailable, matrix.Fenced}, c.Verdict)
					}
				}
				for i := 1; i <= 3 && !good() && c.Verdict != matrix.FalseClaim; i++ { // a stall can hide a flaw
					c = longer(t, named(append(specimens, sound), c.Subject), c.Scenario, i)
				}
				if !good() {
					t.Errorf("%s, %s: %s (%s)\n%s", c.Subject, c.Scenario, c.Verdict, c.Why, c.History.Text())
				}
			}
		})
	}
}

// longer plays a scenario again, with leases that are 2^i times as long: on a machine that
// stalls for a whole lease a scenario shows nothing.
func longer(t *testing.T, sub matrix.Subject, scenario string, i int) matrix.Cell {
	t.Helper()
	sub.TTL = max(sub.TTL, time.Second) << i
	return matrix.Run(t.Context(), settings(t), []matrix.Subject{sub}, theScenario(t, scenario)).Cells[0]
}

// Goal: a scenario that is played again does not fail because its leases are longer.
func TestLongerLeasesShowNoFalseClaim(t *testing.T) {
	t.Parallel()
	if c := longer(t, subject(t, "redlock-rule"), "server forgets", 1); c.Verdict == matrix.FalseClaim {
		t.Errorf("%s: %s\n%s", c.Verdict, c.Why, c.History.Text())
	}
}

func named(subjects []matrix.Subject, name string) matrix.Subject {
	return subjects[slices.IndexFunc(subjects, func(s matrix.Subject) bool { return s.Name == name })]
}

func full() bool { return os.Getenv("LOCKER_TEST_MATRIX") == "full" }

func theScenario(t *testing.T, name string) []matrix.Scenario {
	t.Helper()
	all := matrix.Scenarios()
	i := slices.IndexFunc(all, func(s matrix.Scenario) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("there is no scenario %q", name)
	}
	return all[i : i+1]
}

func subject(t *testing.T, name string) matrix.Subject {
	t.Helper()
	all := testbed.Subjects()
	i := slices.IndexFunc(all, func(s matrix.Subject) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("there is no subject %q", name)
	}
	return all[i]
}

// Method: sound backends, each with an assumption missing from its declaration.
func TestADeclarationThatIsTooStrongIsAFalseClaim(t *testing.T) {
	for _, c := range []struct {
		subject, scenario string
		omitted           locker.Assumptions // from its declaration
	}{
		{"singlenode", "server forgets", locker.DurableServer},
		{"singlenode", "pause before the write", locker.PromptHolder},
		{"singlenode", "handed over", locker.PromptHolder},
		{"singlenode", "clock steps forward", locker.SteadyClocks},
		{"singlenode+replica", "failover", locker.DurableReplica},
		{"singlenode+WAIT", "the replica's clock is ahead", locker.AgreedClocks},
		{"postgres+sync", "the replica's clock is ahead", locker.AgreedClocks},
		{"singlenode", "long idle name and clock back", locker.ForwardClock},
		{"redlock-rule", "server forgets", locker.DurableServer | locker.DelayedRestart},
		{"postgres", "failover", locker.DurableReplica},
		{"file", "handed over", locker.PromptHolder},
		{"postgres session", "pause before the write", locker.PromptHolder},
		{"postgres session", "server crashes unheard", locker.DurableServer},
		{"postgres session", "told nothing", locker.ServerUp},
		{"postgres session", "clock steps forward unheard", locker.SteadyClocks},
		{"redlock", "clock back and data lost", locker.ForwardClock},
		{"postgres", "pause before the write (reader first)", locker.PromptHolder},
		{"postgres", "stale write comes first (writer first)", locker.PromptHolder},
		{"postgres", "failover (slots)", locker.DurableReplica},
	} {
		t.Run(c.subject+", "+c.scenario, func(t *testing.T) {
			t.Parallel()
			sub := subject(t, c.subject)
			sub.Guarantees.Exclusion &^= c.omitted
			sub.Guarantees.Tokens &^= c.omitted
			disproved(t, sub, c.scenario)
		})
	}
}

// disproved plays a scenario that shows a subject's claim to be false, with longer leases
// where a stall has hidden that: the first holder had lost its own before the second came.
func disproved(t *testing.T, sub matrix.Subject, scenario string) {
	t.Helper()
	c := played(t, sub, scenario)
	for i := 1; i <= 3 && c.Verdict != matrix.FalseClaim; i++ {
		c = longer(t, sub, scenario, i)
	}
	if c.Verdict != matrix.FalseClaim {
		t.Errorf("%s (%s), not a false claim\n%s", c.Verdict, c.Why, c.History.Text())
	}
}

// singlenode+WAIT survives a failover, so an assumption about the replica is not needed.
func TestADeclarationThatIsTooWeakIsReportedAsModest(t *testing.T) {
	t.Parallel()
	modest := subject(t, "singlenode+WAIT")
	modest.Guarantees.Exclusion |= locker.DurableReplica
	failovers := slices.DeleteFunc(matrix.Scenarios(), func(s matrix.Scenario) bool { return !s.Breaks.Has(locker.DurableReplica) })
	m := matrix.Run(t.Context(), settings(t), []matrix.Subject{modest}, failovers)
	if m.Cells[0].Verdict == matrix.Skipped {
		t.Skip(m.Cells[0].Why)
	}
	want := matrix.Unproven{Subject: modest.Name, Guarantee: "exclusion", Assumed: locker.DurableReplica}
	if !slices.Contains(m.Modest, want) {
		t.Errorf("modest are %v; cell: %+v\n%s", m.Modest, m.Cells[0].Verdict, m.Cells[0].History.Text())
	}
}
