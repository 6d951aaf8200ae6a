package zookeeper_test

import (
	"testing"
	"time"

	"github.com/lockstile/locker/conformance"
)

// The lease of a lock is the session, whatever the TTL: five seconds here, so
// that the suite need not wait long for their end.
func TestConformance(t *testing.T) {
	s := server(t)
	const lease = 5 * time.Second
	conformance.Run(t, conformance.Harness{
		TTL: lease,
		New: func(t testing.TB) conformance.Process {
			p := conformance.NewProxy(t, s.Addr())
			return conformance.Process{Locker: newClient(t, lease, p.Addr()), Network: p}
		},
	})
}
