package testserver

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// MariaDBServer is a MariaDB server of a test's own.
type MariaDBServer struct {
	single
	dir      string
	port     int
	settings []string
	env      []string
}

// MariaDB starts a server with settings ("autocommit=0") on top of small defaults. It has a user root without a
// password, and no database but its own. What it confirms is synced to its files. LOCKER_MARIADB names another binary.
func MariaDB(t TB, settings ...string) *MariaDBServer {
	t.Helper()
	return MariaDBWithEnv(t, nil, settings...)
}

// MariaDBWithEnv is MariaDB with more variables in the server's environment.
func MariaDBWithEnv(t TB, env []string, settings ...string) *MariaDBServer {
	t.Helper()
	s := &MariaDBServer{single: single{t: t, binary: mariadbBinary()}, settings: settings, env: env}
	install, err := exec.LookPath("mariadb-install-db")
	if s.binary == "" || err != nil {
		missing(t, "MariaDB", "apt-get install mariadb-server-core mariadb-client-core")
	}
	s.dir = serviceDir(t)
	if err := s.makeData(install); err != nil {
		t.Fatalf("making the server's folder: %v", err)
	}
	t.Cleanup(s.end)
	if s.port, err = reserve(t); err == nil {
		err = s.start()
	}
	if err != nil {
		t.Fatalf("starting %s: %v", s.binary, err)
	}
	return s
}

// mariadbBinary is where the server is, "" if it is nowhere. Debian keeps servers out of the path of most users.
func mariadbBinary() string {
	if binary := os.Getenv("LOCKER_MARIADB"); binary != "" {
		return binary
	}
	for _, name := range []string{"mariadbd", "/usr/sbin/mariadbd"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

func (s *MariaDBServer) data() string { return filepath.Join(s.dir, "data") }

// makeData makes the folder of the server's files, which takes more than a second. Where there is a place for models, it is
// a copy of the first.
func (s *MariaDBServer) makeData(install string) error {
	return fromModel("mariadb", s.data(), func() error {
		cmd := asService(install, "--no-defaults", "--datadir="+s.data(), "--auth-root-authentication-method=normal",
			"--skip-test-db", "--skip-name-resolve", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0")
		cmd.Env = append(os.Environ(), "TMPDIR="+s.dir) // that of the tests may be closed to the server's user
		return said(cmd)
	})
}

func (s *MariaDBServer) start() error {
	args := []string{
		"--no-defaults", "--datadir=" + s.data(), "--bind-address=127.0.0.1", "--port=" + strconv.Itoa(s.port),
		"--socket=" + filepath.Join(s.dir, "socket"), "--pid-file=" + filepath.Join(s.dir, "pid"), "--tmpdir=" + s.dir,
		"--skip-name-resolve", "--max-connections=500", "--max-connect-errors=1000000", // tests cut connections on purpose
		"--innodb-flush-log-at-trx-commit=1", // the default, on which the locks rely
		"--innodb-log-file-size=8M", "--innodb-buffer-pool-size=24M", "--innodb-use-native-aio=off", "--key-buffer-size=1M",
		"--aria-pagecache-buffer-size=1M", "--innodb-flush-method=fsync", // the file system in memory has no O_DIRECT
	}
	for _, setting := range s.settings {
		args = append(args, "--"+setting)
	}
	cmd := asService(s.binary, args...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), s.env...)
	var err error
	if s.process, err = start(cmd); err != nil {
		return err
	}
	return s.process.await(s.greets)
}

// greets asks for the first packet of a connection. A server that is ready says with its first byte that it speaks version 10 of the
// protocol: https://mariadb.com/kb/en/connection/#initial-handshake-packet
func (s *MariaDBServer) greets() error {
	conn, err := net.DialTimeout("tcp", s.Addr(), 10*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	packet := make([]byte, 5) // three bytes of length, and a number
	if _, err := io.ReadFull(conn, packet); err != nil {
		return err
	}
	if packet[4] != 10 {
		return fmt.Errorf("it greets with %d, and not with version 10", packet[4])
	}
	return nil
}

// Addr returns host:port.
func (s *MariaDBServer) Addr() string { return local(s.port) }

// Start starts a killed server again, on the same port with the data it left.
func (s *MariaDBServer) Start() {
	s.t.Helper()
	if err := s.start(); err != nil {
		s.t.Fatalf("starting MariaDB again: %v", err)
	}
}

// DSN is the data source name of a database for go-sql-driver/mysql, with parameters such as "autocommit=0". Without a database it is that of
// the server.
func (s *MariaDBServer) DSN(database string, params ...string) string {
	return MariaDBDSN(s.Addr(), database, params...)
}

// MariaDBDSN is the DSN of a server at addr, which may be a proxy's.
func MariaDBDSN(addr, database string, params ...string) string {
	return "root@tcp(" + addr + ")/" + database + "?" + strings.Join(params, "&")
}
