package doctor_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/lab/testserver"
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

func TestSessionsThatMayBeShorterThanTwoTicksAreADanger(t *testing.T) {
	t.Parallel()
	srv := testserver.ZooKeeperWith(t, 1, "minSessionTimeout=499")[0]
	finds(t, examine(t, zkURL("", srv)), "zookeeper-ticks", "minSessionTimeout is 499 ms", "250 ms")
}
