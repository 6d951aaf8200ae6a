//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/lockstile/locker/internal/testserver"
)

// stores are the backends that have servers, with a URL on servers of the test's
// own.
var stores = []struct {
	name string
	url  func(t *testing.T) string
}{
	{"local", func(t *testing.T) string { return "local:" + t.TempDir() }},
	{"redis", redisURL},
	{"redlock", func(t *testing.T) string {
		var hosts []string
		for range 3 {
			hosts = append(hosts, testserver.Redis(t).Addr())
		}
		return "redlock://" + strings.Join(hosts, ",") + "?durable_nodes=true&node_timeout=10s" // or nodes this young have no vote; and the machine may be slow
	}},
	{"etcd", func(t *testing.T) string {
		return "etcd://" + testserver.Etcd(t, 1).Members[0].Addr() + "?prefix=locks/"
	}},
	{"zookeeper", func(t *testing.T) string {
		return "zk://u:" + secret + "@" + testserver.ZooKeeper(t, 1)[0].Addr() + "/locks?session_timeout=7s" // for less than the grace of a TTL of 30 s
	}},
	{"postgres leases", func(t *testing.T) string {
		return testserver.Postgres(t).URL("postgres") + "&schema=ensure"
	}},
	{"postgres session", func(t *testing.T) string {
		return testserver.Postgres(t).URL("postgres") + "&schema=ensure&mode=session"
	}},
}

func TestEveryBackendRunsInspectsAndUnlocks(t *testing.T) {
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			lifeOfALock(t, s.url(t))
		})
	}
}

// lifeOfALock holds a lock, shows it, waits for it, and takes it by force.
func lifeOfALock(t *testing.T, url string) {
	t.Helper()
	old := launch(t, "run", "-b", url, "--ttl", "12s", "a/b", "--", "sh", "-c", report)
	first := old.number("token")
	held := jsonInfo{Name: "a/b", Held: true, Token: first}
	inspectJSON(t, url, "a/b", held)
	if got := listed(t, url, "a/"); len(got) != 1 || got["a/b"] != held {
		t.Errorf("what is listed is %+v, want %+v", got, held)
	}
	launch(t, "run", "-b", url, "--no-wait", "--ttl", "12s", "a/b", "--", "true").complains(75, `"a/b" is taken`)
	breaker := launch(t, "unlock", "-b", url, "--force", "a/b")
	breaker.ends(0)
	breaker.says(`"a/b" was taken from its holder: `)
	old.complains(70, `lock "a/b" lost`)
	holder := launch(t, "run", "-b", url, "--ttl", "12s", "a/b", "--", "sh", "-c", report)
	second := holder.number("token")
	if second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	waiter := launch(t, "run", "-b", url, "--wait", "10m", "a/b", "--", "sh", "-c", report)
	awaitWaiters(t, url, "a/b", "1")
	holder.goOn()
	holder.ends(0)
	waiter.followsAndEnds(second)
	free(t, url, "a/b")
}
