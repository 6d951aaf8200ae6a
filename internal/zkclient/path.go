package zkclient

import (
	"fmt"
	"net/url"
	"path"
	"strings"
	"unicode/utf8"
)

// Escape makes one element of a path of a name. Names of plain characters
// stay as they are, so that locks of other libraries can be named; what
// ZooKeeper refuses in a path, the slash and the percent sign become %XX for
// each byte.
func Escape(name string) string {
	if name == "." || name == ".." {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	if !strings.ContainsFunc(name, func(r rune) bool { return !allowed(r) }) {
		return name
	}
	var b strings.Builder
	for i, r := range name {
		if allowed(r) {
			b.WriteRune(r)
			continue
		}
		for _, c := range []byte(name[i : i+len(string(r))]) {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// Unescape is Escape backwards. It reports false for what Escape makes of no name.
func Unescape(node string) (name string, ok bool) {
	name, err := url.PathUnescape(node)
	return name, err == nil && utf8.ValidString(name) && Escape(name) == node
}

// allowed reports whether r may stand in a path element. The server checks
// UTF-16, so everything beyond the basic plane is refused as well.
func allowed(r rune) bool {
	switch {
	case r == '%' || r == '/':
		return false
	case r < 0x20 || r >= 0x7f && r < 0xa0:
		return false
	case r >= 0xd800 && r < 0xf900 || r >= 0xfff0:
		return false
	}
	return true
}

// CheckBase returns an error unless base is a path below which nodes can be made.
func CheckBase(base string) error {
	switch {
	case !strings.HasPrefix(base, "/") || base == "/" || path.Clean(base) != base:
		return fmt.Errorf("the base %q is not a path such as /locks", base)
	case base == "/zookeeper" || strings.HasPrefix(base, "/zookeeper/"):
		return fmt.Errorf("the base %q belongs to ZooKeeper itself: choose another, such as /locks", base)
	}
	for _, r := range base {
		if r != '/' && r != '%' && !allowed(r) {
			return fmt.Errorf("the base %q has the character %q, which ZooKeeper refuses", base, r)
		}
	}
	return nil
}
