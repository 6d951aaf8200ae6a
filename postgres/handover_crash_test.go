package postgres_test

import (
	"context"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
)

// Goal: what an Unlock has given back is free, also for an heir whose hand-over a
// crash has taken back, and only if it was.
//
// Interleaving: the heir has the lock, and not on disk. The server crashes, and
// comes back with the lease of one of the heir's predecessors, whom nobody knows
// any more. The heir gives the lock back: its first try finds the connection
// broken, and the second that the lock is not the heir's.
func TestUnlockOfAnHeirAfterACrashFreesTheLock(t *testing.T) {
	t.Parallel()
	for what, flushed := range map[string]int{"the first": 0, "an heir before": 1} {
		t.Run(what, func(t *testing.T) {
			server := testserver.Postgres(t, lazy...)
			url := server.URL("postgres")
			a := newLocker(t, url, postgres.Options{})
			held := lock(t, a, "a", locker.WithTTL(long))
			for i := range 3 {
				if i == flushed {
					exec(t, connect(t, url), `CHECKPOINT`)
				}
				held = heirOf(t, a, held, locker.WithTTL(long))
			}
			server.Kill()
			server.Start()
			admin := connect(t, url)
			if token := query[fencing.Token](t, admin, `SELECT token FROM lockstile_lock`); token >= held.Token() {
				t.Fatalf("token %d has the lock: the test tests nothing", token)
			}
			unlock(t, held)
			b := newLocker(t, url, postgres.Options{})
			second, err := b.TryLock(soon(t), "a")
			if err != nil {
				t.Fatalf("TryLock after an Unlock: %v", err)
			}
			unlock(t, second)
		})
	}
}

// Goal: such a release frees nobody's lock who came later.
func TestUnlockOfAnHeirAfterACrashLeavesALaterLock(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, lazy...)
	url := server.URL("postgres")
	a := newLocker(t, url, postgres.Options{})
	heir := heirOf(t, a, lock(t, a, "a", locker.WithTTL(long)), locker.WithTTL(long))
	server.Kill()
	server.Start()
	b := newLocker(t, url, postgres.Options{})
	if broken, err := b.Break(soon(t), "a"); !broken || err != nil {
		t.Fatalf("Break: %v, %v", broken, err)
	}
	second := lock(t, b, "a", locker.WithTTL(long))
	_ = heir.Unlock(context.Background())
	if err := second.Renew(soon(t)); err != nil {
		t.Errorf("a lock that was taken after the crash, when the heir has given back its own: %v", err)
	}
	unlock(t, second)
}
