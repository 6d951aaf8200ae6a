package doctor_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/testserver"
)

// saneRedis starts a server that forgets nothing.
func saneRedis(t *testing.T, args ...string) *testserver.RedisServer {
	t.Helper()
	return testserver.Redis(t, append([]string{"--appendonly", "yes", "--appendfsync", "always"}, args...)...)
}

func TestSaneRedisIsFineAndStaysAsItIs(t *testing.T) {
	t.Parallel()
	srv := saneRedis(t)
	fine(t, examine(t, "redis://"+srv.Addr()+"?prefix=app:"), "eviction", "persistence", "role master", "replicas", "version", "access")
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
		finds(t, examine(t, url), "redis-evicts", srv.Addr(), "maxmemory 100 MB, maxmemory-policy "+policy)
	}
	srv.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	fine(t, examine(t, url))
	srv.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru", "maxmemory", "0")
	fine(t, examine(t, url))
}

func TestPersistenceSaysWhatACrashForgets(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"redis-forgets appendonly no":           {"--save", "3600 1"},
		"redis-syncs-late appendfsync everysec": {"--appendonly", "yes", "--appendfsync", "everysec"},
		"redis-syncs-late appendfsync no":       {"--appendonly", "yes", "--appendfsync", "no"},
		"redis-syncs-late appendfsync unknown":  {"--appendonly", "yes", "--rename-command", "CONFIG", ""},
	} {
		code, what, _ := strings.Cut(want, " ")
		finds(t, examine(t, "redis://"+testserver.Redis(t, args...).Addr()), code, what)
	}
}

func TestReplicasThatConfirmNothingAreADanger(t *testing.T) {
	t.Parallel()
	master := saneRedis(t, "--repl-diskless-sync-delay", "0")
	url := "redis://" + master.Addr()
	finds(t, examine(t, url+"?replicas=1"), "redis-unconfirmed", "replicas (0) than must confirm a grant (1)")
	host, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		t.Fatal(err)
	}
	replica := saneRedis(t, "--replicaof", host, port)
	master.Await("the replica", func() bool { return master.Do("WAIT", "1", "100") == "1" })
	finds(t, examine(t, url), "redis-failover", "replicas (1), of which 0 confirm")
	fine(t, examine(t, url+"?replicas=1"))
	finds(t, examine(t, "redis://"+replica.Addr()), "redis-replica", replica.Addr(), "is a replica of "+master.Addr())
}

// The clock is stepped by a library that is loaded in front of the C library.
func TestReplicaWhoseClockDiffersIsADanger(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{5 * time.Second, -5 * time.Second} {
		master := saneRedis(t, "--repl-diskless-sync-delay", "0", "--requirepass", "other", "--masterauth", "other")
		host, port, err := net.SplitHostPort(master.Addr())
		if err != nil {
			t.Fatal(err)
		}
		clock := testserver.NewClock(t)
		if err := clock.Step(step); err != nil {
			t.Fatal(err)
		}
		protected := []string{"--requirepass", "other", "--masterauth", "other", "--replicaof", host + " " + port}
		steady := testserver.Redis(t, protected...)
		stepped := testserver.RedisWithEnv(t, clock.Env(), protected...)
		master.Await("the replicas", func() bool { return master.Do("WAIT", "2", "100") == "2" })
		for _, s := range []*testserver.RedisServer{master, steady, stepped} {
			s.Do("ACL", "SETUSER", "app", "on", ">sesame", "~*", "&*", "+@all")
		}
		url := "redis://app:sesame@" + master.Addr() + "?replicas=2"
		r := examine(t, url)
		finds(t, r, "redis-clocks", stepped.Addr(), "apart")
		findsNot(t, r, "redis-clocks", steady.Addr())
		stepped.Do("ACL", "DELUSER", "app")
		finds(t, examine(t, url), "unseen", "clock of its replica "+stepped.Addr(), "WRONGPASS")
	}
}

func TestUserWhoMayNotDoWhatLocksNeedIsADanger(t *testing.T) {
	t.Parallel()
	srv := saneRedis(t)
	const base = "+@all -@admin +config|get"
	for want, rules := range map[string]string{
		"redis-rights the locks' bookkeeping: NOPERM": base + " ~app:* &*",
		"redis-rights locks themselves: NOPERM":       base + " ~lockstile:* &*",
		"redis-publish PUBLISH":                       base + " ~* &* -publish",
		"redis-rights ZSCAN":                          base + " ~* &* -zscan",
		"redis-rights run the 'eval'":                 base + " ~* &* -@scripting",
		"redis-rights run the 'evalsha'":              base + " ~* &* -evalsha",
		"redis-rights locks' bookkeeping: TIME: ERR":  base + " ~* &* -time",
		"redis-subscribe may not subscribe":           base + " ~* &lockstile:w -publish",
		"unseen INFO could not be looked at":          base + " ~* &* -info",
		"unseen CONFIG could not be looked at":        base + " ~* &* -config|get",
	} {
		srv.Do(append([]string{"ACL", "SETUSER", "app", "reset", "on", ">sesame"}, strings.Fields(rules)...)...)
		r := examine(t, "redis://app:sesame@"+srv.Addr()+"?prefix=app:")
		code, what, _ := strings.Cut(want, " ")
		finds(t, r, code, what)
		if strings.Contains(list(r), "sesame") {
			t.Errorf("the password is shown:\n%s", list(r))
		}
	}
	srv.Do(append([]string{"ACL", "SETUSER", "app", "reset", "on", ">sesame", "~*", "&*"}, strings.Fields(base+" -publish")...)...)
	for _, f := range examine(t, "redis://app:sesame@"+srv.Addr()).Findings {
		if f.Code == "redis-publish" && !strings.Contains(f.Means, "when the lease would have ended") {
			t.Errorf("waiters who may publish do not hear of a release by this user, and nothing says so: %s", f.Means)
		}
	}
	for _, command := range []string{"GET", "EXISTS", "PTTL", "PEXPIRE", "SET", "DEL", "ZADD", "ZREM", "ZRANK", "ZRANGE", "ZCARD",
		"ZSCORE", "ZMSCORE", "HGET", "HEXISTS", "HMGET", "HVALS", "HDEL", "HSET", "PEXPIREAT", "ZREMRANGEBYSCORE"} {
		srv.Do(append([]string{"ACL", "SETUSER", "app", "reset", "on", ">sesame", "~*", "&*"}, strings.Fields(base+" -"+command)...)...)
		finds(t, examine(t, "redis://app:sesame@"+srv.Addr()), "redis-rights", command+": ")
	}
	srv.Do(append([]string{"ACL", "SETUSER", "app", "reset", "on", ">sesame", "~lockstile:*", "&lockstile:*", "~app:*"}, strings.Fields(base)...)...)
	fine(t, examine(t, "redis://app:sesame@"+srv.Addr()+"?prefix=app:"), "access")
}

// What passes by itself is no lack of rights.
func TestAServerThatRefusesWritesForNowSaysNothingAboutRights(t *testing.T) {
	t.Parallel()
	srv := saneRedis(t)
	srv.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	r := examine(t, "redis://"+srv.Addr())
	finds(t, r, "unseen", "the user's rights on the locks' bookkeeping could not be looked at", "NOREPLICAS")
	findsNot(t, r, "redis-rights")
}

func TestClusterIsLookedAtMasterByMaster(t *testing.T) {
	t.Parallel()
	servers := testserver.RedisCluster(t, 3)
	for _, s := range servers {
		s.Do("CONFIG", "SET", "appendonly", "yes", "appendfsync", "always")
	}
	url := "redis-cluster://" + servers[0].Addr()
	fine(t, examine(t, url), "access")
	servers[1].Do("CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
	r := examine(t, url)
	finds(t, r, "redis-evicts", servers[1].Addr())
	findsNot(t, r, "redis-evicts", servers[0].Addr())
	for _, s := range servers {
		r := examine(t, "redis://"+s.Addr()+"?prefix={x}") // whose keys are on one of them
		finds(t, r, "redis-in-cluster")
		findsNot(t, r, "redis-rights")
	}
}

// The rights are those that the doctor's own advice names, but for the last word. With replicas
// that must confirm, no lock is ever granted to that user.
func TestUserWhoMayNotAskForReplicasIsADanger(t *testing.T) {
	t.Parallel()
	master := saneRedis(t)
	host, port, _ := net.SplitHostPort(master.Addr())
	testserver.Redis(t, "--replicaof", host+" "+port)
	master.Await("the replica", func() bool { return master.Do("WAIT", "1", "100") == "1" })
	const rights = "~lockstile:* &lockstile:* ~app:* +@scripting +@read +@write +@pubsub +@fast -@dangerous +info"
	url := "redis://app:sesame@" + master.Addr() + "?prefix=app:&replicas=1"
	for _, more := range []string{"", "+wait"} {
		master.Do(append([]string{"ACL", "SETUSER", "app", "reset", "on", ">sesame"}, strings.Fields(rights+" "+more)...)...)
		r := examine(t, url)
		if more == "" {
			finds(t, r, "redis-rights", "the confirmation of replicas: WAIT: ")
		} else {
			findsNot(t, r, "redis-rights")
		}
	}
}
