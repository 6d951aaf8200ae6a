package testbed

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// askTime bounds a question to a server. It is generous: machines are slow.
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

// timeOfPostgres asks a server for the time on the clock that leases use.
func timeOfPostgres(srv *testserver.PostgresServer) func() (time.Time, error) {
	return func() (there time.Time, err error) {
		err = askPostgres(srv.URL("postgres"), func(ctx context.Context, conn *pgx.Conn) error {
			return conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&there)
		})
		return there, err
	}
}

// drawLogged draws as many tokens as PostgreSQL logs ahead, which a standby never draws
// again. Locks would draw them in time: without it, the standby would have to lag for
// that long before it gives tokens out again.
func drawLogged(url string) error {
	return askPostgres(url, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SELECT nextval('lockstile_token') FROM generate_series(1, 40)`)
		return err
	})
}

// fireTimers has all sessions of a server of this machine look which of their timers are due.
func fireTimers(url string) error {
	return askPostgres(url, func(ctx context.Context, conn *pgx.Conn) error {
		rows, _ := conn.Query(ctx, `SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`)
		pids, err := pgx.CollectRows(rows, pgx.RowTo[int]) // with the error of the query
		for _, pid := range pids {
			session, gone := os.FindProcess(pid)
			if gone == nil {
				gone = session.Signal(syscall.SIGALRM) // by which its timers fire, and which does nothing else
			}
			if !errors.Is(gone, os.ErrProcessDone) {
				err = errors.Join(err, gone)
			}
		}
		return err
	})
}
