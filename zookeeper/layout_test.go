package zookeeper_test

import (
	"errors"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/zookeeper"
)

// A later version of Lockstile may keep readers in another way. Its nodes then have another
// mark than ours, and we must take what has such a node for a stranger who holds the lock alone.
func TestMarkOfALaterLayoutExcludesEveryKind(t *testing.T) {
	c := newClient(t, sessionTimeout, server(t).Addr())
	for kind, opts := range map[string][]locker.Option{"exclusive": nil, "shared": {locker.WithShared()}} {
		t.Run(kind, func(t *testing.T) {
			keepEmpty(t, c.conn, kind)
			later, err := c.conn.Create(zookeeper.DefaultBase+"/"+kind+"/_c_1-read2-lock-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			if err != nil {
				t.Fatal(err)
			}
			if held, err := c.TryLock(soon(t), kind, opts...); !errors.Is(err, locker.ErrTaken) {
				t.Fatalf("TryLock: %v, %v; want taken", held, err)
			}
			if err := c.conn.Delete(later, -1); err != nil {
				t.Fatalf("the node of the later layout: %v", err)
			}
			unlock(t, lock(t, c, kind, opts...))
		})
	}
}
