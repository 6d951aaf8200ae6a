package testbed

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker"
)

// askTime is generous: machines are slow.
const askTime = locker.DefaultTTL

// askPostgres runs f on a connection of its own.
func askPostgres(url string, f func(ctx context.Context, conn *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return f(ctx, conn)
}

// postgresTime asks a server for the time, by the clock that leases go by.
func postgresTime(url string) (there time.Time, err error) {
	err = askPostgres(url, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&there)
	})
	return there, err
}

// drawLogged uses up as many tokens as the log of their sequence may be ahead of it,
// which a standby has for good. It stands for the locks that do so in time: without
// it, a standby would have to lag for that long to give tokens out again.
func drawLogged(url string) error {
	return askPostgres(url, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SELECT nextval('lockstile_token') FROM generate_series(1, 40)`)
		return err
	})
}
