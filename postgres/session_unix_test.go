//go:build unix

package postgres_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/postgres"
)

// Goal: a wait that ends just when the lock is granted does not leave the lock taken twice. Method: the
// server's process that waits is stopped until its time is over, or an administrator has cancelled it, and
// the lock is given back meanwhile.
//
// Interleaving: the server grants the lock, and the process that it wakes finds first that its time is
// over. An advisory lock stays when its statement fails. The next statement takes it again, and one
// unlock leaves it held for as long as the connection lives.
func TestEndOfAWaitThatMeetsTheGrantTakesTheLockOnce(t *testing.T) {
	t.Parallel()
	const stretch = time.Second
	for what, end := range map[string]func(t *testing.T, admin *pgxpool.Pool, pid int){
		"its time is over": func(*testing.T, *pgxpool.Pool, int) { time.Sleep(2 * stretch) },
		"it is cancelled":  func(t *testing.T, admin *pgxpool.Pool, pid int) { exec(t, admin, `SELECT pg_cancel_backend($1)`, pid) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			url := database(t)
			admin := connect(t, url)
			a, b := newSession(t, url), newSession(t, url)
			postgres.Stretch(b, stretch)
			held := lock(t, a, "a", locker.WithTTL(long))
			got := make(chan error, 1)
			go func() {
				second, err := b.Lock(soon(t), "a", locker.WithTTL(long))
				if err == nil {
					err = second.Unlock(soon(t))
				}
				got <- err
			}()
			queued(t, a, "a", 1)
			var pid int
			eventually(t, func() string { // between two stretches it does not wait
				pid = query[int](t, admin, `SELECT coalesce(min(a.pid), 0) FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid
					WHERE a.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted`)
				if pid == 0 { // which to kill would be the whole group of this process
					return "no process of the server waits for the lock"
				}
				return ""
			})
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil { // a process of a server that the test has started
				t.Fatal(err)
			}
			resume := func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
			t.Cleanup(resume)
			end(t, admin, pid)
			unlock(t, held)
			resume()
			if err := <-got; err != nil && what == "its time is over" {
				t.Fatal(err)
			}
			third, err := a.TryLock(soon(t), "a", locker.WithTTL(long))
			if err != nil {
				t.Fatalf("TryLock after the second holder has unlocked, or has failed: %v", err)
			}
			unlock(t, third)
		})
	}
}
