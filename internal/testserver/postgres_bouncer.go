package testserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// PgBouncerServer is a PgBouncer in front of a PostgresServer.
type PgBouncerServer struct {
	port    int
	process *process
}

// PgBouncer starts one in front of s, in a pool mode ("transaction", say), with settings
// ("max_client_conn = 1") that come after ours.
func PgBouncer(t TB, s *PostgresServer, mode string, settings ...string) *PgBouncerServer {
	t.Helper()
	binary, err := exec.LookPath("pgbouncer")
	if err != nil {
		binary, err = exec.LookPath("/usr/sbin/pgbouncer")
	}
	if err != nil {
		missing(t, "PgBouncer", "apt-get install pgbouncer")
	}
	b := &PgBouncerServer{}
	if b.port, err = reserve(t); err == nil {
		err = b.start(binary, serviceDir(t), s, append([]string{"pool_mode = " + mode}, settings...))
	}
	if err != nil {
		t.Fatalf("starting %s: %v", binary, err)
	}
	t.Cleanup(b.process.kill)
	return b
}

func (b *PgBouncerServer) start(binary, dir string, s *PostgresServer, settings []string) error {
	config, users := filepath.Join(dir, "pgbouncer.ini"), filepath.Join(dir, "users.txt")
	text := strings.Join([]string{
		"[databases]", fmt.Sprintf("* = host=127.0.0.1 port=%d", s.port),
		"[pgbouncer]", "listen_addr = 127.0.0.1", fmt.Sprintf("listen_port = %d", b.port),
		"unix_socket_dir =", "auth_type = trust", "auth_file = " + users,
		"max_client_conn = 500", "default_pool_size = 10", strings.Join(settings, "\n"), "",
	}, "\n")
	for path, content := range map[string]string{config: text, users: "\"postgres\" \"\"\n"} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil { //nolint:gosec // another user reads it; no secrets
			return err
		}
	}
	var err error
	if b.process, err = start(asService(binary, config)); err != nil {
		return err
	}
	err = b.process.await(func() error { return askPostgres(b.URL("postgres")) })
	if err != nil {
		b.process.kill()
	}
	return err
}

// Addr returns host:port.
func (b *PgBouncerServer) Addr() string { return local(b.port) }

// URL returns the address of a database, as the superuser.
func (b *PgBouncerServer) URL(database string) string { return PostgresURL(b.Addr(), database) }
