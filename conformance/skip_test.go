package conformance

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/specimen"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/lockertest"
)

// bare is a backend with only the three methods, and with this declaration.
type bare struct {
	locker.Locker
	declared locker.Guarantees
}

func (b bare) Guarantees() locker.Guarantees { return b.declared }

var modest = locker.Guarantees{FreedBy: locker.FreedByProcess, Exclusion: locker.Unpromised, Tokens: locker.Unpromised}

// bareOn returns a harness without a network.
func bareOn(addr string, declared locker.Guarantees) Harness {
	return Harness{TTL: time.Second, New: func(t testing.TB) Process {
		l, end := specimen.New(addr, "")
		t.Cleanup(end)
		return Process{Locker: bare{l, declared}}
	}}
}

// A backend author must see what was not checked, and why.
func TestClauseWithoutItsMeansIsSkippedAndSaysWhatIsMissing(t *testing.T) {
	srv := testserver.Redis(t)
	h := bareOn(srv.Addr(), modest)
	want := map[string]string{
		"order": "promise to be fair", "connections": "network", "inspect": "Inspector", "list": "Lister", "min-hold-over-break": "Breaker", "min-hold-alone": "network", "min-hold-lost-reply": "network", "break": "Breaker", "closed": "Close",
		"unlock-after-break": "Breaker", "tokens-over-break": "Breaker", "turns-over-break": "Breaker", "turns-in-memory": "network", "turns-ranges": "network",
		"told-nothing": "network",
		"dead-waiter":  "network", "late-unlock": "network", "late-unlock-reply": "network", "late-renewal": "network",
		"lost-unlock-reply": "network", "silence": "network", "short-after-long": "network", "slow-reply": "network", "slow-hand-over": "network", "min-validity": "network",
		"lost-reply": "network", "lost-reply-while-waiting": "network", "dead-while-locking": "network",
		"shared": "shared lock", "shared-crowd": "shared lock", "shared-at-once": "shared lock", "shared-tokens": "shared lock", "shared-writer": "shared lock", "shared-together": "shared lock",
		"shared-told": "shared lock", "shared-ttls": "shared lock", "shared-renewal": "shared lock", "shared-release": "shared lock", "shared-dead": "shared lock",
		"shared-dead-writer": "shared lock", "shared-lost-reply": "shared lock", "shared-break": "shared lock",
		"detach": "leave its process", "detach-expiry": "leave its process", "detach-lost-reply": "leave its process", "detach-renew": "leave its process", "detach-unlock": "leave its process", "detach-late": "leave its process",
		"slots": "slot", "slots-crowd": "slot", "slots-at-once": "slot", "slots-tokens": "slot", "slots-told": "slot", "slots-dead": "slot", "slots-renewal": "slot",
		"slots-mismatch": "slot", "slots-release-late": "slot", "slots-lost-reply": "slot", "slots-break": "slot",
		"late-delivery": "network", "late-after-clean-up": "network", "late-after-taken": "network", "late-after-unlock": "network", "silent-store": "network", "silent-for-long": "network", "silent-names": "network", "silent-unlock": "network", "lost-grant": "network", "own-grant": "network", "break-unheard": "network", "cut-while-waiting": "network",
	}
	for _, c := range Clauses() {
		t.Run(c.Name, func(t *testing.T) {
			if !crowded[c.Name] {
				t.Parallel()
			}
			err := c.verify(t, h)
			var skipped *skipped
			switch missing, ok := want[c.Name]; {
			case !ok && err != nil:
				t.Errorf("it needs no more than a Locker: %v", err)
			case ok && (!errors.As(err, &skipped) || !strings.Contains(err.Error(), missing)):
				t.Errorf("got %v, want a skip that says that there is no %s", err, missing)
			}
		})
	}
}

func TestDeclaredGuaranteeThatCannotBeCheckedFailsAndSaysWhatToAdd(t *testing.T) {
	srv := testserver.Redis(t)
	clauses := make(map[string]Clause)
	for _, c := range Clauses() {
		clauses[c.Name] = c
	}
	fair, excludes := modest, modest
	fair.Fair, excludes.Exclusion = true, locker.PromptHolder
	for _, test := range []struct {
		declared locker.Guarantees
		clause   string
		want     []string
	}{
		{fair, "order", []string{"declares Fair", "no locker.Inspector", "Inspect that counts waiters"}},
		{excludes, "unlock-after-break", []string{"declares Exclusion", "no locker.Breaker", "a Break,"}},
		{locker.Guarantees{FreedBy: locker.FreedByExpiry}, "silence", []string{"declares Release by expiry", "no network", "NewProxy"}},
		{locker.Guarantees{FreedBy: locker.FreedBySession}, "dead-while-locking", []string{"declares Release by session", "no network", "NewProxy"}},
	} {
		err := clauses[test.clause].verify(t, bareOn(srv.Addr(), test.declared))
		for _, want := range test.want {
			if err == nil || isSkip(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want a failure that says %q", test.clause, err, want)
			}
		}
	}
}

func TestHarnessThatMakesNoLockerOrAnEmptyNetworkIsAnError(t *testing.T) {
	for _, c := range Clauses() {
		for _, h := range []Harness{
			{},
			{New: func(testing.TB) Process { return Process{} }},
			{New: func(testing.TB) Process { return Process{Locker: lockertest.New(), Network: Proxies{}} }},
		} {
			if err := c.verify(t, h); err == nil || isSkip(err) {
				t.Errorf("%s: %v", c.Name, err)
			}
		}
	}
}

// Goal: the suite shows what was not checked, without -v, too. Method: this test again, as
// a process of its own.
func TestRunSaysWhatItHasNotChecked(t *testing.T) {
	if addr := os.Getenv("CONFORMANCE_OF"); addr != "" {
		Run(t, bareOn(addr, modest))
		return
	}
	srv := testserver.Redis(t)
	for _, flag := range []string{"-test.v=false", "-test.v=true"} {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$/^clause$/^(try-lock|bad-names|break|silence|late-unlock)$", flag)
		cmd.Env = append(os.Environ(), "CONFORMANCE_OF="+srv.Addr())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, want := range []string{
			"conformance: 2 clauses were checked\n",
			"1 not, for there is no locker.Breaker: break\n",
			"2 not, for there is no network to break (Process.Network): late-unlock, silence\n",
		} {
			if strings.Count(string(out), want) != 1 {
				t.Errorf("with %s it does not say once %q:\n%s", flag, want, out)
			}
		}
	}
}

func TestPanicOfABackendIsNotTakenForAClauseThatIsKept(t *testing.T) {
	defer func() {
		if got := recover(); got != "the backend's own" {
			t.Errorf("recovered %v", got)
		}
	}()
	err := Clauses()[0].verify(t, Harness{New: func(testing.TB) Process { panic("the backend's own") }})
	t.Errorf("Check returned %v", err)
}

func TestEveryClauseHasANameOfItsOwnAndAReason(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range Clauses() {
		if seen[c.Name] || c.Name == "" || strings.ContainsAny(c.Name, " /") {
			t.Errorf("the name %q is taken, empty or unfit for a subtest", c.Name)
		}
		seen[c.Name] = true
		if !strings.HasSuffix(c.Why, ".") || strings.Count(c.Why, ". ") > 0 {
			t.Errorf("%s: the reason is one plain sentence, not %q", c.Name, c.Why)
		}
	}
}
