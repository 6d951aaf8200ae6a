package zookeeper

import (
	"math"
	"strconv"
	"strings"
)

// sequence reads the number of a place in the queue, whichever library made the node:
// Curator and zk write lock-0000000042, kazoo writes __lock__0000000042. The server
// counts it in an int32.
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

// numbered reports whether a place has a number of its own. The server counts the
// children that a queue has ever had, and its count sticks at the largest int32:
// everybody who comes later gets that number, or one below zero in the middle of
// other requests.
func numbered(node string) bool {
	n, ok := sequence(node)
	return ok && n >= 0 && n < math.MaxInt32
}

// inQueue returns how many of the children are places in the queue, which of them is the
// first, and which comes right before own ("" if none does).
func inQueue(children []string, own string) (places int, first, ahead string) {
	mine, _ := sequence(own)
	var firstSeq, aheadSeq int32
	for _, node := range children {
		seq, ok := sequence(node)
		if !ok {
			continue
		}
		places++
		if first == "" || seq < firstSeq {
			first, firstSeq = node, seq
		}
		if own != "" && seq < mine && (ahead == "" || aheadSeq < seq) {
			ahead, aheadSeq = node, seq
		}
	}
	return places, first, ahead
}
