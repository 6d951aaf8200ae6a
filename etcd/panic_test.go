package etcd_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/etcd"
	"github.com/lockstile/locker/internal/testserver"
)

// mine is the key of a value that the callers' contexts have.
type mine struct{}

// An interceptor may rely on what is in its callers' contexts, and panic without it. A
// session is made and renewed in nobody's context, where nobody can recover.
func TestInterceptorThatPanicsDoesNotEndTheProgram(t *testing.T) {
	t.Parallel()
	var strict atomic.Bool
	look := func(ctx context.Context) {
		if strict.Load() && ctx.Value(mine{}) == nil {
			panic("the interceptor")
		}
	}
	client := dial(t, testserver.Etcd(t, 1).Endpoints(),
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			look(ctx)
			return call(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			look(ctx)
			return open(ctx, desc, cc, method, opts...)
		}),
	)
	l := newLockerOn(t, client, etcd.Options{})

	strict.Store(true)
	_, err := l.TryLock(context.WithValue(patience(t), mine{}, true), "x", locker.WithTTL(short))
	if !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "panicked: the interceptor") {
		t.Errorf("TryLock whose session was not made: %v", err)
	}
	strict.Store(false)
	lock := mustLock(t, l, "x", locker.WithTTL(short))
	strict.Store(true)
	lostFor(t, lock, locker.ReasonUnreachable)
	if err := lock.Err(); !strings.Contains(err.Error(), "panicked: the interceptor") {
		t.Errorf("a lock whose renewals failed: %v", err)
	}
	strict.Store(false)
	mustUnlock(t, mustLock(t, l, "x", locker.WithTTL(short)))
}

// All waiters share one stream, so nothing that belongs to one of them may go with it.
func TestStreamOfTheWaitersIsInNobodysContext(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t, 1).Members[0]
	var streams, somebodys atomic.Int32
	client := dial(t, []string{srv.Addr()}, grpc.WithChainStreamInterceptor(
		func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if strings.HasSuffix(method, "/Watch") {
				streams.Add(1)
				if out, _ := metadata.FromOutgoingContext(ctx); ctx.Value(mine{}) != nil || len(out.Get("mine")) > 0 {
					somebodys.Add(1)
				}
			}
			return open(ctx, desc, cc, method, opts...)
		}))
	a, b := newLocker(t, srv.Addr()), newLockerOn(t, client, etcd.Options{})
	for _, name := range []string{"x", "y"} {
		held := mustLock(t, a, name, locker.WithTTL(time.Hour))
		ctx := metadata.AppendToOutgoingContext(context.WithValue(patience(t), mine{}, name), "mine", name)
		result := make(chan error, 1)
		go func() {
			lock, err := b.Lock(ctx, name, locker.WithTTL(time.Hour))
			if err == nil {
				err = lock.Unlock(ctx)
			}
			result <- err
		}()
		until(t, "it waits", func() bool { return waiters(t, a, name) == 1 && streams.Load() > 0 })
		mustUnlock(t, held)
		if err := <-result; err != nil {
			t.Error(err)
		}
	}
	if n := somebodys.Load(); n > 0 {
		t.Errorf("%d of %d streams have what belongs to a caller", n, streams.Load())
	}
}
