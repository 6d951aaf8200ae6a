package postgres_test

import (
	"context"
	"testing"
)

func BenchmarkLockAndUnlock(b *testing.B) {
	for kind := range kinds {
		b.Run(kind, func(b *testing.B) {
			l := onPool(b, b.Name(), connect(b, database(b)))
			for b.Loop() {
				unlock(b, lock(b, l, "a"))
			}
		})
	}
	b.Run("bare advisory lock and unlock", func(b *testing.B) {
		conn, err := connect(b, database(b)).Acquire(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Release()
		for b.Loop() {
			for _, sql := range []string{`SELECT pg_advisory_lock(1)`, `SELECT pg_advisory_unlock(1)`} {
				if _, err := conn.Exec(context.Background(), sql); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
