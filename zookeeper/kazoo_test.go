package zookeeper_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/zookeeper"
)

// kazoo is the Lock of kazoo 2.11.0 (kazoo/recipe/lock.py) as far as requests and
// its rule go: Lock.__init__ (the prefix, and which nodes are contenders),
// _inner_acquire (create) and _get_predecessor.
type kazoo struct {
	t          *testing.T
	conn       *zk.Conn
	path       string
	prefix     string
	contenders *regexp.Regexp
	node       string
}

func newKazoo(t *testing.T, conn *zk.Conn, path string, extraLockPatterns ...string) *kazoo {
	patterns := append([]string{"__lock__"}, extraLockPatterns...)
	return &kazoo{
		t: t, conn: conn, path: path,
		prefix:     "0c5af3b7f4d04a2f8a4d3f6cbbb0d9e1__lock__", // uuid4().hex + _NODE_NAME
		contenders: regexp.MustCompile(`(?:` + strings.Join(patterns, "|") + `)(-?\d{10})$`),
	}
}

// acquire is acquire(blocking=False) but for its end: a lock that is not acquired
// leaves its node, as one that waits does.
func (k *kazoo) acquire() bool {
	k.t.Helper()
	path, err := k.conn.Create(k.path+"/"+k.prefix, nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	if err != nil {
		k.t.Fatal(err)
	}
	k.node = path[len(k.path)+1:]
	return k.isFirst()
}

// isFirst is _get_predecessor: sequence numbers are compared as text.
func (k *kazoo) isFirst() bool {
	k.t.Helper()
	children, _, err := k.conn.Children(k.path)
	if err != nil {
		k.t.Fatal(err)
	}
	own := k.node[len(k.prefix):]
	for _, child := range children {
		if match := k.contenders.FindStringSubmatch(child); match != nil && match[1] < own {
			return false
		}
	}
	return true
}

func (k *kazoo) release() {
	k.t.Helper()
	if err := k.conn.Delete(k.path+"/"+k.node, -1); err != nil {
		k.t.Fatal(err)
	}
}

// As it comes, kazoo's Lock takes no notice of ours; told of our pattern, it
// does. We take notice of it in any case.
func TestKazoosLockExcludesUsOnlyIfItIsToldOfOurNodes(t *testing.T) {
	t.Parallel()
	s := server(t)
	c, other := newClient(t, sessionTimeout, s.Addr()), newClient(t, sessionTimeout, s.Addr()).conn
	for i, k := range []struct {
		patterns []string
		excluded bool
	}{
		{nil, false},
		{[]string{"-lock-"}, true},
		{[]string{"__rlock__", "-lock-"}, true},
	} {
		name := fmt.Sprint(i)
		lock1 := newKazoo(t, other, zookeeper.DefaultBase+"/"+name, k.patterns...)
		held := lock(t, c, name)
		if got := !lock1.acquire(); got != k.excluded {
			t.Errorf("with the patterns %q, beside a lock of ours: excluded is %v, want %v", k.patterns, got, k.excluded)
		}
		unlock(t, held)
		if !lock1.isFirst() {
			t.Errorf("with the patterns %q, when ours is free: not acquired", k.patterns)
		}
		if _, err := c.TryLock(soon(t), name); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("ours, beside kazoo's: %v", err)
		}
		lock1.release()
		unlock(t, lock(t, c, name))
	}
}
