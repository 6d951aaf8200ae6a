package etcd_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/etcd"
	"github.com/lockstile/locker/internal/testserver"
)

// To check a password keeps a server busy for 50 ms and more. A thousand processes that
// send it for each renewal are slow for each other, and lose their locks.
func TestRenewalsSendNoPassword(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t, 1).Members[0]
	user, _ := login(t, []string{srv.Addr()}, "locks/")
	l := newLockerOn(t, user, etcd.Options{Prefix: "locks/"})
	lock := mustLock(t, l, "x", locker.WithTTL(time.Hour)) // no other renewal comes between
	sent := passwords(srv, func() {
		for range 20 {
			if err := lock.Renew(patience(t)); err != nil {
				t.Fatal(err)
			}
		}
	})
	if slices.Min(sent) > 0 { // the very first renewal sends one
		t.Errorf("three times 20 renewals have sent %v passwords", sent)
	}
	mustUnlock(t, lock)
}

// passwords renews three times, and counts the passwords that each has sent: a stream that
// breaks because the machine stalls is opened again.
func passwords(srv *testserver.EtcdServer, renew func()) []float64 {
	count := func() float64 { return srv.Metric(`grpc_server_started_total{grpc_method="Authenticate"`) }
	sent := make([]float64, 3)
	for i := range sent {
		before := count()
		renew()
		sent[i] = count() - before
	}
	return sent
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

// A program may renew all its locks by hand at the same time.
func TestRenewalsAtTheSameTimeSendNoPassword(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t, 1).Members[0]
	user, _ := login(t, []string{srv.Addr()}, "locks/")
	l := newLockerOn(t, user, etcd.Options{Prefix: "locks/"})
	lock := mustLock(t, l, "x", locker.WithTTL(time.Hour)) // no other renewal comes between
	if err := lock.Renew(patience(t)); err != nil {
		t.Fatal(err)
	}
	sent := passwords(srv, func() {
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if err := lock.Renew(patience(t)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
	if slices.Min(sent) > 0 {
		t.Errorf("three times 50 renewals have sent %v passwords", sent)
	}
	mustUnlock(t, lock)
}

// streams counts the streams of renewals that a server has open.
func streams(srv *testserver.EtcdServer) float64 {
	return srv.Metric(`grpc_server_started_total{grpc_method="LeaseKeepAlive"`) - srv.Metric(`grpc_server_handled_total{grpc_code="Canceled",grpc_method="LeaseKeepAlive"`)
}

// A stream that is left would be one more for each session, for as long as the client lives.
func TestStreamEndsWithItsSession(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t, 1).Members[0]
	l := newLocker(t, srv.Addr())
	lock := mustLock(t, l, "x", locker.WithTTL(time.Hour))
	if err := lock.Renew(patience(t)); err != nil {
		t.Fatal(err)
	}
	if n := streams(srv); n != 1 {
		t.Errorf("%v streams for one session", n)
	}
	mustUnlock(t, lock)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "no stream is left", func() bool { return streams(srv) == 0 })
}

// deaf is a stream whose answers an interceptor does not read.
type deaf struct{ grpc.ClientStream }

func (deaf) RecvMsg(any) error { return errors.New("the interceptor") }

func TestStreamThatFailsIsLeft(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t, 1).Members[0]
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{srv.Addr()}, DialTimeout: 30 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithChainStreamInterceptor(
			func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				s, err := open(ctx, desc, cc, method, opts...)
				return deaf{s}, err
			})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	lock := mustLock(t, newLockerOn(t, client, etcd.Options{}), "x", locker.WithTTL(time.Hour))
	for range 3 {
		if err := lock.Renew(patience(t)); err == nil {
			t.Error("a renewal without an answer")
		}
	}
	until(t, "no stream is left", func() bool { return streams(srv) == 0 })
	mustUnlock(t, lock)
}
