package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/leasing"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/client/v3/ordering"
	"google.golang.org/grpc"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/etcd"
	"github.com/lockstile/locker/internal/testserver"
)

// All requests of a client with a namespace stay in it, so two of them have locks of
// their own.
func TestClientWithANamespaceIsUsedAsItIs(t *testing.T) {
	t.Parallel()
	cluster := testserver.Etcd(t, 1)
	in := func(prefixes ...string) *clientv3.Client {
		client := newClient(t, cluster.Endpoints()...)
		for _, prefix := range prefixes {
			client.KV = namespace.NewKV(client.KV, prefix)
			client.Lease = namespace.NewLease(client.Lease, prefix)
			client.Watcher = namespace.NewWatcher(client.Watcher, prefix)
		}
		return client
	}
	a, b := newLockerOn(t, in("ours/"), etcd.Options{}), newLockerOn(t, in("ours/"), etcd.Options{})
	other := newLockerOn(t, in("theirs/", "deeper/"), etcd.Options{})
	for _, kind := range []locker.Option{locker.WithHolder("exclusive"), locker.WithSlots(1)} {
		held := mustLock(t, a, "x", kind, locker.WithTTL(time.Hour))
		mustUnlock(t, mustLock(t, other, "x", kind))
		if _, err := b.TryLock(patience(t), "x", kind); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("TryLock in the same namespace: %v", err)
		}
		got := lockLater(t, b, "x", kind, locker.WithTTL(time.Hour))
		until(t, "b waits", func() bool { return waiters(t, a, "x") == 1 })
		if err := held.Renew(patience(t)); err != nil {
			t.Error(err)
		}
		if infos, err := a.List(patience(t), ""); err != nil || len(infos) != 1 || infos[0].Name != "x" {
			t.Errorf("List: %+v, %v", infos, err)
		}
		if keys := keys(t, newClient(t, cluster.Endpoints()...), "ours/x/"); len(keys) != 2 {
			t.Errorf("in the namespace there are %q", keys)
		}
		mustUnlock(t, held)
		mustUnlock(t, received(t, got))
	}
}

// What a part of a client says must be what the servers say, and of the same keys.
func TestClientWhosePartsDoNotBelongTogetherIsRefused(t *testing.T) {
	t.Parallel()
	cluster := testserver.Etcd(t, 1)
	for want, spoil := range map[string]func(*clientv3.Client){
		"KV is a *namespace.kvPrefix and its Lease": func(c *clientv3.Client) { c.KV = namespace.NewKV(c.KV, "p/") },
		"and its Watcher a *clientv3.watcher": func(c *clientv3.Client) {
			c.KV, c.Lease = namespace.NewKV(c.KV, "p/"), namespace.NewLease(c.Lease, "p/")
		},
		"KV is a *leasing.leasingKV": func(c *clientv3.Client) {
			kv, closeKV, err := leasing.NewKV(c, "p/")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(closeKV)
			c.KV = kv
		},
		"KV is a *namespace.kvPrefix, or has one": func(c *clientv3.Client) {
			c.KV = namespace.NewKV(ordering.NewKV(c.KV, nil), "p/")
			c.Lease, c.Watcher = namespace.NewLease(c.Lease, "p/"), namespace.NewWatcher(c.Watcher, "p/")
		},
		"KV is a <nil>":              func(c *clientv3.Client) { c.KV = nil },
		"Lease is a <nil>":           func(c *clientv3.Client) { c.Lease = nil },
		"Watcher is a <nil>":         func(c *clientv3.Client) { c.Watcher = nil },
		"Lease is a etcd_test.lease": func(c *clientv3.Client) { c.Lease = lease{c.Lease} },
	} {
		client := newClient(t, cluster.Endpoints()...)
		kv, lease, watcher := client.KV, client.Lease, client.Watcher
		spoil(client)
		if _, err := etcd.New(client, etcd.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want that it says %q", err, want)
		}
		client.KV, client.Lease, client.Watcher = kv, lease, watcher
	}
	if _, err := etcd.New(nil, etcd.Options{}); err == nil {
		t.Error("a Locker on nil")
	}
}

// lease is somebody's own.
type lease struct{ clientv3.Lease }

// A client inside the server (v3client.New) has all its parts, and no connection on which
// a lease could be renewed.
func TestClientWithoutAConnectionIsRefused(t *testing.T) {
	t.Parallel()
	conn := newClient(t, testserver.Etcd(t, 1).Endpoints()...).ActiveConnection()
	client := clientv3.NewCtxClient(t.Context())
	client.KV = clientv3.NewKVFromKVClient(pb.NewKVClient(conn), client)
	client.Lease = clientv3.NewLeaseFromLeaseClient(pb.NewLeaseClient(conn), client, time.Second)
	client.Watcher = clientv3.NewWatchFromWatchClient(pb.NewWatchClient(conn), client)
	l, err := etcd.New(client, etcd.Options{})
	if err == nil {
		_ = l.Close()
		t.Error("it is taken, and the first renewal panics")
	} else if !strings.Contains(err.Error(), "no connection") {
		t.Errorf("got %v, want that it says what is missing", err)
	}
}

func TestListShowsWhatIsHeldBelowAPrefix(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	l, other := newLockerOn(t, client, etcd.Options{Prefix: "p/"}), newLockerOn(t, client, etcd.Options{})
	want := map[string]*locker.Lock{}
	for _, name := range []string{"a", "a/b", "a%", "a/b%2F", "ab"} {
		want[name] = mustLock(t, l, name, locker.WithHolder("me"))
	}
	mustLock(t, l, "b")
	mustLock(t, other, "a")
	mustUnlock(t, mustLock(t, l, "a gone"))
	for _, key := range []string{"p/a", "p/a/data/deeper", "p/a%2x/y", "p/%mark/z"} {
		if _, err := client.Put(patience(t), key, ""); err != nil {
			t.Fatal(err)
		}
	}
	waiting := lockLater(t, newLockerOn(t, client, etcd.Options{Prefix: "p/"}), "a/b")
	until(t, "it waits", func() bool { return waiters(t, l, "a/b") == 1 })
	infos, err := l.List(patience(t), "a")
	if err != nil || len(infos) != len(want) {
		t.Errorf("%d are held, want %d, %v", len(infos), len(want), err)
	}
	for _, info := range infos {
		lock := want[info.Name]
		if lock == nil || !info.Held || info.Holder != "me" || info.Token != lock.Token() || info.TimeLeft <= 0 || info.Waiters == 1 != (info.Name == "a/b") {
			t.Errorf("%+v", info)
		}
	}
	if infos, err := other.List(patience(t), ""); err != nil || len(infos) < 2 {
		t.Errorf("all that looks like a lock: %+v, %v", infos, err)
	}
	mustUnlock(t, want["a/b"])
	mustUnlock(t, received(t, waiting))
}

// A list of many keys is of one revision of the store.
//
//	1,200 keys; the last lock is given back when the first of them have been read
func TestListOfManyKeysShowsOneMoment(t *testing.T) {
	t.Parallel()
	const names = 1200
	cluster := testserver.Etcd(t, 1)
	plain := newClient(t, cluster.Endpoints()...)
	for i := 0; i < names; i += 100 {
		var puts []clientv3.Op
		for j := i; j < i+100; j++ {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("%04d/somebody", j), ""))
		}
		if _, err := plain.Txn(patience(t)).Then(puts...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	read := false
	client, err := clientv3.New(clientv3.Config{
		Endpoints: cluster.Endpoints(), DialTimeout: 30 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				err := call(ctx, method, req, reply, cc, opts...)
				if !read && strings.HasSuffix(method, "/Range") {
					read = true
					_, _ = plain.Delete(ctx, fmt.Sprintf("%04d/somebody", names-1))
				}
				return err
			})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if infos, err := newLockerOn(t, client, etcd.Options{}).List(patience(t), ""); err != nil || len(infos) != names {
		t.Errorf("%d of %d are listed, %v", len(infos), names, err)
	}
	if got := keys(t, plain, ""); len(got) != names-1 {
		t.Errorf("%d keys: nothing was given back meanwhile", len(got))
	}
}
