//go:build !race

package etcd_test

import (
	"context"
	"math"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// The race detector allocates, too. Nearly all of them are the client's and gRPC's: a bare transaction and a bare deletion
// take 250.
func TestLockAndUnlockAllocateLittle(t *testing.T) {
	l := newLocker(t, testserver.Etcd(t, 1).Endpoints()...)
	ctx := patience(t)
	for _, call := range []struct {
		name string
		lock func(context.Context, string, ...locker.Option) (*locker.Lock, error)
		most float64
	}{{"Lock", l.Lock, 320}, {"TryLock", l.TryLock, 311}} {
		n := math.Inf(1)
		for range 100 { // a client that another test has closed tries again 40 times a second, and adds to most of them
			n = min(n, testing.AllocsPerRun(1, func() {
				lock, err := call.lock(ctx, "a")
				if err != nil {
					t.Fatal(err)
				}
				if err := lock.Unlock(ctx); err != nil {
					t.Fatal(err)
				}
			}))
		}
		if n > call.most {
			t.Errorf("%v allocations for %s and Unlock, want %v at most", n, call.name, call.most)
		}
	}
}
