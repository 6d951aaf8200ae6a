package open

import (
	"slices"
	"strings"
	"testing"
)

func TestAddressIsTakenApart(t *testing.T) {
	for _, c := range []struct {
		url, user, pass, path string
		hosts                 []string
	}{
		{"//", "", "", "", []string{"localhost:1"}},
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
	} {
		_, err := parseAddress(url, "1")
		if err == nil {
			t.Errorf("%s: no error", url)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
