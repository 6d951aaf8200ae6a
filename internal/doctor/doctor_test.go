package doctor_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/doctor"
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
	r, err := doctor.Examine(patience(t), url)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// examineInVain looks at a store that cannot be opened.
func examineInVain(t *testing.T, url string, wants ...string) *doctor.Report {
	t.Helper()
	r, err := doctor.Examine(patience(t), url)
	if err == nil {
		t.Fatalf("%s could be opened", url)
	}
	for _, want := range append(wants, "doctor: ") {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
	return r
}

// has reports whether one of the findings has this code and all these words.
func has(r *doctor.Report, code string, words []string) bool {
	return slices.ContainsFunc(r.Findings, func(f doctor.Finding) bool {
		missing := func(w string) bool { return !strings.Contains(f.Where+" "+f.What, w) }
		return f.Code == code && !slices.ContainsFunc(words, missing)
	})
}

func finds(t *testing.T, r *doctor.Report, code string, words ...string) {
	t.Helper()
	if !has(r, code, words) || strings.Contains(list(r), "%!") {
		t.Errorf("no %s with %q in:\n%s", code, words, list(r))
	}
}

func findsNot(t *testing.T, r *doctor.Report, code string, words ...string) {
	t.Helper()
	if has(r, code, words) {
		t.Errorf("%s with %q in:\n%s", code, words, list(r))
	}
}

// fine expects no findings at all, and that something was looked at.
func fine(t *testing.T, r *doctor.Report, looked ...string) {
	t.Helper()
	if len(r.Findings) > 0 {
		t.Errorf("on a sane store:\n%s", list(r))
	}
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

func TestURLThatIsNotUnderstoodIsAnError(t *testing.T) {
	t.Parallel()
	if r := examineInVain(t, "mysql://h", "mysql"); r == nil || r.Findings == nil || r.Checked == nil { // not null in JSON
		t.Errorf("%+v", r)
	}
}

func list(r *doctor.Report) string {
	var b strings.Builder
	for _, f := range r.Findings {
		b.WriteString(f.Code + ": " + f.Where + ": " + f.What + "\n")
	}
	return b.String()
}
