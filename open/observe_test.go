package open_test

import (
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// One process holds the lock. The other waits for it, and is told for whom, though the
// server's message for the waiter may come before the answer to that question.
func TestObserversAreToldOnEveryBackend(t *testing.T) {
	t.Parallel()
	redis := func(t *testing.T) string { return testserver.Redis(t).Addr() }
	for name, url := range map[string]func(t *testing.T) string{
		"local": func(t *testing.T) string { return "local:" + t.TempDir() },
		"redis": func(t *testing.T) string { return "redis://" + redis(t) },
		"redlock": func(t *testing.T) string {
			return "redlock://" + redis(t) + "," + redis(t) + "," + redis(t) + "?durable_nodes=true&node_timeout=10s"
		},
		"etcd":      func(t *testing.T) string { return "etcd://" + testserver.Etcd(t, 1).Members[0].Addr() },
		"zookeeper": func(t *testing.T) string { return "zk://" + testserver.ZooKeeper(t, 1)[0].Addr() },
		"postgres":  postgresURL("&schema=ensure"),
		"session":   postgresURL("&schema=ensure&mode=session"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := url(t)
			told := make(chan locker.Event, 16)
			first, second := mustOpen(t, at), locker.Observe(mustOpen(t, at), func(e locker.Event) { told <- e })
			held, err := first.Lock(patience(t), "a", locker.WithHolder("first"))
			if err != nil {
				t.Fatal(err)
			}
			got := make(chan *locker.Lock, 1)
			go func() {
				lock, err := second.Lock(patience(t), "a")
				if err != nil {
					t.Error(err)
				}
				got <- lock
			}()
			if e := <-told; e.Type != locker.EventWaiting || e.Holder != "first" {
				t.Errorf("told of %+v", e)
			}
			if err := held.Unlock(patience(t)); err != nil {
				t.Error(err)
			}
			lock := <-got
			if e := <-told; lock == nil || e.Type != locker.EventGranted || e.Token != lock.Token() || e.Took <= 0 {
				t.Fatalf("told of %+v", e)
			}
			if err := lock.Unlock(patience(t)); err != nil {
				t.Error(err)
			}
			if e := <-told; e.Type != locker.EventReleased || e.Token != lock.Token() || e.Err != nil {
				t.Errorf("told of %+v", e)
			}
		})
	}
}

func postgresURL(params string) func(t *testing.T) string {
	return func(t *testing.T) string {
		return "postgres://postgres@" + testserver.Postgres(t).Addr() + "/postgres?sslmode=disable" + params
	}
}
