package sqltabletest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockstile/locker/register/sqltable"
)

// BenchmarkUncontended is a lock that one process takes and gives back, beside what MariaDB itself offers, and beside two writes.
func BenchmarkUncontended(b *testing.B) {
	s := mariaDB(b)
	db, l := open(b, "mysql", s.DSN(locks)), onMariaDB(b, s)
	do(b, db, "CREATE TABLE bare (id INT PRIMARY KEY, n INT) ENGINE=InnoDB")
	do(b, db, "INSERT INTO bare VALUES (1, 0)")
	conn, err := db.Conn(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	both := func(first, second string) func() error {
		return func() error {
			for _, statement := range []string{first, second} {
				if _, err := conn.ExecContext(b.Context(), statement); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for _, of := range []struct {
		name string
		do   func() error
	}{
		{"lock and unlock", func() error {
			lock, err := l.TryLock(b.Context(), "bench")
			if err != nil {
				return err
			}
			return lock.Unlock(b.Context())
		}},
		{"GET_LOCK and RELEASE_LOCK", both("DO GET_LOCK('bench', 0)", "DO RELEASE_LOCK('bench')")},
		{"two UPDATEs", both("UPDATE bare SET n = n + 1 WHERE id = 1", "UPDATE bare SET n = n + 1 WHERE id = 1")},
	} {
		b.Run(of.name, func(b *testing.B) {
			for b.Loop() {
				if err := of.do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkHandOver is the time from an Unlock until the process that waits has the lock.
func BenchmarkHandOver(b *testing.B) {
	s := mariaDB(b)
	status := func(name string) float64 { return float64(status(b, open(b, "mysql", s.DSN("")), name)) }
	for _, poll := range []time.Duration{0, 20 * time.Millisecond} {
		b.Run(fmt.Sprint("Poll ", poll), func(b *testing.B) {
			holder := newLocker(b, open(b, "mysql", s.DSN(locks)), sqltable.MySQL, sqltable.Options{Poll: poll})
			waiter := newLocker(b, open(b, "mysql", s.DSN(locks)), sqltable.MySQL, sqltable.Options{Poll: poll})
			unlocked(b, tried(b, holder, "bench"))
			var took time.Duration
			selects, updates := status("Com_select"), status("Com_update")
			for b.Loop() {
				held, got := tried(b, holder, "bench"), make(chan time.Time, 1)
				go func() {
					defer close(got)
					ctx, cancel := context.WithTimeout(b.Context(), patience)
					defer cancel()
					lock, err := waiter.Lock(ctx, "bench")
					if err != nil {
						b.Error(err)
						return
					}
					got <- time.Now()
					if err := lock.Unlock(ctx); err != nil {
						b.Error(err)
					}
				}()
				queued(b, holder, "bench")
				time.Sleep(rand.N(cmp.Or(poll, 250*time.Millisecond))) // the waiter may have looked at any moment before
				released := time.Now()
				unlocked(b, held)
				for at := range got {
					took += at.Sub(released)
				}
			}
			b.ReportMetric(took.Seconds()*1000/float64(b.N), "ms/hand-over")
			b.ReportMetric((status("Com_select")-selects)/float64(b.N), "selects/op")
			b.ReportMetric((status("Com_update")-updates)/float64(b.N), "updates/op")
		})
	}
}
