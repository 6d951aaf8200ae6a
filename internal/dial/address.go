package dial

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// address is a URL of the form //[USER[:PASS]@]HOST[:PORT],…[/PATH][?QUERY],
// taken apart. The standard library's parser allows one host only, and quotes
// the URL in its errors with the password in it.
type address struct {
	user, pass string
	hosts      []string // each with its port; an empty one is alone
	anyHost    bool     // not even a port is there
	path       string   // without slashes around it
	query      url.Values
}

// errPlace says, without quoting anything, that a URL was cut in the wrong place.
var errPlace = errors.New("the URL has a '#', or an '@' after the first '/' or '?': " +
	"in a user name or password write / as %2F, ? as %3F and # as %23; elsewhere write @ as %40")

// parseAddress takes apart what follows a scheme and its colon. Hosts without a
// port get port.
func parseAddress(text, port string) (a address, err error) {
	text, ok := strings.CutPrefix(text, "//")
	if !ok {
		return a, errors.New("the URL lacks '//' after its scheme")
	}
	authority, tail := text, ""
	if i := strings.IndexAny(text, "/?#"); i >= 0 {
		authority, tail = text[:i], text[i:]
	}
	if strings.ContainsAny(tail, "@#") {
		return a, errPlace
	}
	hosts := authority
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		hosts = authority[at+1:]
		if a.user, a.pass, err = parseUser(authority[:at]); err != nil {
			return a, err
		}
	}
	if a.hosts, err = parseHosts(hosts, port); err != nil {
		return a, err
	}
	a.anyHost = hosts == ""
	path, query, _ := strings.Cut(tail, "?")
	if a.path, err = url.PathUnescape(strings.Trim(path, "/")); err != nil {
		return a, errors.New("the URL's path has a '%' without two hexadecimal digits after it: write % as %25")
	}
	if a.query, err = url.ParseQuery(query); err != nil {
		return a, errors.New("what follows '?' in the URL is not of the form name=value&name=value")
	}
	return a, a.oneValueEach()
}

// oneValueEach refuses a parameter without a value, which a variable that is not
// set leaves behind, and one with two, of which each client would choose another.
func (a *address) oneValueEach() error {
	for _, name := range slices.Sorted(maps.Keys(a.query)) {
		switch values := a.query[name]; {
		case len(values) > 1:
			return fmt.Errorf("the parameter %q is in the URL %d times: give it once", name, len(values))
		case values[0] == "":
			return fmt.Errorf("the parameter %q in the URL has no value: give it one or leave it out", name)
		}
	}
	return nil
}

// parseUser takes what stands before the last @. One more there, and a comma after
// it, mean that they were given with every host: all hosts but the last would be part
// of the password.
func parseUser(text string) (user, pass string, err error) {
	if _, after, ok := strings.Cut(text, "@"); ok && strings.Contains(after, ",") {
		return "", "", errors.New("the URL has a ',' between two '@': give a user name and password once, before all hosts; " +
			"in them write @ as %40 and a comma as %2C")
	}
	user, pass, _ = strings.Cut(text, ":")
	user, err = url.PathUnescape(user)
	if err == nil {
		pass, err = url.PathUnescape(pass)
	}
	if err != nil {
		return "", "", errors.New("the user name or password in the URL has a '%' without two hexadecimal digits after it: write % as %25")
	}
	return user, pass, nil
}

// parseHosts does not quote what is wrong: with the @ forgotten, it is a
// password.
func parseHosts(text, port string) ([]string, error) {
	hosts := strings.Split(text, ",")
	for i, h := range hosts {
		host, p, err := net.SplitHostPort(h)
		if err != nil {
			host, p, err = net.SplitHostPort(h + ":" + port)
		}
		if err != nil || strings.ContainsFunc(strings.TrimSpace(host), func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return nil, fmt.Errorf("host number %d in the URL is not of the form HOST or HOST:PORT", i+1)
		}
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("host number %d in the URL has a port that is not a number from 1 to 65535", i+1)
		}
		if host = strings.TrimSpace(host); host == "" && len(hosts) > 1 {
			return nil, emptyHost(i + 1)
		}
		hosts[i] = net.JoinHostPort(host, p)
	}
	return hosts, nil
}

// emptyHost is an error because localhost, in the place of a host whose variable
// is not set, would be another server on every machine: all of them would have the
// same lock.
func emptyHost(number int) error {
	return fmt.Errorf("host number %d in the URL is empty: is a variable not set? Write localhost where you mean it", number)
}

// parseServers is parseAddress where a host has to be named.
func parseServers(text, port string) (address, error) {
	a, err := parseAddress(text, port)
	if err == nil && strings.HasPrefix(a.hosts[0], ":") {
		err = emptyHost(1)
	}
	return a, err
}

// take removes a parameter from the query and returns its value.
func (a *address) take(name string) string {
	value := a.query.Get(name)
	delete(a.query, name)
	return value
}

// boolean takes a parameter that is true or false.
func (a *address) boolean(name string, to *bool) (err error) {
	if text := a.take(name); text != "" {
		if *to, err = strconv.ParseBool(text); err != nil {
			return fmt.Errorf("%s=%q is neither true nor false", name, text)
		}
	}
	return nil
}

// duration takes a parameter that is one.
func (a *address) duration(name string, to *time.Duration) (err error) {
	if text := a.take(name); text != "" {
		if *to, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("%s=%q is not a duration such as 500ms or 1m30s", name, text)
		}
	}
	return nil
}

// wholeUser refuses a user name without a password and the other way round: a
// client that needs both takes one alone for none, and connects as nobody.
func (a *address) wholeUser(scheme string) error {
	if (a.user == "") != (a.pass == "") {
		return fmt.Errorf("%s:// takes a user name and a password, or neither", scheme)
	}
	return nil
}

// nothingLeft refuses parameters that nobody has taken. It shows no values.
func (a *address) nothingLeft(scheme string) error {
	if names := slices.Sorted(maps.Keys(a.query)); len(names) > 0 {
		return fmt.Errorf("%s:// has no parameter %q", scheme, names[0])
	}
	return nil
}

// public is the address as a URL without user name and password, for parsers
// that quote it in their errors.
func (a *address) public(scheme string) string {
	u := url.URL{Scheme: scheme, Host: a.hosts[0], Path: "/" + a.path, RawQuery: a.query.Encode()}
	return u.String()
}
