package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
)

// fill has somebody listen inside of an open transaction, as an application may by mistake, and sends
// notifications until the server's queue of them, 8 GB, has no more room. From then on the commit of
// whoever sends one fails.
func fill(t *testing.T, url string, admin *pgxpool.Pool) {
	t.Helper()
	conn, err := pgx.Connect(soon(t), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	for _, sql := range []string{`LISTEN nobody`, `BEGIN`, `SELECT pg_current_xact_id()`} {
		if _, err := conn.Exec(soon(t), sql); err != nil {
			t.Fatal(err)
		}
	}
	for i, size := 0, 7900; ; i++ { // less and less, until there is no room for a word
		if _, err := admin.Exec(context.Background(), fmt.Sprintf(`SELECT pg_notify('nobody', %d || ' ' || n || repeat('.', %d)) FROM generate_series(1, 5000) n`, i, size)); err != nil {
			var reply *pgconn.PgError
			if !errors.As(err, &reply) || reply.Code != "54000" {
				t.Fatalf("the queue is not full: %v", err)
			}
			if _, err := admin.Exec(soon(t), `NOTIFY nobody`); err != nil {
				return
			}
			size = 10
		}
	}
}

// Goal: a release does not depend on a notification, nor does the order of those who wait. Method: the
// server's queue of notifications is full. Two wait since before, and two come.
//
// Interleaving (if a release sends a notification all the same): its commit fails, so that the lock is
// held until its lease ends, and whoever looks first then is served first.
func TestLocksAreGivenBackWhereNotificationsCannotBeSent(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make proof: 8 GB of notifications")
	}
	server := testserver.Postgres(t, "fsync=off")
	url := server.URL("postgres")
	admin, holder := connect(t, url), newLocker(t, url, postgres.Options{})
	held := lock(t, holder, "a", locker.WithTTL(10*time.Second))
	order := make(chan string, 4)
	wait := func(who string, n int) {
		l := newLocker(t, url, postgres.Options{})
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			held, err := l.Lock(ctx, "a", locker.WithTTL(long))
			if err == nil {
				order <- who
				err = held.Unlock(context.Background())
			}
			if err != nil {
				order <- fmt.Sprintf("%s: %v", who, err)
			}
		}()
		queued(t, holder, "a", n)
	}
	wait("first", 1)
	wait("second", 2)
	fill(t, url, admin)
	began := time.Now()
	for query[int](t, admin, `SELECT count(*)::int FROM lockstile_queue WHERE channel <> ''`) > 0 { // they look when the lease that they know of has ended
		if time.Since(began) > patience {
			t.Fatal("those who wait still count on notifications")
		}
		time.Sleep(10 * time.Millisecond)
	}
	wait("third", 3)
	unlock(t, held)
	for _, want := range []string{"first", "second", "third"} {
		if who := <-order; who != want {
			t.Errorf("it is the turn of the %s, and the lock goes to the %s", want, who)
		}
	}
	for range 3 {
		handOver(t, holder, newLocker(t, url, postgres.Options{}))
	}
	if broken, err := holder.Break(soon(t), "nobody's"); broken || err != nil {
		t.Errorf("Break: %v, %v", broken, err)
	}
	kept := lock(t, holder, "a", locker.WithMinHold(time.Second))
	wait("after a minimum hold", 1)
	unlock(t, kept)
	if who := <-order; who != "after a minimum hold" {
		t.Error(who)
	}
}
