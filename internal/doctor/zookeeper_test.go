package doctor_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/open"
)

func zkURL(user string, servers ...*testserver.ZooKeeperServer) string {
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	return "zk://" + user + strings.Join(addrs, ",")
}

func TestEnsembleOfThreeIsFineAndWithOneDownThatIsNoted(t *testing.T) {
	t.Parallel()
	servers := testserver.ZooKeeper(t, 3)
	url := zkURL("app:sesame@", servers...)
	fine(t, examine(t, url), "servers that vote (3)", "leader", "follower", "session timeout (10s)", "session timeouts from", "who may touch")
	r := examine(t, zkURL("", servers[:2]...))
	finds(t, r, "quorum-unnamed", "2 of 3 servers")
	finds(t, r, "zookeeper-open")
	servers[2].Kill()
	for { // until the other two have agreed on a leader
		b, err := open.URL(patience(t), url)
		if err == nil {
			_ = b.Close()
			break
		}
		if !errors.Is(err, locker.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	r = examine(t, url)
	finds(t, r, "quorum-silent", servers[2].Addr())
	findsNot(t, r, "quorum-silent", servers[1].Addr())
}

func TestLonelyZooKeeperAndTheSessionThatItGrants(t *testing.T) {
	t.Parallel()
	srv := testserver.ZooKeeper(t, 1)[0]
	r := examine(t, zkURL("", srv)+"?session_timeout=100s")
	finds(t, r, "quorum-of-one")
	finds(t, r, "zookeeper-session", "1m40s was asked for, and 1m0s was granted")
	findsNot(t, examine(t, zkURL("", srv)), "zookeeper-session")
	b, err := open.URL(patience(t), zkURL("app:sesame@", srv))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	lock, err := b.Lock(patience(t), "x") // which makes the base
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(patience(t)); err != nil {
		t.Fatal(err)
	}
	findsNot(t, examine(t, zkURL("app:sesame@", srv)), "zookeeper-open")
}

// Whoever may read the node below which the locks are does no harm.
func TestNodeThatAnybodyMayChangeIsFound(t *testing.T) {
	t.Parallel()
	srv := testserver.ZooKeeper(t, 1)[0]
	conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	own := zk.DigestACL(zk.PermAll, "app", "sesame")
	for path, anybody := range map[string]int32{"/read": zk.PermRead, "/write": zk.PermWrite, "/create": zk.PermCreate, "/delete": zk.PermDelete, "/admin": zk.PermAdmin} {
		if _, err := conn.Create(path, nil, 0, append(zk.WorldACL(anybody), own...)); err != nil {
			t.Fatal(err)
		}
		r := examine(t, zkURL("app:sesame@", srv)+path)
		if path == "/read" {
			findsNot(t, r, "zookeeper-open")
		} else {
			finds(t, r, "zookeeper-open", "below "+path)
		}
	}
	if _, err := conn.Create("/own", nil, 0, own); err != nil {
		t.Fatal(err)
	}
	finds(t, examineInVain(t, zkURL("other:sesame@", srv)+"/own"), "unseen", "who may touch /own")
}

func TestSessionsThatMayBeShorterThanTwoTicksAreADanger(t *testing.T) {
	t.Parallel()
	srv := testserver.ZooKeeperWith(t, 1, "minSessionTimeout=499")[0]
	finds(t, examine(t, zkURL("", srv)), "zookeeper-ticks", "minSessionTimeout is 499 ms", "250 ms")
}
