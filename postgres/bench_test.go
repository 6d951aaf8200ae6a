package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
)

// BenchmarkLockAndUnlock measures our locks beside the bare statements that any
// lock needs, turn by turn, so that noise hits all alike: compare quartiles.
func BenchmarkLockAndUnlock(b *testing.B) {
	url := database(b)
	subjects := map[string]func(){}
	for kind := range kinds {
		l := onPool(b, "/"+kind, connect(b, url))
		subjects[kind] = func() { lockAndUnlock(b, l) }
	}
	pool := connect(b, url+"&pool_max_conns=1")
	exec(b, pool, `CREATE TABLE bare (k text PRIMARY KEY, v bigint) WITH (fillfactor = 50)`)
	exec(b, pool, `INSERT INTO bare VALUES ('a', 0)`)
	subjects["bare-advisory"] = func() {
		exec(b, pool, `SELECT pg_advisory_lock($1)`, 1)
		exec(b, pool, `SELECT pg_advisory_unlock($1)`, 1)
	}
	subjects["bare-updates"] = func() {
		exec(b, pool, `UPDATE bare SET v = v + 1 WHERE k = $1`, "a")
		exec(b, pool, `UPDATE bare SET v = v + 1 WHERE k = $1`, "a")
	}
	took := map[string][]time.Duration{}
	for b.Loop() {
		for name, use := range subjects {
			start := time.Now()
			use()
			took[name] = append(took[name], time.Since(start))
		}
	}
	for name, times := range took {
		slices.Sort(times)
		b.ReportMetric(float64(times[len(times)/4].Microseconds()), name+"-q1-µs")
		b.ReportMetric(float64(times[len(times)/2].Microseconds()), name+"-median-µs")
	}
}

func lockAndUnlock(b *testing.B, l locker.Locker) {
	held, err := l.Lock(context.Background(), "a")
	if err == nil {
		err = held.Unlock(context.Background())
	}
	if err != nil {
		b.Error(err)
	}
}

// BenchmarkContended is 64 goroutines that want one lock, on four connections at
// most; the bare advisory lock has one for each of them.
func BenchmarkContended(b *testing.B) {
	for kind := range kinds {
		b.Run(kind, func(b *testing.B) {
			l := onPool(b, b.Name(), connect(b, database(b)+"&pool_max_conns=4"))
			contend(b, func() { lockAndUnlock(b, l) })
		})
	}
	b.Run("bare advisory", func(b *testing.B) {
		pool := connect(b, fmt.Sprintf("%s&pool_max_conns=%d", database(b), contenders))
		contend(b, func() {
			err := pool.AcquireFunc(context.Background(), func(conn *pgxpool.Conn) error {
				if _, err := conn.Exec(context.Background(), `SELECT pg_advisory_lock($1)`, 1); err != nil {
					return err
				}
				_, err := conn.Exec(context.Background(), `SELECT pg_advisory_unlock($1)`, 1)
				return err
			})
			if err != nil {
				b.Error(err)
			}
		})
	})
}

const contenders = 64

func contend(b *testing.B, use func()) {
	var wait sync.WaitGroup
	turns := make(chan struct{})
	for range contenders {
		wait.Go(func() {
			for range turns {
				use()
			}
		})
	}
	for b.Loop() {
		turns <- struct{}{}
	}
	close(turns)
	wait.Wait()
}
