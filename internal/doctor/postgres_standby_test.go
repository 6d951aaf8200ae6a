package doctor_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker/internal/testserver"
)

func ask(t *testing.T, s *testserver.PostgresServer, question string) (answer string) {
	t.Helper()
	conn, err := pgx.Connect(patience(t), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(patience(t))
	if err := conn.QueryRow(patience(t), question).Scan(&answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

// becomes waits until a question has an answer.
func becomes(t *testing.T, s *testserver.PostgresServer, question, want string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ask(t, s, question) != want; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s is not %q in time", question, want)
		}
	}
}

// What receives the log of changes is a standby as far as the server can tell.
func TestStandbysThatAreNotWaitedForAreADanger(t *testing.T) {
	t.Parallel()
	receivers, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pg_receivewal")
	if len(receivers) == 0 {
		t.Skip("no pg_receivewal")
	}
	srv := testserver.Postgres(t, "fsync=on")
	url := prepared(t, srv.URL("postgres"))
	host, port, err := net.SplitHostPort(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	receiver := exec.Command(receivers[len(receivers)-1], "-h", host, "-p", port, "-U", "postgres", "-w", "-D", t.TempDir()) //nolint:gosec // a test
	if err := testserver.StartChild(receiver); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = receiver.Process.Kill()
		_ = receiver.Wait()
	})
	becomes(t, srv, `SELECT count(*)::text FROM pg_stat_replication`, "1")
	finds(t, examine(t, url), "postgres-failover", "standbys (1)")
	finds(t, examine(t, url+"&mode=session"), "postgres-session")
	sql(t, srv, `ALTER SYSTEM SET synchronous_standby_names = 'pg_receivewal'`, `SELECT pg_reload_conf()`)
	becomes(t, srv, `SHOW synchronous_standby_names`, "pg_receivewal")
	finds(t, examine(t, url), "postgres-undeclared", "pg_receivewal")
	finds(t, examine(t, url+"&no_standby=true"), "postgres-promoted", "standbys (1)")
	fine(t, examine(t, url+"&sync_standby=true"))
	sql(t, srv, `SET synchronous_commit = local`, `ALTER ROLE postgres SET synchronous_commit = remote_write`) // nobody confirms
	finds(t, examine(t, url+"&sync_standby=true"), "postgres-remote-write")
	sql(t, srv, `SET synchronous_commit = local`, `ALTER SYSTEM SET synchronous_standby_names = 'nobody'`, `SELECT pg_reload_conf()`)
	_ = receiver.Process.Kill()
	becomes(t, srv, `SHOW synchronous_standby_names`, "nobody")
	becomes(t, srv, `SELECT count(*)::text FROM pg_stat_replication`, "0")
	finds(t, examine(t, url+"&sync_standby=true"), "postgres-waits", "nobody")
	finds(t, examine(t, url+"&mode=session"), "postgres-session") // though none is connected
}

func TestStandbyIsADanger(t *testing.T) {
	t.Parallel()
	srv := testserver.Postgres(t, "fsync=on")
	url := prepared(t, srv.URL("postgres"))
	data := ask(t, srv, `SHOW data_directory`)
	sql(t, srv, `CHECKPOINT`)
	srv.Kill()
	if err := os.WriteFile(filepath.Join(data, "standby.signal"), nil, 0o644); err != nil { //nolint:gosec // another user reads it
		t.Fatal(err)
	}
	srv.Start()
	finds(t, examine(t, url), "postgres-standby")
}
