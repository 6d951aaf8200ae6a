package etcd_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/etcd"
	"github.com/lockstile/locker/internal/lab/testserver"
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
	lostFor(t, lock, locker.Unreachable)
	if err := lock.Err(); !strings.Contains(err.Error(), "panicked: the interceptor") {
		t.Errorf("a lock whose renewals failed: %v", err)
	}
	strict.Store(false)
	mustUnlock(t, mustLock(t, l, "x", locker.WithTTL(short)))
}
