package etcd_test

import (
	"testing"
	"time"

	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/internal/testserver"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t, 1).Members[0]
	conformance.Run(t, conformance.Harness{
		TTL: 2 * time.Second, // the servers' limit
		New: func(t testing.TB) conformance.Process {
			p := conformance.NewProxy(t, srv.Addr())
			return conformance.Process{Locker: newLocker(t, p.Addr()), Network: p}
		},
	})
}
