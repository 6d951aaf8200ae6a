package open_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/open"
)

func TestWrongURLsAreNotTheStoresFault(t *testing.T) {
	for _, url := range []string{
		"", "secret", "secret@h:6379", "u:secret@h:6379", "/secret://h", "secret?://h",
		"redis:h", "redis://h1,h2", "redis://h/x", "redis://h/1/2",
		"redis://u:secret%@h", "redis://u:secret/x@h", "redis://u:secret#x@h", "redis://u:secret",
		"redis://u:secret@h?nonsense=1", "redis://u:secret@h?db=x", "redis://u:secret@h/1/2",
		"redis://u:secret@h?replicas=x", "redis://u:secret@h?replicas=-1", "redis://u:secret@h?pool_size=x",
		"redis://u:secret@h h", "redis-cluster://u:secret@h h",
		"redis-cluster://u:secret@h/1", "redis-cluster://u:secret@h?nonsense=1",
		"redis-sentinel://u:secret@h", "redis-sentinel://u:secret@h/m/x", "redis-sentinel://u:secret@h/m?password=secret",
		"redis-sentinel://h/m?nonsense=1&sentinel_password=secret",
	} {
		_, err := open.URL(patience(t), url)
		switch {
		case err == nil:
			t.Errorf("%q: no error", url)
		case errors.Is(err, locker.ErrUnavailable):
			t.Errorf("%q: a store was asked: %v", url, err)
		case strings.Contains(err.Error(), "secret"):
			t.Errorf("%q: %v", url, err)
		case !strings.HasPrefix(err.Error(), "open: "):
			t.Errorf("%q: does not say where it comes from: %v", url, err)
		}
	}
}

func TestUnknownSchemeListsThoseThatAreKnown(t *testing.T) {
	_, err := open.URL(patience(t), "mysql://h")
	if err == nil {
		t.Fatal("no error")
	}
	for _, s := range open.Schemes() {
		if !strings.Contains(err.Error(), s.Form) {
			t.Errorf("%s is not in: %v", s.Form, err)
		}
	}
	if !strings.Contains(err.Error(), `"mysql"`) {
		t.Errorf("the scheme is not in: %v", err)
	}
}

// Every scheme that is listed is known to URL, and has something to say.
func TestSchemesAreTrue(t *testing.T) {
	var seen []string
	for _, s := range open.Schemes() {
		if s.About == "" || strings.Contains(s.About, "\n") {
			t.Errorf("%s: About is %q", s.Form, s.About)
		}
		if s.Guarantees.Release == 0 {
			t.Errorf("%s: no guarantees", s.Form)
		}
		scheme, _, _ := strings.Cut(s.Form, ":")
		if slices.Contains(seen, scheme) {
			t.Errorf("%s is listed twice", scheme)
		}
		seen = append(seen, scheme)
		if _, err := open.URL(patience(t), scheme+"://h/\x00%zz"); err != nil && strings.Contains(err.Error(), "unknown scheme") {
			t.Errorf("%s is listed but not known", scheme)
		}
	}
}
