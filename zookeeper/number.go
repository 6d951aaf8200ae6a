package zookeeper

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
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

// What comes before the number in the nodes of ours. Other libraries count both.
const (
	writersMark = "-lock-"
	readersMark = "-read-lock-"
)

func markOf(req *driver.Request) string {
	if req.Kind == locker.KindShared {
		return readersMark
	}
	return writersMark
}

// shares reports whether a place is one of our readers'.
func shares(node string) bool { return strings.Contains(node, readersMark) }

// inQueue returns how many of the children are places in the queue, which of them is the
// first, and for which own waits ("" if for none): the one right before it, or, if own is a
// reader's, the last before it that is no reader's. When that has gone, all readers up to the
// next writer can go on.
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
		if own != "" && seq < mine && (ahead == "" || aheadSeq < seq) && (!shares(own) || !shares(node)) {
			ahead, aheadSeq = node, seq
		}
	}
	return places, first, ahead
}

// holding returns the places of those who have the lock, in order: of all readers before
// the first that is no reader's, or that one.
func holding(children []string) (holders []string, places int) {
	places, _, _ = inQueue(children, "")
	writer, writerSeq := "", int64(math.MaxInt64)
	for _, node := range children {
		if seq, ok := sequence(node); ok && !shares(node) && int64(seq) < writerSeq {
			writer, writerSeq = node, int64(seq)
		}
	}
	for _, node := range children {
		if seq, ok := sequence(node); ok && shares(node) && int64(seq) < writerSeq {
			holders = append(holders, node)
		}
	}
	if len(holders) == 0 && writer != "" {
		return []string{writer}, places
	}
	slices.SortFunc(holders, func(a, b string) int {
		m, _ := sequence(a)
		n, _ := sequence(b)
		return cmp.Compare(m, n)
	})
	return holders, places
}
