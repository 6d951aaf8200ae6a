package doctor_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/doctor"
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
	url := redlockURL("?max_ttl=1s", n...)
	oldEnough(t, n)
	fine(t, examine(t, url), "3 nodes, 3 of them answer", "clocks", "uptime", "no two nodes are one server", "persistence (none)")
	finds(t, examine(t, redlockURL("", n...)), doctor.Danger, "up for less than max_ttl, 1m0s", n[0].Addr(), n[2].Addr())
	findsNot(t, examine(t, redlockURL("?durable_nodes=true", n...)), "max_ttl")
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
	r := examine(t, redlockURL("?max_ttl=10m", n...))
	finds(t, r, doctor.Danger, "up for less than max_ttl, 10m0s")
	if i := slices.IndexFunc(r.Findings, func(f doctor.Finding) bool { return strings.Contains(f.Means, "no lock is granted for another 9m") }); i < 0 {
		t.Errorf("it does not say for how long: %+v", r.Findings)
	}
	n[2].Kill()
	n[2].Start()
	r = examine(t, redlockURL("?max_ttl=1s", n...))
	finds(t, r, doctor.Note, "up for less than max_ttl, 1s", n[2].Addr())
	findsNot(t, r, n[0].Addr())
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
	findsNot(t, examine(t, redlockURL("?max_ttl=1s", n...)), "max_ttl")
	for _, s := range n {
		finds(t, examine(t, redlockURL("?max_ttl=2s", n...)), doctor.Danger, s.Addr(), "max_ttl is 2s", "whose max_ttl is 1s")
		finds(t, examine(t, redlockURL("?durable_nodes=true", n...)), doctor.Note, s.Addr(), "durable_nodes is set here", "max_ttl 1s")
	}
	run, _, _ := strings.Cut(n[0].Do("GET", "lockstile:voter"), " ")
	n[0].Do("SET", "lockstile:voter", run+" 600000")
	r := examine(t, redlockURL("?max_ttl=10m", n...))
	finds(t, r, doctor.Danger, "up for less than max_ttl", n[1].Addr(), n[2].Addr())
	findsNot(t, r, "up for less than max_ttl", n[0].Addr())
	n[0].Do("SET", "lockstile:voter", "0123456789 600000")
	findsNot(t, examine(t, redlockURL("?max_ttl=1s", n...)), n[0].Addr(), "whose max_ttl")
	finds(t, examine(t, redlockURL("?max_ttl=10m", n...)), doctor.Danger, "up for less than max_ttl", n[0].Addr())
}

// Nodes are looked at side by side, so that several that hang take no longer than
// one.
func TestNodesThatHangAreWaitedForTogether(t *testing.T) {
	t.Parallel()
	n := nodes(t, 5)
	b, err := open.URL(patience(t), redlockURL("?read_timeout=30s", n...))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, s := range n[:2] {
		s.Pause()
		defer s.Resume()
	}
	r, start := &doctor.Report{}, time.Now()
	if err := b.(doctor.Patient).Examine(patience(t), r); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took >= 20*time.Second {
		t.Errorf("it took %v", took)
	}
	finds(t, r, doctor.Note, n[0].Addr(), "does not answer: no answer within")
	finds(t, r, doctor.Note, n[1].Addr(), "does not answer: no answer within")
	lookedAt(t, r, "5 nodes, 3 of them answer")
}

// What the others have to say is seen before the node that refuses.
func TestNodeThatRefusesThePasswordIsADanger(t *testing.T) {
	t.Parallel()
	n := nodes(t, 3)
	n[2].Do("CONFIG", "SET", "requirepass", "other")
	n[1].Do("CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "volatile-lru")
	r := examineInVain(t, redlockURL("", n...), n[2].Addr(), "NOAUTH")
	finds(t, r, doctor.Danger, n[2].Addr(), "refuses this client: NOAUTH")
	finds(t, r, doctor.Danger, n[1].Addr(), "maxmemory-policy volatile-lru")
}

func TestEvenNumberOfNodesIsNoted(t *testing.T) {
	t.Parallel()
	n := nodes(t, 4)
	finds(t, examine(t, redlockURL("", n...)), doctor.Note, "their number, 4, is even")
	findsNot(t, examine(t, redlockURL("", n[:3]...)), "even")
}

func TestNodesThatAreOneServerAreADanger(t *testing.T) {
	t.Parallel()
	n := nodes(t, 2)
	twin := "localhost" + strings.TrimPrefix(n[0].Addr(), "127.0.0.1")
	r := examineInVain(t, redlockURL("", n...)+","+twin, "are one server")
	finds(t, r, doctor.Danger, n[0].Addr()+" and "+twin+" are one server")
	findsNot(t, r, n[1].Addr(), "one server")
}

func TestDurableNodesThatAreNotAreADanger(t *testing.T) {
	t.Parallel()
	n := append(nodes(t, 2, "--appendonly", "yes", "--appendfsync", "always"), nodes(t, 1, "--appendonly", "yes", "--appendfsync", "everysec")...)
	r := examine(t, redlockURL("?durable_nodes=true", n...))
	finds(t, r, doctor.Danger, n[2].Addr(), "durable_nodes is set", "synced everysec")
	findsNot(t, r, n[0].Addr(), "durable_nodes")
	findsNot(t, examine(t, redlockURL("", n...)), "durable_nodes")
}

func TestEachNodeIsLookedAt(t *testing.T) {
	t.Parallel()
	n := nodes(t, 5)
	n[1].Do("CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "volatile-lru")
	host, port, _ := strings.Cut(n[0].Addr(), ":")
	n[2].Do("REPLICAOF", host, port)
	n[0].Await("its replica", func() bool { return strings.Contains(n[0].Do("INFO", "replication"), "connected_slaves:1\r") })
	n[3].Kill()
	r := examine(t, redlockURL("", n...))
	finds(t, r, doctor.Danger, n[0].Addr(), "1 replicas")
	finds(t, r, doctor.Danger, n[1].Addr(), "maxmemory-policy volatile-lru")
	finds(t, r, doctor.Danger, n[2].Addr(), "is a replica of "+n[0].Addr())
	finds(t, r, doctor.Note, n[3].Addr(), "does not answer")
	findsNot(t, r, n[4].Addr()+" ") // the one that is sane, where the finding is its own
	lookedAt(t, r, "5 nodes, 4 of them answer")
}

// The clock is stepped by a library that is loaded in front of the C library.
func TestClocksThatDifferAreFound(t *testing.T) {
	t.Parallel()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	dir := t.TempDir()
	lib, offset := filepath.Join(dir, "clock.so"), filepath.Join(dir, "offset")
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-o", lib, "../testbed/shim/clock.c", "-ldl").CombinedOutput(); err != nil {
		t.Skipf("no C library to build against: %s", out)
	}
	n := nodes(t, 2)
	n = append(n, testserver.RedisWithEnv(t, []string{"LD_PRELOAD=" + lib, "LOCKSTILE_CLOCK_OFFSET=" + offset}))
	apart := func(d time.Duration) *doctor.Report {
		if err := os.WriteFile(offset+".new", []byte(durationText(d)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(offset+".new", offset); err != nil {
			t.Fatal(err)
		}
		return examine(t, redlockURL("", n...))
	}
	r := apart(40 * time.Second)
	finds(t, r, doctor.Danger, n[2].Addr(), "the clocks of", "apart")
	finds(t, r, doctor.Note, n[2].Addr(), "its clock is", "ahead of this machine's")
	r = apart(-20 * time.Second)
	finds(t, r, doctor.Note, n[2].Addr(), "the clocks of", "apart")
	finds(t, r, doctor.Note, n[2].Addr(), "its clock is", "behind this machine's")
	findsNot(t, apart(0), "clock")
}

func durationText(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
