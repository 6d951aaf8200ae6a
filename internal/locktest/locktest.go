// Package locktest has what tests on real stores do all the time: lock, unlock, and wait for something, all of it with an end.
package locktest

import (
	"context"
	"testing"
	"time"

	"github.com/lockstile/locker"
)

// Patience bounds every wait.
const Patience = 30 * time.Second

// Soon returns a context that ends after [Patience], or with the test.
func Soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Lock locks a name, or ends the test.
func Lock(t testing.TB, l locker.Locker, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	got, err := l.Lock(Soon(t), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Try has the lock at once, or ends the test.
func Try(t testing.TB, l locker.Locker, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	got, err := l.TryLock(Soon(t), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Unlock unlocks, without an error.
func Unlock(t testing.TB, l *locker.Lock) {
	t.Helper()
	if err := l.Unlock(Soon(t)); err != nil {
		t.Error(err)
	}
}

// Until waits for something that happens on a server or in a client.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it did not come about within %v that %s", Patience, what)
		}
	}
}

// Waits waits until somebody waits for a lock.
func Waits(t testing.TB, l locker.Inspector, name string) {
	t.Helper()
	Until(t, "somebody waits for "+name, func() bool {
		info, err := l.Inspect(Soon(t), name)
		return err == nil && info.Waiters > 0
	})
}
