package etcd_test

import (
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/etcd"
	"github.com/lockstile/locker/internal/lab/testserver"
)

// To check a password keeps a server busy for 50 ms and more. A thousand processes that
// send it for each renewal are slow for each other, and lose their locks.
func TestRenewalsSendNoPassword(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t, 1).Members[0]
	user, _ := login(t, []string{srv.Addr()}, "locks/")
	l := newLockerOn(t, user, etcd.Options{Prefix: "locks/"})
	lock := mustLock(t, l, "x", locker.WithTTL(time.Hour)) // no other renewal comes between
	passwords := func() float64 { return srv.Metric(`grpc_server_started_total{grpc_method="Authenticate"`) }
	before := passwords()
	for range 20 {
		if err := lock.Renew(patience(t)); err != nil {
			t.Fatal(err)
		}
	}
	if n := passwords() - before; n > 1 { // of the first
		t.Errorf("20 renewals have sent %v passwords", n)
	}
	mustUnlock(t, lock)
}

// A stream may break between two renewals, and the servers be there all the same.
//
//	a renewal; the connection breaks; another renewal
func TestRenewalOnAStreamThatHasBrokenIsSentAgain(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t, 1).Members[0]
	proxy := conformance.NewProxy(t, srv.Addr())
	lock := mustLock(t, newLocker(t, proxy.Addr()), "x", locker.WithTTL(time.Hour))
	if err := lock.Renew(patience(t)); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		proxy.Stall() // the server is silent on this connection
		proxy.Heal()  // and now the connection is closed
		if err := lock.Renew(patience(t)); err != nil {
			t.Error(err)
		}
	}
	mustUnlock(t, lock)
}
