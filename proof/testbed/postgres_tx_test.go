package testbed

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// Goal: whoever waited has a whole TTL from its grant, because the server's patience begins
// there. Method: a transaction waits behind another one for two seconds. Its lock must end a
// TTL after that. One of the two seconds is for the drift of clocks, and for a stall between
// two readings of one.
func TestALockOfATransactionHasItsTTLFromItsGrant(t *testing.T) {
	t.Parallel()
	url := testserver.Postgres(t).URL("postgres")
	if err := ensureSchema(url); err != nil {
		t.Fatal(err)
	}
	if err := createRegister(url); err != nil {
		t.Fatal(err)
	}
	l, err := Open(t.Context(), url+"&mode=tx")
	if err != nil {
		t.Fatal(err)
	}
	const ttl = 20 * time.Second
	first, err := l.Lock(t.Context(), "n", locker.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan *locker.Lock, 1)
	go func() {
		defer close(next)
		lock, err := l.Lock(t.Context(), "n", locker.WithTTL(ttl), locker.WithoutRenewal())
		if err != nil {
			t.Error(err)
			return
		}
		next <- lock
	}()
	awaitWaiter(t, url)
	time.Sleep(2 * time.Second)
	granted := time.Now()
	if err := first.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	lock, ok := <-next
	if !ok {
		return
	}
	if late := granted.Add(ttl).Sub(lock.Deadline()); late > time.Second {
		t.Errorf("the lock ends %v too early", late)
	}
	if err := lock.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// awaitWaiter returns when somebody waits for an advisory lock.
func awaitWaiter(t *testing.T, url string) {
	t.Helper()
	waits := false
	for end := time.Now().Add(time.Minute); !waits; {
		if time.Now().After(end) {
			t.Fatal("nobody waits for the lock")
		}
		err := askPostgres(url, func(ctx context.Context, conn *pgx.Conn) error {
			return conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)`).Scan(&waits)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
