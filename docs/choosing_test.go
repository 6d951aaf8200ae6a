package docs_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/dial"
)

// declared is a Locker of which only its guarantees are known.
type declared struct {
	locker.Locker
	guarantees locker.Guarantees
}

func (d declared) Guarantees() locker.Guarantees { return d.guarantees }

// defaults returns what each backend declares when no option is set.
func defaults(t *testing.T) map[string]locker.Guarantees {
	forms := map[string]string{
		"local": "local:", "singlenode": "redis://", "redlock": "redlock://", "etcd": "etcd://", "zookeeper": "zk://",
		"postgres leases": "postgres://[USER:PASS@]HOST[:PORT][,…]/DB", "postgres sessions": "postgres://[USER:PASS@]HOST[:PORT][,…]/DB?mode=session",
	}
	all := make(map[string]locker.Guarantees)
	for name, form := range forms {
		var found []locker.Guarantees
		for _, s := range dial.Schemes() {
			if s.Form == form || !strings.HasPrefix(form, "postgres") && strings.HasPrefix(s.Form, form) {
				found = append(found, s.Guarantees)
			}
		}
		if len(found) != 1 {
			t.Fatalf("%d forms of URLs begin with %s", len(found), form)
		}
		all[name] = found[0]
	}
	return all
}

// Goal: the table of backends tells what each declares that its locks and its tokens assume.
func TestBackendsAreShownWithWhatTheyDeclare(t *testing.T) {
	for name, g := range defaults(t) {
		constructor := map[string]string{"postgres leases": "postgres.New", "postgres sessions": "postgres.NewSession"}[name]
		if constructor == "" {
			constructor = name
		}
		rows := 0
		for line := range strings.Lines(page(t, "CHOOSING.md")) {
			cells := strings.Split(strings.TrimSpace(line), " | ")
			if len(cells) != 8 || cells[1] != "`"+constructor+"`" {
				continue
			}
			rows++
			for i, want := range map[int]locker.Assumptions{6: g.Exclusion, 7: g.Tokens} {
				if got := strings.TrimSuffix(cells[i], " |"); got != want.String() {
					t.Errorf("%s declares %q, and its row says %q", name, want, got)
				}
			}
		}
		if rows != 1 {
			t.Errorf("%s has %d rows", name, rows)
		}
	}
}

// Goal: the tables tell what Require says of each backend with no options set.
func TestDecisionsAgreeWithRequire(t *testing.T) {
	forms := defaults(t)
	for name, backends := range map[string]int{"CHOOSING.md": len(forms), "../README.md": 6} {
		said := verdicts(page(t, name))
		if len(said) != backends {
			t.Errorf("%s speaks of %v, not of %d backends", name, said, backends)
		}
		for backend, verdict := range said {
			want := "accepts"
			if err := locker.Require(declared{guarantees: forms[backend]}, locker.Correctness); err != nil {
				want = "refuses"
			}
			if _, known := forms[backend]; !known || verdict != want {
				t.Errorf("%s: Require %s %s, and the table says %q", name, want, backend, verdict)
			}
		}
	}
}

// verdicts is what a page says of Require, by backend.
func verdicts(page string) map[string]string {
	said := make(map[string]string)
	for line := range strings.Lines(page) {
		for _, verdict := range []string{"accepts", "refuses"} {
			_, names, ok := strings.Cut(line, " | "+verdict+" ")
			if !ok {
				continue
			}
			for _, name := range regexp.MustCompile("`([a-z]+)`(?: (leases|sessions))?").FindAllStringSubmatch(names, -1) {
				said[strings.TrimSpace(name[1]+" "+name[2])] = verdict
			}
		}
	}
	return said
}
