package zookeeper

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"
)

// newGUID returns what tells our nodes from all others, in the form that the
// recipes use.
func newGUID() (guid [32]byte) {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	hex.Encode(guid[:], b[:])
	return guid
}

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
