package etcd

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// Goal: waiters cost the servers what they are, and not what they are times as many again: who looks
// now and then whether its turn has come reads no queue. Method: what the servers answer to the looks of
// one that waits, exclusively and to read, is counted.
func TestLookThatFindsNothingNewReadsNoQueue(t *testing.T) {
	t.Parallel()
	for what, kind := range map[string][]locker.Option{"a writer": nil, "a reader": {locker.WithShared()}} {
		cluster, ctx := testserver.Etcd(t, 1), aMinute(t)
		holder := process(t, cluster.Members[0])
		var looks, read atomic.Int64
		waiter := with(t, clientv3.Config{Endpoints: cluster.Endpoints(), DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				err := call(ctx, method, req, reply, cc, opts...)
				if resp, ok := reply.(*etcdserverpb.TxnResponse); ok && err == nil {
					looks.Add(1)
					for _, r := range resp.Responses {
						read.Add(int64(len(r.GetResponseRange().GetKvs())))
					}
				}
				return err
			})}})
		held, err := holder.Lock(ctx, "x")
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			second, err := waiter.Lock(ctx, "x", append(kind, locker.WithTTL(2*time.Second))...)
			if err == nil {
				err = second.Unlock(ctx)
			}
			got <- err
		}()
		for looks.Load() < 2 { // its place, and the look when its watch has begun
			time.Sleep(time.Millisecond)
		}
		before, place := looks.Load(), read.Load()
		for looks.Load() < before+3 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		if n := read.Load() - place; n > 0 {
			t.Errorf("%s: %d looks read %d keys", what, looks.Load()-before, n)
		}
		if err := held.Unlock(ctx); err != nil {
			t.Error(err)
		}
		if err := <-got; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The key of a Mutex is the same each time that its session locks it. Interleaving: it is ahead, it is
// given back and put again, behind, while the watch of the waiter is silent.
func TestMutexThatComesAgainIsNotAheadAnyMore(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
	const mutex = "x/694d9a5b6b1f0005"
	if _, err := l.store.client.Put(ctx, mutex, ""); err != nil {
		t.Fatal(err)
	}
	a := begin(t, ctx, l, "x")
	takes(t, ctx, l, a, mutex)
	if _, err := l.store.client.Delete(ctx, mutex); err != nil {
		t.Fatal(err)
	}
	if _, err := l.store.client.Put(ctx, mutex, ""); err != nil {
		t.Fatal(err)
	}
	if ahead, err := l.store.look(ctx, a, mutex); ahead != "" || err != nil {
		t.Errorf("%q is ahead, %v", ahead, err)
	}
}

// Interleaving: an operator deletes the place of a waiter, whose watch tells it nothing, while the one
// ahead holds on.
func TestWaiterWhosePlaceWasDeletedFindsOutWhileItWaits(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
	a, b := begin(t, ctx, l, "x"), begin(t, ctx, l, "x")
	takes(t, ctx, l, a, "")
	takes(t, ctx, l, b, a.key)
	if _, err := l.store.client.Delete(ctx, b.key); err != nil {
		t.Fatal(err)
	}
	if ahead, err := l.store.look(ctx, b, a.key); !errors.Is(err, errDeleted) {
		t.Errorf("%q is ahead, %v", ahead, err)
	}
}
