package singlenode_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing/redisfence"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

// The guard's resource may have the lock's name, as long as nothing is written there: its marks
// and the lock's own keys are on one server.
func TestLocksOfAllKindsLiveBesideAGuardOfTheirName(t *testing.T) {
	srv := testserver.Redis(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	l, err := singlenode.New(rdb, singlenode.Options{})
	if err != nil {
		t.Fatal(err)
	}
	guard, err := redisfence.NewGuard(rdb)
	if err != nil {
		t.Fatal(err)
	}
	exclusive := func(name string) []locker.Option { return []locker.Option{locker.WithGuard(guard, name)} }
	shared := func(name string) []locker.Option {
		return []locker.Option{locker.WithShared(), locker.WithGuard(guard, name)}
	}
	slots := func(string) []locker.Option { return []locker.Option{locker.WithSlots(2), locker.WithGuard(guard)} }
	for name, kinds := range map[string][]func(string) []locker.Option{
		"exclusive first": {exclusive, shared, slots, exclusive},
		"shared first":    {shared, exclusive, slots, shared},
		"slots first":     {slots, shared, exclusive, slots},
	} {
		for i, opts := range kinds {
			err := locker.Do(t.Context(), l, name, func(ctx context.Context, lock *locker.Lock) error {
				info, err := l.Inspect(ctx, name)
				_, listed := l.List(ctx, name)
				if !info.Held {
					err = errors.Join(err, errors.New("it is shown as free"))
				}
				return errors.Join(err, listed)
			}, opts(name)...)
			if err != nil {
				t.Errorf("%s, lock %d: %v", name, i, err)
			}
		}
		lock, err := l.TryLock(t.Context(), name, locker.WithShared())
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := l.Break(t.Context(), name); !ok || err != nil {
			t.Errorf("%s: Break: %v, %v", name, ok, err)
		}
		_ = lock.Unlock(t.Context())
	}
}
