package postgres_test

import (
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
)

// Goal: the first renewal puts an heir's lease on disk, whatever the role's setting.
func TestRenewalPutsAnHeirOnDiskWhateverTheRoleSays(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"off", "local", "remote_write", "remote_apply"} {
		t.Run(level, func(t *testing.T) {
			server := testserver.Postgres(t, lazy...)
			url := server.URL("postgres")
			exec(t, connect(t, url), `ALTER ROLE postgres SET synchronous_commit = `+level)
			l := newLocker(t, url, postgres.Options{})
			heir := heirOf(t, l, lock(t, l, "a", locker.WithTTL(long)), locker.WithTTL(long))
			if err := heir.Renew(soon(t)); err != nil {
				t.Fatal(err)
			}
			server.Kill()
			server.Start()
			admin := connect(t, url)
			if token := query[fencing.Token](t, admin, `SELECT token FROM lockstile_lock`); token != heir.Token() {
				t.Errorf("token %d has the lock after the crash, the heir has %d", token, heir.Token())
			}
			if err := heir.Renew(soon(t)); err != nil {
				t.Errorf("Renew after the crash: %v", err)
			}
			unlock(t, heir)
		})
	}
}

// Goal: an heir that asks by itself, for nobody knows what became of the hand-over,
// has a lease of its own, and it is on disk.
//
// Interleaving: the hand-over is carried out, its answer never comes, and the
// predecessor gives up. The heir asks, and is told that it has the lock.
func TestHeirThatAsksForItselfIsOnDisk(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, lazy...)
	url := server.URL("postgres")
	pool, w := wired(t, url+"&pool_max_conns=1") // so that the heir has another than its predecessor
	l, err := postgres.New(pool, postgres.Options{})
	l = ready(t, l, err)
	warmUp(t, l, pool)
	held := lock(t, l, "a", locker.WithTTL(long))
	got := make(chan *locker.Lock, 1)
	go func() {
		heir, err := l.Lock(soon(t), "a", locker.WithTTL(long))
		if err != nil {
			t.Error(err)
		}
		got <- heir
	}()
	inLine(t, l, "a")
	w.cut(deaf)
	w.repair() // for new connections
	if err := held.Unlock(soon(t)); err == nil {
		t.Error("Unlock without an answer reports success")
	}
	heir := <-got
	if heir == nil {
		t.FailNow()
	}
	server.Kill()
	server.Start()
	admin := connect(t, url)
	if token := query[fencing.Token](t, admin, `SELECT token FROM lockstile_lock`); token != heir.Token() {
		t.Errorf("token %d has the lock after the crash, the heir has %d", token, heir.Token())
	}
	unlock(t, heir)
}
