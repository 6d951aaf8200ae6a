package open_test

import (
	"context"
	"strings"
	"testing"

	"github.com/lockstile/locker/open"
)

// Whatever stands before and behind the secret of a URL, and whatever follows the hosts: URL
// returns an error without the secret, and never panics. The hosts are ports of this machine at
// which nobody listens, and the context has ended, so it asks nobody.
//
// In a URL without an @ behind the last host, the hosts are what stands behind the last @. So no
// text makes it another machine.
func FuzzURLShowsNoSecret(f *testing.F) {
	schemes := []string{"redis", "rediss", "redis-sentinel", "redis-cluster", "redlock", "redlocks", "etcd", "etcds", "zk", "postgres", "postgresql", ""}
	for i, scheme := range schemes {
		tail := map[string]string{"redis-sentinel": "/m/1", "postgres": "/db?sslmode=", "zk": "/a/b?session_timeout=10s"}[scheme]
		f.Add(uint8(i), "u:", "", 1, tail)
		f.Add(uint8(i), "u:%", "%zz", 3, "?nonsense=1&nonsense=2")
		f.Add(uint8(i), "u/", "/x", 2, "?pool_size=9&replicas=x&mode=session")
		f.Add(uint8(i), ":", "@h2,u:", 1, "/%zz?a")
		f.Add(uint8(i), "u:a?b=", "#", 3, "/1?sslpassword=x&password=y&sentinel_password=z")
		f.Add(uint8(i), "", ":x", 3, "?db=x&dial_timeout=y&poll=z")
	}
	const secret = "kept9Q7secret"
	over, end := context.WithCancel(context.Background())
	end()
	f.Fuzz(func(t *testing.T, scheme uint8, before, behind string, hosts int, tail string) {
		if strings.ContainsAny(tail, "@") || tail != "" && tail[0] != '/' && tail[0] != '?' || strings.Contains(tail, "service") {
			t.Skip("another host, or a file that names one")
		}
		servers := []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}[:max(1, min(hosts, 3))]
		url := schemes[int(scheme)%len(schemes)] + "://" + before + secret + behind + "@" + strings.Join(servers, ",") + tail
		b, err := open.URL(over, url)
		switch {
		case err == nil:
			_ = b.Close()
			t.Errorf("%q: no error", url)
		case strings.Contains(err.Error(), secret):
			t.Errorf("%q: %v", url, err)
		case !strings.HasPrefix(err.Error(), "open: "):
			t.Errorf("%q: does not say who speaks: %v", url, err)
		}
	})
}
