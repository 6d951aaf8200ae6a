package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/lockstile/locker"
)

func TestLockExcludesAndTokensIncrease(t *testing.T) {
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		a, b := open(t, url), open(t, url)
		name := "it's a \"name\"\n with %s / ünicode"
		first := lock(t, a, name)
		if _, err := b.TryLock(context.Background(), name); !errors.Is(err, locker.ErrTaken) {
			t.Fatalf("TryLock of a held lock: %v", err)
		}
		if _, err := a.TryLock(context.Background(), name); !errors.Is(err, locker.ErrTaken) {
			t.Fatalf("TryLock of a lock held by the same Locker: %v", err)
		}
		unlock(t, first)
		second := lock(t, b, name)
		if second.Token() <= first.Token() {
			t.Errorf("token %d follows %d", second.Token(), first.Token())
		}
		unlock(t, second)
	})
}
