package zookeeper

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// escape makes one element of a path of a lock's name. Names of plain characters
// stay as they are, so that locks of other libraries can be named; what
// ZooKeeper refuses in a path, the slash and the percent sign become %XX for
// each byte.
func escape(name string) string {
	if name == "." || name == ".." {
		return strings.ReplaceAll(name, ".", "%2E")
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

// checkBase returns an error unless base is a path below which nodes can be made.
func checkBase(base string) error {
	switch {
	case !strings.HasPrefix(base, "/") || base == "/" || path.Clean(base) != base:
		return fmt.Errorf("zookeeper: the base %q is not a path such as /locks", base)
	case base == "/zookeeper" || strings.HasPrefix(base, "/zookeeper/"):
		return fmt.Errorf("zookeeper: the base %q belongs to ZooKeeper itself: choose another, such as /locks", base)
	}
	for _, r := range base {
		if r != '/' && r != '%' && !allowed(r) {
			return fmt.Errorf("zookeeper: the base %q has the character %q, which ZooKeeper refuses", base, r)
		}
	}
	return nil
}

// newGUID returns what tells our nodes from all others, in the form that the
// recipes use.
func newGUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// nodePrefix is how the names of an attempt's nodes begin; the server appends
// the sequence number.
func nodePrefix(guid string) string { return "_c_" + guid + "-lock-" }

// sequence reads the number of a place in the queue, whoever made the node:
// Curator and zk write lock-0000000042, kazoo writes __lock__0000000042. It is
// what the server counted, an int32 that starts again below zero after its
// largest.
func sequence(node string) (int32, bool) {
	at := strings.LastIndex(node, "lock-")
	end := at + len("lock-")
	if at < 0 {
		at = strings.LastIndex(node, "__")
		end = at + len("__")
	}
	if at < 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(node[end:], 10, 32)
	return int32(n), err == nil
}

// before orders sequence numbers, also across the overflow: places in one queue
// are never two thousand million apart.
func before(a, b int32) bool { return a-b < 0 }

// inLine returns those of the children that are places in the queue, and which
// of them is the first, and which comes right before own ("" if none does).
func inLine(children []string, own string) (places int, first, ahead string) {
	mine, _ := sequence(own)
	var firstSeq, aheadSeq int32
	for _, node := range children {
		seq, ok := sequence(node)
		if !ok {
			continue
		}
		places++
		if first == "" || before(seq, firstSeq) {
			first, firstSeq = node, seq
		}
		if own != "" && before(seq, mine) && (ahead == "" || before(aheadSeq, seq)) {
			ahead, aheadSeq = node, seq
		}
	}
	return places, first, ahead
}
