package dial

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/redlock"
	"github.com/lockstile/locker/singlenode"
)

// made makes a backend on ports of this machine at which nobody listens. Its clients say how they
// were made.
func made(t *testing.T, url string) Backend {
	t.Helper()
	b, err := URL(t.Context(), url)
	if b == nil {
		t.Fatalf("%s: %v", url, err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// settings are those of a client of Redis that all of its kinds have.
func settings(rdb redis.UniversalClient) string {
	if c, ok := rdb.(*redis.ClusterClient); ok {
		o := c.Options()
		return fmt.Sprint(o.Username, " ", o.Password, " db 0 ", o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.DialerRetries, " of ", o.PoolSize, o.ContextTimeoutEnabled)
	}
	o := rdb.(*redis.Client).Options()
	return fmt.Sprint(o.Username, " ", o.Password, " db ", o.DB, " ", o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.DialerRetries, " of ", o.PoolSize, o.ContextTimeoutEnabled)
}

func TestParametersReachTheClientsOfRedis(t *testing.T) {
	for form, db := range map[string]string{
		"redis://@127.0.0.1:1/2":                            "db 2",
		"rediss://@127.0.0.1:1/2":                           "db 2",
		"redis-sentinel://@127.0.0.1:1/main/2":              "db 2",
		"redis-cluster://@127.0.0.1:1":                      "db 0",
		"redlock://@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/2":  "db 2",
		"redlocks://@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/2": "db 2",
	} {
		for query, want := range map[string]string{
			"?pool_size=4": "me secret " + db + " 2s 2s 2s 1 of 4 true", // as long as a renewal can wait for
			"?pool_size=3&dial_timeout=5s&read_timeout=6s&write_timeout=7s": "me secret " + db + " 5s 6s 7s 1 of 3 true",
		} {
			for _, rdb := range clients(made(t, strings.Replace(form, "@", "me:secret@", 1)+query+"&prefix=app:")) {
				if got := settings(rdb); got != want {
					t.Errorf("%s%s: %s, want %s", form, query, got, want)
				}
			}
		}
	}
}

func clients(b Backend) []redis.UniversalClient {
	if r, ok := b.(*Redlock); ok {
		return r.Nodes
	}
	return []redis.UniversalClient{b.(*Redis).Client}
}

// One that is down is not the Cluster's.
func TestEveryHostReachesTheClientOfACluster(t *testing.T) {
	rdb := made(t, "redis-cluster://127.0.0.1:1,127.0.0.1:2").(*Redis).Client.(*redis.ClusterClient)
	if got := rdb.Options().Addrs; !slices.Equal(got, []string{"127.0.0.1:1", "127.0.0.1:2"}) {
		t.Errorf("%q", got)
	}
}

func TestParametersOfRedisAreTakenUpToTheirLimits(t *testing.T) {
	for name, c := range map[string]struct{ good, bad []string }{
		"max_retries":       {[]string{"-1", "1", "100"}, []string{"", "x", "-2", "0", "101"}},
		"pool_fifo":         {[]string{"true", "false", "1", "0"}, []string{"", "yes"}},
		"min_retry_backoff": {[]string{"0", "8ms", "1", "86400", "24h"}, []string{"", "x", "-1", "-1s", "86401", "25h"}},
		"dial_timeout":      {[]string{"1ms", "1", "86400", "24h"}, []string{"", "x", "0", "-1", "999us", "86401", "25h"}},
		"pool_size":         {[]string{"1", "65535"}, []string{"", "x", "0", "65536"}},
		"min_idle_conns":    {[]string{"0", "65535"}, []string{"", "x", "-1", "65536"}},
		"protocol":          {[]string{"2", "3"}, []string{"", "1", "4"}},
	} {
		takes := redisParameters[name]
		for _, text := range c.good {
			if !takes.ok(text) {
				t.Errorf("%s=%s is refused, and it takes %s", name, text, takes.is)
			}
		}
		for _, text := range c.bad {
			if takes.ok(text) {
				t.Errorf("%s=%s is taken, and it takes %s", name, text, takes.is)
			}
		}
	}
}

func TestOurParametersReachTheLockersOnRedis(t *testing.T) {
	for _, form := range []string{"redis://127.0.0.1:1", "redis-sentinel://127.0.0.1:1/main", "redis-cluster://127.0.0.1:1"} {
		if got, want := made(t, form+"?prefix=app:&replicas=2").(*Redis).Options, (singlenode.Options{Prefix: "app:", Replicas: 2}); got != want {
			t.Errorf("%s: %+v", form, got)
		}
	}
	got := made(t, "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3?prefix=app:&max_ttl=20s&node_timeout=300ms&durable_nodes=true").(*Redlock).Options
	if want := (redlock.Options{Prefix: "app:", MaxTTL: 20 * time.Second, NodeTimeout: 300 * time.Millisecond, DurableNodes: true}); got != want {
		t.Errorf("redlock: %+v", got)
	}
}

// What a URL does not say, the environment does, as with every client of PostgreSQL. What neither
// says is as locks need it.
func TestEnvironmentOfPostgresCounts(t *testing.T) {
	type heard struct {
		port    uint16
		timeout time.Duration
		writes  bool // only a server that takes writes is taken
	}
	for _, c := range []struct {
		url, env string
		want     heard
	}{
		{"postgres://127.0.0.1:2/db", "", heard{2, 2 * time.Second, false}},
		{"postgres://127.0.0.1/db", "PGPORT=3", heard{3, 2 * time.Second, false}},
		{"postgres://127.0.0.1:2/db", "PGCONNECT_TIMEOUT=7", heard{2, 7 * time.Second, false}},
		{"postgres://127.0.0.1:2/db?connect_timeout=8", "PGCONNECT_TIMEOUT=7", heard{2, 8 * time.Second, false}},
		{"postgres://127.0.0.1:2,127.0.0.1:3/db", "", heard{2, 2 * time.Second, true}},
		{"postgres:///db?host=127.0.0.1,127.0.0.1&port=2,3", "", heard{2, 2 * time.Second, true}},
		{"postgres://127.0.0.1:2,127.0.0.1:3/db", "PGTARGETSESSIONATTRS=any", heard{2, 2 * time.Second, false}},
		{"postgres://127.0.0.1:2,127.0.0.1:3/db?target_session_attrs=any", "", heard{2, 2 * time.Second, false}},
	} {
		t.Run(c.url+" "+c.env, func(t *testing.T) {
			for _, name := range []string{"PGPORT", "PGCONNECT_TIMEOUT", "PGTARGETSESSIONATTRS"} {
				t.Setenv(name, "")
			}
			if name, value, set := strings.Cut(c.env, "="); set {
				t.Setenv(name, value)
			}
			config := made(t, c.url).(*Postgres).Pool.Config().ConnConfig
			if got := (heard{config.Port, config.ConnectTimeout, config.ValidateConnect != nil}); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func TestSchemesHaveTheGuaranteesOfTheirBackends(t *testing.T) {
	urls := []string{
		"local:" + t.TempDir(), "file:" + t.TempDir(), "redis://127.0.0.1:1", "rediss://127.0.0.1:1", "redis-sentinel://127.0.0.1:1/main", "redis-cluster://127.0.0.1:1",
		"redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "redlocks://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
		"etcd://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "etcds://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
		"zk://127.0.0.1:1", "postgres://127.0.0.1:1/db", "postgres://127.0.0.1:1/db?mode=session",
	}
	for i, s := range Schemes() {
		scheme, _, _ := strings.Cut(s.Form, ":")
		if !strings.HasPrefix(urls[i], scheme+":") || strings.Contains(s.Form, "mode=session") != strings.Contains(urls[i], "mode=session") {
			t.Fatalf("%s stands where %s is expected", s.Form, urls[i])
		}
		if got := made(t, urls[i]).Guarantees(); got != s.Guarantees {
			t.Errorf("%s: %+v, and of the backend %+v", s.Form, s.Guarantees, got)
		}
	}
}
