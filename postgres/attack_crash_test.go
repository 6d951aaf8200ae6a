package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
)

// Goal: what an Unlock has given back is free, also for an heir whose hand-over a
// crash has taken back.
//
// Interleaving: the heir has the lock, and not on disk. The server crashes, and
// comes back with the lease of the heir's predecessor, whom nobody knows any more.
// The heir gives the lock back: its first try finds the connection broken, and the
// second that the lock is not the heir's.
func TestUnlockOfAnHeirAfterACrashFreesTheLock(t *testing.T) {
	server := testserver.Postgres(t, lazy...)
	a := newLocker(t, server.URL("postgres"), postgres.Options{})
	held := lock(t, a, "a", locker.WithTTL(long))
	heir := heirOf(t, a, held, locker.WithTTL(long))
	server.Kill()
	server.Start()
	admin := connect(t, server.URL("postgres"))
	if n := query[int](t, admin, `SELECT count(*)::int FROM lockstile_lock WHERE token <= $1`, int64(heir.Token())); n != 1 {
		t.Fatalf("%d rows are left: the test tests nothing", n)
	}
	start := time.Now()
	err := heir.Unlock(context.Background())
	b := newLocker(t, server.URL("postgres"), postgres.Options{})
	if second, taken := b.TryLock(soon(t), "a"); taken == nil {
		unlock(t, second)
	} else if err == nil && errors.Is(taken, locker.ErrTaken) {
		info, _ := b.Inspect(soon(t), "a")
		t.Errorf("Unlock took %v and reported success, and nobody gets the lock for another %v: %v",
			time.Since(start), info.TimeLeft, taken)
	} else {
		t.Logf("Unlock: %v, TryLock: %v", err, taken)
	}
}
