package testserver

import (
	"context"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresStandby starts a standby that follows the primary asynchronously over
// its address or that of a proxy in front of it, and waits until it has
// everything that the primary has.
func PostgresStandby(t TB, primary *PostgresServer, addr string, env []string) *PostgresServer {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatalf("the primary's address: %v", err)
	}
	s := &PostgresServer{t: t, dir: serviceDir(t), settings: primary.settings, env: env}
	if err := said(asService(postgresBinary("pg_basebackup"), "-D", s.data(), "-h", host, "-p", port, "-U", "postgres",
		"--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync")); err != nil {
		t.Fatalf("copying the primary: %v", err)
	}
	s.first("a standby")
	s.await("a standby that has everything", `SELECT count(*) > 0 AND bool_and(replay_lsn = pg_current_wal_lsn()) FROM pg_stat_replication`, primary)
	return s
}

// Promote makes a standby the primary, and waits until it takes writes.
func (s *PostgresServer) Promote() {
	s.t.Helper()
	s.await("the promotion", `SELECT pg_promote()`, s)
	s.await("the end of recovery", `SELECT NOT pg_is_in_recovery()`, s)
}

// await asks a server again and again until the answer is true.
func (s *PostgresServer) await(what, question string, of *PostgresServer) {
	s.t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var yes bool
		if yes, err = ask(of.URL("postgres"), question); err == nil && yes {
			return
		}
	}
	s.t.Fatalf("%s has not come after %v (last error: %v)", what, patience, err)
}

func ask(url, question string) (yes bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return false, err
	}
	defer conn.Close(ctx)
	return yes, conn.QueryRow(ctx, question).Scan(&yes)
}
