package doctor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/open"
)

func redlockURL(query string, nodes ...*testserver.RedisServer) string {
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.Addr())
	}
	return "redlock://" + strings.Join(addrs, ",") + query
}

func nodes(t *testing.T, n int, args ...string) (all []*testserver.RedisServer) {
	t.Helper()
	for range n {
		all = append(all, testserver.Redis(t, args...))
	}
	return all
}

// What nodes keep on disk does not matter: the rule for restarts covers it. The
// age that they must have is that of the servers.
func TestSaneRedlockIsFine(t *testing.T) {
	t.Parallel()
	n := nodes(t, 3)
	oldEnough(t, n)
	fine(t, examine(t, redlockURL("?max_ttl=1s", n...)), "answers (3 of 3 nodes)", "clocks", "uptime", "persistence")
	finds(t, examine(t, redlockURL("", n...)), "redlock-young", "up for less than max_ttl, 1m0s", n[0].Addr(), n[2].Addr())
	findsNot(t, examine(t, redlockURL("?durable_nodes=true", n...)), "redlock-young")
}

func oldEnough(t *testing.T, nodes []*testserver.RedisServer) {
	t.Helper()
	for _, s := range nodes {
		s.Await("its second second", func() bool {
			return !strings.Contains(s.Do("INFO", "server"), "uptime_in_seconds:0\r") && !strings.Contains(s.Do("INFO", "server"), "uptime_in_seconds:1\r")
		})
	}
}

// While no majority may vote, there are no locks, and nobody should look for
// another reason.
func TestNodesTooYoungToVoteAreADangerUntilAMajorityMay(t *testing.T) {
	t.Parallel()
	n := nodes(t, 3)
	oldEnough(t, n)
	finds(t, examine(t, redlockURL("?max_ttl=10m", n...)), "redlock-young", "max_ttl, 10m0s", "no lock is granted for another 9m")
	n[2].Kill()
	n[2].Start()
	findsNot(t, examine(t, redlockURL("?max_ttl=1s", n...)), "redlock-young")
}

// A node that was old enough for this max_ttl once keeps its vote, and says for
// which one that was.
func TestMaxTTLThatDiffersBetweenClientsIsADanger(t *testing.T) {
	t.Parallel()
	n := nodes(t, 3)
	oldEnough(t, n)
	b, err := open.URL(patience(t), redlockURL("?max_ttl=1s", n...))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, s := range n {
		s.Await("its vote", func() bool { // a machine that is slow may need several for one
			if lock, err := b.TryLock(patience(t), "a", locker.WithTTL(time.Second)); err == nil {
				_ = lock.Unlock(patience(t))
			}
			return s.Do("EXISTS", "lockstile:voter") == "1"
		})
	}
	findsNot(t, examine(t, redlockURL("?max_ttl=1s", n...)), "redlock-max-ttl")
	r := examine(t, redlockURL("?max_ttl=2s", n...))
	for _, s := range n {
		finds(t, r, "redlock-max-ttl", s.Addr(), "max_ttl is 2s", "whose max_ttl is 1s")
	}
	findsNot(t, examine(t, redlockURL("?max_ttl=2s&durable_nodes=true", n...)), "redlock-max-ttl") // such nodes vote at once
	run, _, _ := strings.Cut(n[0].Do("GET", "lockstile:voter"), " ")
	n[0].Do("SET", "lockstile:voter", run+" 600000")
	r = examine(t, redlockURL("?max_ttl=10m", n...))
	finds(t, r, "redlock-young", n[1].Addr(), n[2].Addr())
	findsNot(t, r, "redlock-young", n[0].Addr())
	n[0].Do("SET", "lockstile:voter", "0123456789 600000")
	findsNot(t, examine(t, redlockURL("?max_ttl=1s", n...)), "redlock-max-ttl", n[0].Addr())
	finds(t, examine(t, redlockURL("?max_ttl=10m", n...)), "redlock-young", n[0].Addr())
}

// Two of five keep their vote, and one more would be a majority. That some are down changes nothing.
func TestMajorityIsOneOfAllNodesAndNotOfThoseThatAnswer(t *testing.T) {
	t.Parallel()
	n := nodes(t, 5)
	n[0].Kill()
	n[1].Kill()
	for _, s := range n[2:4] {
		_, run, _ := strings.Cut(s.Do("INFO", "server"), "run_id:")
		run, _, _ = strings.Cut(run, "\r")
		s.Do("SET", "lockstile:voter", run+" 600000")
	}
	r := examine(t, redlockURL("?max_ttl=10m", n...))
	finds(t, r, "redlock-young", n[4].Addr())
	findsNot(t, r, "redlock-young", n[3].Addr())
}

// Nodes are looked at side by side, so that several that hang take no longer than
// one.
func TestNodesThatHangAreWaitedForTogether(t *testing.T) {
	t.Parallel()
	n := nodes(t, 5)
	for _, s := range n[:2] {
		s.Pause()
		defer s.Resume()
	}
	start := time.Now()
	r := examine(t, redlockURL("?read_timeout=30s", n...))
	if took := time.Since(start); took >= 20*time.Second {
		t.Errorf("it took %v", took)
	}
	finds(t, r, "redlock-silent", n[0].Addr(), "no answer within")
	finds(t, r, "redlock-silent", n[1].Addr(), "no answer within")
}

// What the others have to say is seen before the node that refuses.
func TestNodeThatRefusesThePasswordIsFoundAmongTheOthers(t *testing.T) {
	t.Parallel()
	n := nodes(t, 3)
	n[2].Do("CONFIG", "SET", "requirepass", "other")
	n[1].Do("CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "volatile-lru")
	r := examineInVain(t, redlockURL("", n...), n[2].Addr(), "NOAUTH")
	finds(t, r, "redlock-silent", n[2].Addr(), "NOAUTH")
	finds(t, r, "redis-evicts", n[1].Addr())
	for _, s := range n[:2] {
		s.Do("CONFIG", "SET", "requirepass", "sesame")
	}
	r = examineInVain(t, strings.Replace(redlockURL("", n...), "//", "//:sesame@", 1), n[2].Addr(), "WRONGPASS")
	finds(t, r, "redlock-silent", n[2].Addr(), "WRONGPASS")
}

// Half of the nodes are no majority. What the others say is seen all the same.
func TestNodesWhoseMajorityIsGoneAreNamed(t *testing.T) {
	t.Parallel()
	n := nodes(t, 4)
	n[2].Kill()
	n[3].Kill()
	r := examineInVain(t, redlockURL("", n...), n[2].Addr(), n[3].Addr())
	finds(t, r, "redlock-silent", n[2].Addr())
	finds(t, r, "redlock-silent", n[3].Addr())
	finds(t, r, "quorum-even", "4")
	findsNot(t, r, "redlock-silent", n[0].Addr())
}

func TestDurableNodesThatAreNotAreADanger(t *testing.T) {
	t.Parallel()
	n := append(nodes(t, 2, "--appendonly", "yes", "--appendfsync", "always"), nodes(t, 1, "--appendonly", "yes", "--appendfsync", "everysec")...)
	r := examine(t, redlockURL("?durable_nodes=true", n...))
	finds(t, r, "redlock-durable", n[2].Addr(), "appendfsync everysec")
	findsNot(t, r, "redlock-durable", n[0].Addr())
	findsNot(t, examine(t, redlockURL("", n...)), "redlock-durable")
}

func TestEachNodeIsLookedAt(t *testing.T) {
	t.Parallel()
	n := nodes(t, 6)
	host, port, _ := strings.Cut(n[0].Addr(), ":")
	n[1].Do("REPLICAOF", host, port)
	n[0].Await("its replica", func() bool { return strings.Contains(n[0].Do("INFO", "replication"), "connected_slaves:1\r") })
	n[2].Do("ACL", "SETUSER", "default", "-info")
	n[3].Kill()
	n[4].Do("ACL", "SETUSER", "default", "-time")
	r := examine(t, redlockURL("", n...))
	finds(t, r, "redlock-failover", n[0].Addr(), "replicas (1)")
	finds(t, r, "redis-replica", n[1].Addr(), "is a replica of "+n[0].Addr())
	finds(t, r, "redlock-info", n[2].Addr())
	finds(t, r, "redlock-silent", n[3].Addr())
	finds(t, r, "quorum-even", "6")
	findsNot(t, r, "redis-replica", n[4].Addr())
	finds(t, r, "redis-rights", n[4].Addr(), "TIME")
	findsNot(t, r, "redlock-silent", n[4].Addr())
}

// The clock is stepped by a library that is loaded in front of the C library.
func TestClocksThatDifferAreFound(t *testing.T) {
	t.Parallel()
	clock := testserver.NewClock(t)
	if err := clock.Step(40 * time.Second); err != nil {
		t.Fatal(err)
	}
	n := append(nodes(t, 2), testserver.RedisWithEnv(t, clock.Env()))
	finds(t, examine(t, redlockURL("", n...)), "redlock-clocks", n[2].Addr())
	findsNot(t, examine(t, redlockURL("?max_ttl=10m", n...)), "redlock-clocks")
	findsNot(t, examine(t, redlockURL("?durable_nodes=true", n...)), "redlock-clocks") // which lose no data
}
