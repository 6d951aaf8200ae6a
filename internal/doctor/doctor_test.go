package doctor_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/doctor"
	"github.com/lockstile/locker/open"
)

func patience(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// examine looks at what is behind url.
func examine(t *testing.T, url string) *doctor.Report {
	t.Helper()
	r := &doctor.Report{}
	if err := open.Examine(patience(t), url, r); err != nil {
		t.Fatal(err)
	}
	return r
}

// examineInVain looks at a store that cannot be opened.
func examineInVain(t *testing.T, url string, wants ...string) *doctor.Report {
	t.Helper()
	r := &doctor.Report{}
	err := open.Examine(patience(t), url, r)
	if err == nil {
		t.Fatalf("%s could be opened", url)
	}
	for _, want := range wants {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
	return r
}

// finds expects a finding, of which each of words tells.
func finds(t *testing.T, r *doctor.Report, s doctor.Severity, words ...string) {
	t.Helper()
	for _, f := range r.Findings {
		missing := func(w string) bool { return !strings.Contains(f.Where+" "+f.What, w) }
		if f.Severity == s && !slices.ContainsFunc(words, missing) {
			if f.Means == "" {
				t.Errorf("%s: %s: nothing about what it means", f.Where, f.What)
			}
			return
		}
	}
	t.Errorf("no %s with %q in:\n%s", s, words, list(r))
}

// findsNot expects that no finding tells of words.
func findsNot(t *testing.T, r *doctor.Report, words ...string) {
	t.Helper()
	for _, f := range r.Findings {
		missing := func(w string) bool { return !strings.Contains(f.Where+" "+f.What, w) }
		if !slices.ContainsFunc(words, missing) {
			t.Errorf("this should not be there: %s: %s: %s", f.Severity, f.Where, f.What)
		}
	}
}

// fine expects no findings at all, and that something was looked at.
func fine(t *testing.T, r *doctor.Report, looked ...string) {
	t.Helper()
	if len(r.Findings) > 0 {
		t.Errorf("on a sane store:\n%s", list(r))
	}
	lookedAt(t, r, looked...)
}

func lookedAt(t *testing.T, r *doctor.Report, looked ...string) {
	t.Helper()
	var all []string
	for _, c := range r.Checked {
		all = append(all, c.What...)
	}
	for _, want := range looked {
		if !strings.Contains(strings.Join(all, "\n"), want) {
			t.Errorf("it does not say that it looked at %q: %q", want, all)
		}
	}
}

func list(r *doctor.Report) string {
	var b strings.Builder
	for _, f := range r.Findings {
		b.WriteString(string(f.Severity) + ": " + f.Where + ": " + f.What + "\n")
	}
	return b.String()
}
