package doctor_test

import (
	"net"
	"strings"
	"testing"

	"github.com/lockstile/locker/internal/doctor"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/open"
)

// saneRedis starts a server that forgets nothing.
func saneRedis(t *testing.T, args ...string) *testserver.RedisServer {
	t.Helper()
	return testserver.Redis(t, append([]string{"--appendonly", "yes", "--appendfsync", "always"}, args...)...)
}

func TestSaneRedisIsFineAndStaysAsItIs(t *testing.T) {
	t.Parallel()
	srv := saneRedis(t)
	fine(t, examine(t, "redis://"+srv.Addr()+"?prefix=app:"),
		"eviction", "persistence", "role master", "timeout", "version", "clock", "access")
	if keys := srv.Do("KEYS", "*"); keys != "" {
		t.Errorf("it has left %s", keys)
	}
	if changes := srv.Do("INFO", "persistence"); !strings.Contains(changes, "rdb_changes_since_last_save:0\r") {
		t.Errorf("it has changed something:\n%s", changes)
	}
}

func TestEvictionOfLocksIsADanger(t *testing.T) {
	t.Parallel()
	srv := saneRedis(t, "--maxmemory", "100mb")
	url := "redis://" + srv.Addr()
	for _, policy := range []string{"allkeys-lru", "allkeys-random", "volatile-lru", "volatile-ttl", "volatile-lfu"} {
		srv.Do("CONFIG", "SET", "maxmemory-policy", policy)
		finds(t, examine(t, url), doctor.Danger, srv.Addr(), "maxmemory-policy "+policy)
	}
	srv.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	findsNot(t, examine(t, url), "memory")
	srv.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru", "maxmemory", "0")
	findsNot(t, examine(t, url), "memory")
	srv.Do("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "1mb")
	finds(t, examine(t, url), doctor.Note, "of 1 MB of its memory are used")
}

func TestPersistenceSaysWhatACrashForgets(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"danger none":                                        {"--save", ""},
		"danger snapshots (save 3600 1)":                     {"--save", "3600 1"},
		"note append-only file, synced everysec":             {"--appendonly", "yes", "--appendfsync", "everysec"},
		"note append-only file, synced no":                   {"--appendonly", "yes", "--appendfsync", "no"},
		"note append-only file, how often it is synced is u": {"--appendonly", "yes", "--rename-command", "CONFIG", ""},
	} {
		severity, kept, _ := strings.Cut(want, " ")
		srv := testserver.Redis(t, args...)
		finds(t, examine(t, "redis://"+srv.Addr()), doctor.Severity(severity), "keeps on disk: "+kept)
	}
}

func TestReplicasThatConfirmNothingAreADanger(t *testing.T) {
	t.Parallel()
	master := saneRedis(t, "--repl-diskless-sync-delay", "0")
	url := "redis://" + master.Addr()
	finds(t, examine(t, url+"?replicas=1"), doctor.Danger, "0 replicas, and 1 must confirm")
	host, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		t.Fatal(err)
	}
	replica := saneRedis(t, "--replicaof", host, port)
	master.Await("the replica", func() bool { return master.Do("WAIT", "1", "100") == "1" })
	finds(t, examine(t, url), doctor.Danger, "1 replicas, of which 0 confirm")
	fine(t, examine(t, url+"?replicas=1"), "1 replicas")
	finds(t, examine(t, "redis://"+replica.Addr()), doctor.Danger, replica.Addr(), "is a replica of "+master.Addr())
}

func TestConnectionsThatAreCutOrNeverProbedAreNoted(t *testing.T) {
	t.Parallel()
	srv := saneRedis(t, "--timeout", "7", "--tcp-keepalive", "0")
	r := examine(t, "redis://"+srv.Addr())
	finds(t, r, doctor.Note, "idle for 7 s (timeout)")
	finds(t, r, doctor.Note, "tcp-keepalive 0")
}

func TestUserWhoMayNotDoWhatLocksNeedIsADanger(t *testing.T) {
	t.Parallel()
	srv := saneRedis(t)
	const base = "+@all -@admin +config|get"
	for want, rules := range map[string]string{
		"danger the locks' bookkeeping: NOPERM": base + " ~app:* &*",
		"danger locks themselves: NOPERM":       base + " ~lockstile:* &*",
		"danger may not subscribe":              base + " ~* &lockstile:w -publish",
		"danger PUBLISH":                        base + " ~* &* -publish",
		"danger ZPOPMIN":                        base + " ~* &* -zpopmin",
		"danger run the 'eval'":                 base + " ~* &* -@scripting",
		"note INFO could not be looked at":      base + " ~* &* -info",
		"note CONFIG could not be looked at":    base + " ~* &* -config|get",
		"danger run the 'evalsha'":              base + " ~* &* -evalsha",
		"danger locks' bookkeeping: TIME: ERR":  base + " ~* &* -time",
	} {
		srv.Do(append([]string{"ACL", "SETUSER", "app", "reset", "on", ">sesame"}, strings.Fields(rules)...)...)
		r := examine(t, "redis://app:sesame@"+srv.Addr()+"?prefix=app:")
		severity, what, _ := strings.Cut(want, " ")
		finds(t, r, doctor.Severity(severity), what)
		if strings.Contains(list(r), "sesame") {
			t.Errorf("the password is shown:\n%s", list(r))
		}
	}
	srv.Do(append([]string{"ACL", "SETUSER", "app", "reset", "on", ">sesame", "~lockstile:*", "&lockstile:*", "~app:*"}, strings.Fields(base)...)...)
	fine(t, examine(t, "redis://app:sesame@"+srv.Addr()+"?prefix=app:"), "access")
}

func TestClusterIsLookedAtMasterByMaster(t *testing.T) {
	t.Parallel()
	servers := testserver.RedisCluster(t, 3)
	for _, s := range servers {
		s.Do("CONFIG", "SET", "appendonly", "yes", "appendfsync", "always")
	}
	servers[1].Do("CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
	servers[2].Do("CONFIG", "SET", "cluster-allow-reads-when-down", "yes")
	r := examine(t, "redis-cluster://"+servers[0].Addr())
	finds(t, r, doctor.Danger, servers[1].Addr(), "maxmemory-policy")
	finds(t, r, doctor.Note, servers[2].Addr(), "cluster-allow-reads-when-down")
	finds(t, r, doctor.Note, servers[0].Addr(), "no replica")
	findsNot(t, r, servers[0].Addr(), "maxmemory")
	findsNot(t, r, "state of the cluster")
	findsNot(t, r, "as if it stood alone")
	lookedAt(t, r, "cluster (state ok)")
	finds(t, examine(t, "redis://"+servers[0].Addr()), doctor.Danger, "as if it stood alone")
}

func TestClusterThatIsDownIsADanger(t *testing.T) {
	t.Parallel()
	servers := testserver.RedisCluster(t, 3)
	servers[0].Do("CLUSTER", "DELSLOTS", "0")
	servers[0].Await("the state", func() bool { return strings.Contains(servers[0].Do("CLUSTER", "INFO"), "cluster_state:fail") })
	finds(t, examine(t, "redis-cluster://"+servers[0].Addr()), doctor.Danger, servers[0].Addr(), "state of the cluster is fail")
}

func TestServerThatStopsAnsweringIsAnError(t *testing.T) {
	t.Parallel()
	srv := saneRedis(t)
	b, err := open.URL(patience(t), "redis://"+srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	srv.Kill()
	p, _ := b.(doctor.Patient)
	if err := p.Examine(patience(t), &doctor.Report{}); err == nil {
		t.Error("no error from a server that is gone")
	}
}
