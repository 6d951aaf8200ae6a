package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/postgres"
)

// All connections of the pool are the application's. The error says so, and not only that time
// is up: the server was never asked.
func TestAPoolWithoutAFreeConnectionIsNamed(t *testing.T) {
	pool := poolWith(t, database(t), func(c *pgxpool.Config) { c.MaxConns = 1 })
	l, err := postgres.New(pool, postgres.Options{})
	ready(t, l, err)
	busy, err := pool.Acquire(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Release()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = l.TryLock(ctx, "a")
	if !errors.Is(err, locker.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "all 1 connections of the pool are in use") {
		t.Errorf("TryLock: %v", err)
	}
}
