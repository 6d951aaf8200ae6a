package dial

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lockstile/locker"
)

func TestAddressIsTakenApart(t *testing.T) {
	for _, c := range []struct {
		url, user, pass, path string
		hosts                 []string
	}{
		{"//", "", "", "", []string{":1"}}, // which parseServers refuses
		{"//h", "", "", "", []string{"h:1"}},
		{"//h:7/3", "", "", "3", []string{"h:7"}},
		{"//h1,h2:7,h3/m/2?a=b", "", "", "m/2", []string{"h1:1", "h2:7", "h3:1"}},
		{"//[::1]:7,[::2]", "", "", "", []string{"[::1]:7", "[::2]:1"}},
		{"//:pw@h", "", "pw", "", []string{"h:1"}},
		{"//u@h", "u", "", "", []string{"h:1"}},
		{"//u:a:b@c@h", "u", "a:b@c", "", []string{"h:1"}},
		{"//u%40x:%2F%3F%23%25%40,@h", "u@x", "/?#%@,", "", []string{"h:1"}},
		{"//u:a+b@h", "u", "a+b", "", []string{"h:1"}},
	} {
		a, err := parseAddress(c.url, "1")
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if a.user != c.user || a.pass != c.pass || a.path != c.path || !slices.Equal(a.hosts, c.hosts) {
			t.Errorf("%s: user %q password %q hosts %q path %q", c.url, a.user, a.pass, a.hosts, a.path)
		}
	}
}

// Whatever is wrong with a URL, what stands where a password may stand is not
// shown.
func TestErrorsOnAddressesShowNoPassword(t *testing.T) {
	for _, url := range []string{
		"h:1",
		"//u:secret/x@h",
		"//u:secret?x@h",
		"//u:secret#x@h",
		"//u:secret%zz@h",
		"//secret%zz:p@h",
		"//u:secret",
		"//:secret",
		"//u:x:secret",
		"//h:0",
		"//h:65536",
		"//h/secret%zz",
		"//h?x=secret%zz",
		"//h?sentinel_password=se@secret",
		"//h#secret",
		"//u:secret@h1,u:secret@h2,h3",
	} {
		_, err := parseAddress(url, "1")
		if err == nil {
			t.Errorf("%s: no error", url)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// A variable that is not set leaves nothing between two commas. Localhost in its
// place would be another server on every machine.
func TestEmptyHostIsAnError(t *testing.T) {
	for _, hosts := range []string{"", ":7", "h,,i", ",h,i", "h,i,", "h,:7,i", "h, ,i", "[],h,i", "u:p@", "u:p@h,,i"} {
		for _, scheme := range []string{
			"redis", "rediss", "redis-sentinel", "redis-cluster", "redlock", "redlocks", "etcd", "etcds", "zk", "postgres", "postgresql",
		} {
			if strings.HasPrefix(scheme, "postgres") && !strings.Contains(hosts, ",") {
				continue // one that is not named is libpq's default
			}
			url := scheme + "://" + hosts + map[string]string{"redis-sentinel": "/m"}[scheme]
			b, err := URL(t.Context(), url)
			if err == nil {
				_ = b.Close()
			}
			if err == nil || errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "is empty") {
				t.Errorf("%s: %v", url, err)
			}
		}
	}
}

// The last value was ours and the first a client's, and an empty one counted as
// none: replicas=$N with N not set is no wish for no replicas.
func TestParameterWithoutOneValueIsAnError(t *testing.T) {
	for _, query := range []string{"prefix=", "prefix", "replicas=", "x=1&x=2", "x=1&x=1", "prefix=a&y=&prefix=b"} {
		_, err := parseAddress("//h?"+query, "1")
		if err == nil || !strings.Contains(err.Error(), "parameter") {
			t.Errorf("%s: %v", query, err)
		}
	}
}
