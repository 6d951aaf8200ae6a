package zookeeper

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/zkclient"
)

// The name can be read from its node's, so no two names share a queue; and no node is read as
// the queue of a name that has another one.
func FuzzNameHasANodeOfItsOwn(f *testing.F) {
	for _, name := range []string{"invoices/42", ".", "..", "...", "%2E", "%", "a\nb", "\ue000", "\uffff", "🔒", "\u0080", "a/../b"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if back, ok := zkclient.Unescape(text); ok && zkclient.Escape(back) != text {
			t.Errorf("%q is taken for the node of %q, which has %q", text, back, zkclient.Escape(back))
		}
		if locker.CheckName(text) != nil {
			return
		}
		node := zkclient.Escape(text)
		if strings.ContainsAny(node, "/\x00") || node == "." || node == ".." || strings.ContainsFunc(node, beyond) {
			t.Errorf("%q has the node %q, which no server takes", text, node)
		}
		if back, ok := zkclient.Unescape(node); !ok || back != text {
			t.Errorf("%q has the node %q, which is read as %q, %t", text, node, back, ok)
		}
	})
}

// beyond is what PathUtils of ZooKeeper refuses, by UTF-16 units.
func beyond(r rune) bool {
	return r > 0 && r <= 0x1f || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0
}

// Whatever is below a queue, one writer or some readers have the lock, those who do wait for
// nobody, and everybody else waits for somebody who came before. Two nodes with one number are no
// children of a queue that only servers number.
func FuzzQueueWithAnyNodes(f *testing.F) {
	f.Add("_c_1-lock-0000000007/_c_2-read-lock-0000000003/lock-0000000005/leases/ffee__lock__0000000004")
	f.Add("_c_0-read-lock-0000000001/_c_1-read-lock-0000000002/_c_2-lock--2147483648")
	f.Add("lock-2147483647/lock--1/__9/-lock-1/read-lock-+3/lock-9999999999")
	f.Fuzz(func(t *testing.T, text string) {
		children := strings.Split(text, "/")
		var queue []string
		numbers := make(map[int32]bool)
		for _, node := range children {
			if n, ok := sequence(node); ok {
				if numbers[n] {
					t.Skip("a number twice")
				}
				numbers[n], queue = true, append(queue, node)
			}
		}
		holders, places := holding(children)
		if places != len(queue) || (places > 0) != (len(holders) > 0) {
			t.Fatalf("%q: %d places, held by %q", children, places, holders)
		}
		for _, own := range queue {
			mine, _ := sequence(own)
			_, _, ahead := inQueue(children, own)
			before, there := sequence(ahead)
			if holds := slices.Contains(holders, own); holds != (ahead == "") || holds && len(holders) > 1 && !shares(own) {
				t.Errorf("%q: %q waits for %q, and %q have the lock", children, own, ahead, holders)
			}
			if ahead != "" && (!there || before >= mine || !slices.Contains(children, ahead)) {
				t.Errorf("%q: %q waits for %q", children, own, ahead)
			}
		}
	})
}

// Whatever a server answers to the request that makes a place is an error, or a place of this
// queue that has a number of its own. Its zxid makes no token, or one that is greater than those
// of all zxids before it.
func FuzzAnswerToTheRequestForAPlace(f *testing.F) {
	const path = "/lockstile/x/_c_0123-lock-"
	f.Add(path+"0000000007", int64(1<<33), int64(5), int32(1), 3)
	f.Add(path+"2147483647", int64(1<<33), int64(1<<32), int32(2), 3)
	f.Add("/elsewhere", int64(-1), int64(0), int32(-1), 3)
	f.Add(path, int64(math.MaxInt64), int64(1<<54-1), int32(1), 2)
	f.Fuzz(func(t *testing.T, made string, mzxid, czxid int64, children int32, results int) {
		a := &attempt{queue: "/lockstile/x", path: path}
		answer := []zk.MultiResponse{{}, {String: made}, {Stat: &zk.Stat{Mzxid: mzxid, Czxid: czxid, NumChildren: children}}, {}}
		err := a.note(answer[:max(0, min(results, len(answer)))])
		if err == nil && (!strings.HasPrefix(a.path, path) || !numbered(a.node()) || strings.HasSuffix(made, "-2147483647") || a.zxid != mzxid) {
			t.Errorf("%q is a place: %+v", made, a)
		}
		if err == nil && results != 3 {
			t.Errorf("%d results are an answer", results)
		}
		token, err := firstToken(mzxid)
		earlier, none := firstToken(mzxid - 1)
		switch {
		case (err == nil) != (mzxid > 0 && mzxid < 1<<54), err == nil && token == 0:
			t.Errorf("zxid %d: token %d, %v", mzxid, token, err)
		case err == nil && none == nil && token < earlier+tokens:
			t.Errorf("zxid %d: token %d, and %d before", mzxid, token, earlier)
		}
	})
}

// What a node says is read as it was written. Of anybody's bytes no text is taken that is none
// of ours, and no time that has passed.
func FuzzTextInANode(f *testing.F) {
	f.Add("host:1", int64(10*time.Second), []byte("host:1\n10s"))
	f.Add("", int64(time.Millisecond), []byte("x\n-5s"))
	f.Add("x", int64(1), []byte("\n\n1h"))
	f.Fuzz(func(t *testing.T, holder string, timeout int64, data []byte) {
		if text, left := readData(data); left < 0 || text != "" && !strings.Contains(string(data), "\n") {
			t.Errorf("%q: %q, %v", data, text, left)
		}
		if strings.Contains(holder, "\n") || timeout < 0 {
			return // no holder's text has a line's end
		}
		if text, left := readData(nodeData(holder, time.Duration(timeout))); text != holder || int64(left) != timeout {
			t.Errorf("%q, %v: read as %q, %v", holder, time.Duration(timeout), text, left)
		}
	})
}
