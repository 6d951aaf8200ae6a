package open_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/open"
)

// far is a backend whose servers are behind proxies, and near is the URL without them.
func far(t *testing.T, before, after string, addrs ...string) (b open.Backend, near string, proxies []*conformance.Proxy) {
	t.Helper()
	var ways []string
	for _, addr := range addrs {
		p := conformance.NewProxy(t, addr)
		ways, proxies = append(ways, p.Addr()), append(proxies, p)
	}
	b, err := open.URL(patience(t), before+strings.Join(ways, ",")+after)
	if err != nil {
		t.Fatal(err)
	}
	return b, before + strings.Join(addrs, ",") + after, proxies
}

func redisAddr(t *testing.T) string { return testserver.Redis(t).Addr() }

func postgresAddr(t *testing.T) string { return testserver.Postgres(t).Addr() }

func redlockAddrs(t *testing.T) []string {
	return []string{redisAddr(t), redisAddr(t), redisAddr(t)}
}

// Close tries once more what could not be given back before, and needs the client for that.
func TestCloseGivesBackWhatCouldNotBeBefore(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (open.Backend, string, []*conformance.Proxy){
		"redis": func(t *testing.T) (open.Backend, string, []*conformance.Proxy) {
			return far(t, "redis://", "", redisAddr(t))
		},
		"redlock": func(t *testing.T) (open.Backend, string, []*conformance.Proxy) {
			return far(t, "redlock://", "?durable_nodes=true&node_timeout=10s", redlockAddrs(t)...)
		},
		"postgres": func(t *testing.T) (open.Backend, string, []*conformance.Proxy) {
			return far(t, "postgres://postgres@", "/postgres?sslmode=disable&schema=ensure", postgresAddr(t))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, near, proxies := start(t)
			lock, err := b.TryLock(patience(t), "x", locker.WithTTL(time.Minute))
			if err != nil {
				t.Fatal(err, b.Close())
			}
			for _, p := range proxies {
				p.Cut()
			}
			if err := lock.Unlock(patience(t)); !errors.Is(err, locker.ErrUnavailable) {
				t.Errorf("Unlock that nobody hears: %v", err)
			}
			for _, p := range proxies {
				p.Heal()
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if info, err := mustOpen(t, near).Inspect(patience(t), "x"); err != nil || info.Held {
				t.Errorf("after Close: %+v, %v", info, err)
			}
		})
	}
}

func TestCloseEndsTheConnections(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		before, after string
		addrs         func(t *testing.T) []string
	}{
		{"redis://", "", func(t *testing.T) []string { return []string{redisAddr(t)} }},
		{"redlock://", "?durable_nodes=true&node_timeout=10s", redlockAddrs},
		{"etcd://", "", func(t *testing.T) []string { return []string{testserver.Etcd(t, 1).Members[0].Addr()} }},
		{"zk://", "", func(t *testing.T) []string { return []string{testserver.ZooKeeper(t, 1)[0].Addr()} }},
		{"postgres://postgres@", "/postgres?sslmode=disable&schema=ensure", func(t *testing.T) []string { return []string{postgresAddr(t)} }},
	} {
		t.Run(strings.Trim(c.before, "/:@"), func(t *testing.T) {
			t.Parallel()
			b, _, proxies := far(t, c.before, c.after, c.addrs(t)...)
			if err := mustHold(t, b, "x").Unlock(patience(t)); err != nil {
				t.Error(err)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			for _, p := range proxies {
				waitFor(t, "the end of the connections", func() bool { return p.Conns() == 0 })
			}
			runtime.KeepAlive(b) // else the garbage collector ends them
		})
	}
}
