package driver_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// traces are what was seen of the exclusive locks of some names, for ../proof/spec/turns.pml.
type traces map[string]*trace

// trace is the steps of one name, as ../proof/spec/trace.pml wants them. A nil trace notes nothing.
type trace struct {
	mu    sync.Mutex
	steps []step
}

// step is one of a process's driver (0 and 1), of the store, or of the callers.
type step struct {
	at     time.Time
	source string
	what   string
	about  uint64 // the number of a turn, or the lease: its place among those of the name
}

func leaseOf(number uint64) uint64 { return (number-1)/64 + 1 }

const sharedFor25ms = "shared_for_25_ms"

func (r *trace) note(at time.Time, source, what string, about uint64) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, step{at, source, what, about})
}

func (r *trace) granted(proc int, first uint64) {
	r.note(time.Now(), "store", fmt.Sprint("granted_to_", proc), leaseOf(first))
}

func (r *trace) freed(first uint64) { r.note(time.Now(), "store", "freed", leaseOf(first)) }

func (r *trace) unlocks(n fencing.Token) { r.note(time.Now(), "callers", "unlocks", uint64(n)) }

// event notes what an observer of a process has heard of.
func (r *trace) event(proc int, e locker.Event) {
	source, number := fmt.Sprint("process", proc), uint64(e.Token)+uint64(e.SharedToken)
	switch {
	case e.Type == locker.EventGranted:
		r.note(e.Time, source, "began", number)
		r.note(e.Time.Add(25*time.Millisecond), source, sharedFor25ms, leaseOf(number))
	case e.Type == locker.EventPassed:
		r.note(e.Time, source, "began", number)
	case e.Type == locker.EventReleased:
		r.note(e.Time, source, "ended", number)
	case e.Type == locker.EventLost && e.Reason == locker.ReasonTakenOver:
		r.note(e.Time, source, "told", number)
	case e.Type == locker.EventLost:
		r.note(e.Time, source, "lost", number)
	}
}

// String has the steps in order. Those of each source stay in the order in which they were
// noted, and 25 ms are over before anything else of that instant.
func (r *trace) String() string {
	slices.SortStableFunc(r.steps, func(a, b step) int {
		return cmp.Or(a.at.Compare(b.at), -cmp.Compare(strings.Count(a.what, sharedFor25ms), strings.Count(b.what, sharedFor25ms)))
	})
	var text strings.Builder
	for _, s := range r.steps {
		fmt.Fprintf(&text, "%9d %-8s %-16s %d\n", s.at.Sub(r.steps[0].at).Microseconds(), s.source, s.what, s.about)
	}
	return text.String()
}

// judge has the model follow traces, each with a name, and returns what it says of those that
// are no runs of it.
func judge(t *testing.T, texts map[string]string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("left to make proof: the model checker is asked")
	}
	if _, err := exec.LookPath("spin"); err != nil && os.Getenv("LOCKER_TEST_REQUIRE") != "1" {
		t.Skip("spin is not installed: make test does it")
	}
	dir := t.TempDir()
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check, err := filepath.Abs("../proof/spec/trace.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), check, slices.Sorted(maps.Keys(texts))...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out)
}

func TestRandomRunsAreRunsOfTheModel(t *testing.T) {
	seeds := 30
	if s := os.Getenv("SEEDS"); s != "" {
		seeds, _ = strconv.Atoi(s)
	}
	texts, steps := map[string]string{}, 0
	for seed := range seeds {
		told := traces{"a": new(trace), "b": new(trace)}
		t.Run(fmt.Sprint(seed), func(t *testing.T) { fuzz(t, uint64(seed), told) })
		for name, trace := range told {
			texts[fmt.Sprint(seed, "-", name)] = trace.String()
			steps += len(trace.steps)
		}
	}
	if said := judge(t, texts); said != "" {
		t.Error(said)
	}
	t.Logf("%d steps in %d traces", steps, len(texts))
}

// aRun is two turns of process 0 with lease 1, one that waits through its release, and one of
// process 1 with lease 2, whose validity ends.
const aRun = `
 1000 store    granted_to_0     1
 1000 process0 began            1
 2000 callers  unlocks          1
 2000 process0 ended            1
 2000 process0 began            2
26000 process0 shared_for_25_ms 1
30000 callers  unlocks          2
31000 store    freed            1
32000 store    granted_to_1     2
33000 process0 ended            2
33000 process1 began            65
58000 process1 shared_for_25_ms 2
90000 process1 lost             65
91000 store    freed            2
`

// Goal: the model refuses a run for one step that breaks a rule.
func TestTraceThatBreaksARuleIsNoRunOfTheModel(t *testing.T) {
	breaks := map[string]*strings.Replacer{
		"begins before the former has ended": strings.NewReplacer(" 2000 process0 ended            1\n", "", "26000 process0", " 2500 process0 ended 1\n26000 process0"),
		"ends though nobody unlocks":         strings.NewReplacer(" 2000 callers  unlocks          1\n", ""),
		"begins on a lease that was lost":    strings.NewReplacer("process0 ended            1", "process0 lost 1"),
		"begins when the 25 ms are over":     strings.NewReplacer("26000 process0 shared_for_25_ms 1\n", "", " 2000 callers", " 1500 process0 shared_for_25_ms 1\n 2000 callers"),
		"has the number of another":          strings.NewReplacer("began            2", "began 3"),
		"begins though the lease goes back":  strings.NewReplacer("33000 process0 ended            2", "31000 process0 began 3"),
		"has a lease of another process":     strings.NewReplacer("granted_to_1", "granted_to_0"),
		"is told of a loss that is none":     strings.NewReplacer("90000 process1 lost", "90000 process1 told"),
		"is over in the store too early":     strings.NewReplacer("91000 store    freed            2", "89000 store freed 2"),
	}
	texts := map[string]string{"a run": strings.TrimSpace(aRun) + "\n"}
	for name, change := range breaks {
		texts[name] = change.Replace(texts["a run"])
	}
	said := judge(t, texts)
	for name := range texts {
		if refused := strings.Contains(said, name+": no run"); refused == (name == "a run") {
			t.Errorf("a turn %s: refused: %v", name, refused)
		}
	}
	if n := strings.Count(said, "cannot take"); n < len(breaks) {
		t.Errorf("%d steps that the model cannot take are named:\n%s", n, said)
	}
	t.Log(said)
}
