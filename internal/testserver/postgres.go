package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresServer is a PostgreSQL server of a test's own.
type PostgresServer struct {
	t        TB
	dir      string
	port     int
	settings []string
	env      []string
	process  *process
}

// Postgres starts a server with settings ("log_statement=all") on top of small
// defaults. It has a superuser "postgres" without a password, and a database of
// that name.
func Postgres(t TB, settings ...string) *PostgresServer {
	t.Helper()
	return PostgresWithEnv(t, nil, settings...)
}

// PostgresWithEnv is Postgres with more variables in the server's environment.
func PostgresWithEnv(t TB, env []string, settings ...string) *PostgresServer {
	t.Helper()
	initdb, server := postgresBinary("initdb"), postgresBinary("postgres")
	if initdb == "" || server == "" {
		missing(t, "PostgreSQL", "apt-get install postgresql")
	}
	s := &PostgresServer{t: t, dir: serviceDir(t), settings: settings, env: env}
	if err := s.makeData(initdb); err != nil {
		t.Fatalf("making the server's folder: %v", err)
	}
	s.first(server)
	return s
}

// makeData makes the folder of the server's files.
func (s *PostgresServer) makeData(initdb string) error {
	return fromModel("model", s.data(), func() error {
		return said(asService(initdb, "-D", s.data(), "-U", "postgres", "-A", "trust",
			"-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions", "--wal-segsize=1"))
	})
}

// fromModel makes a server's folder of files. Below LOCKER_TEST_POSTGRES it is a copy of the first one of its kind that was
// made there, which takes a tenth of the time.
func fromModel(kind, data string, fresh func() error) error {
	shared := os.Getenv("LOCKER_TEST_POSTGRES")
	model := filepath.Join(shared, kind)
	if _, err := os.Stat(model); shared != "" && err == nil {
		return said(exec.Command("cp", "-a", model, data)) //nolint:gosec // folders of ours
	}
	if err := fresh(); err != nil || shared == "" {
		return err
	}
	return keepModel(data, model)
}

// keepModel makes a copy appear in one step. Another process may do so at the same time.
func keepModel(data, model string) error {
	work, err := os.MkdirTemp(filepath.Dir(model), "model-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // it goes with LOCKER_TEST_POSTGRES at the latest

	copied := filepath.Join(work, "model")
	err = said(exec.Command("cp", "-a", data, copied)) //nolint:gosec // folders of ours
	if err == nil {
		err = os.Rename(copied, model)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// said runs a command. Its error has the command's output.
func said(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, bytes.TrimSpace(out))
	}
	return nil
}

// first starts the server for the first time, on a free port. It ends with the test.
func (s *PostgresServer) first(server string) {
	s.t.Helper()
	s.t.Cleanup(func() {
		if s.process != nil {
			s.Kill()
		}
	})
	var err error
	if s.port, err = reserve(s.t); err == nil {
		err = s.start()
	}
	if err != nil {
		s.t.Fatalf("starting %s: %v", server, err)
	}
}

func (s *PostgresServer) data() string { return filepath.Join(s.dir, "data") }

// Addr returns host:port.
func (s *PostgresServer) Addr() string { return local(s.port) }

// SocketDir returns the directory of the server's socket.
func (s *PostgresServer) SocketDir() string { return s.dir }

// URL returns the address of a database, as the superuser.
func (s *PostgresServer) URL(database string) string { return PostgresURL(s.Addr(), database) }

// PostgresURL is the URL of a database at addr, which may be a proxy's.
func PostgresURL(addr, database string) string {
	return "postgres://postgres@" + addr + "/" + database + "?sslmode=disable&connect_timeout=60"
}

func (s *PostgresServer) start() error {
	args := []string{"-D", s.data(), "-p", strconv.Itoa(s.port), "-k", s.dir,
		"-c", "listen_addresses=127.0.0.1",
		"-c", "fsync=off", // kill -9 loses nothing that was written; only the machine's own crash would
		"-c", "dynamic_shared_memory_type=mmap", // files in its folder, which goes with the test
		"-c", "autovacuum=off", // which visits each database in turn, and tests make hundreds
		"-c", "shared_buffers=32MB", "-c", "max_connections=200"}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	cmd := asService(postgresBinary("postgres"), args...)
	cmd.Dir = s.dir
	if s.env != nil {
		cmd.Env = append(os.Environ(), s.env...)
	}
	var err error
	if s.process, err = start(cmd); err != nil {
		return err
	}
	return s.process.await(func() error { return askPostgres(s.URL("postgres")) })
}

func askPostgres(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.Ping(ctx)
}

// Kill ends the server and all its backends as kill -9 does, and waits until the
// server is gone. That is so once its backends have ended: even a paused one holds its stderr open.
// The parent is stopped first, so that no backend begins that nobody kills: one that outlives
// the others may wait for ever for what they held.
func (s *PostgresServer) Kill() {
	parent := s.process.cmd.Process
	_ = s.process.pause() // it may have ended
	for _, pid := range childrenOf(parent.Pid) {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill() // it may have ended by itself
		}
	}
	_ = parent.Kill()
	<-s.process.gone
	s.removeSegment()
}

// removeSegment removes the System V segment of shared memory by which a server notices
// another one in its folder. A server that is killed leaves it behind, and the kernel
// has room for 4,096 of them.
func (s *PostgresServer) removeSegment() {
	notes, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return // the server was stopped, not killed
	}
	lines := strings.Split(string(notes), "\n")
	if len(lines) < 7 {
		return // it was killed before it had one
	}
	if ids := strings.Fields(lines[6]); len(ids) == 2 { // a key and the segment's number
		_ = exec.Command("ipcrm", "-m", ids[1]).Run() //nolint:gosec // a number; and the test is over
	}
}

// Stop shuts the server down: it writes everything to its files first.
func (s *PostgresServer) Stop() {
	s.t.Helper()
	if err := s.process.cmd.Process.Signal(os.Interrupt); err != nil {
		s.t.Fatalf("stopping PostgreSQL: %v", err)
	}
	select {
	case <-s.process.gone:
	case <-time.After(patience):
		s.t.Fatalf("PostgreSQL has not stopped after %v", patience)
	}
}

// Start starts a server again that was killed or stopped, on the same port
// with the data it left.
func (s *PostgresServer) Start() {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := s.start()
		if err == nil {
			return
		}
		// A backend that was killed a moment ago may still have the shared memory.
		dying := strings.Contains(err.Error(), "shared memory block") || strings.Contains(err.Error(), "still in use")
		if !dying || time.Now().After(deadline) {
			s.t.Fatalf("starting PostgreSQL again: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Pause stops all of the server's processes: connections stay open, nothing is
// answered.
func (s *PostgresServer) Pause() {
	s.t.Helper()
	if err := s.forAll((*process).pause); err != nil {
		s.t.Fatalf("pausing PostgreSQL: %v", err)
	}
}

// Resume ends a Pause.
func (s *PostgresServer) Resume() {
	s.t.Helper()
	if err := s.forAll((*process).resume); err != nil {
		s.t.Fatalf("resuming PostgreSQL: %v", err)
	}
}

// forAll signals the parent first: one that stands still starts no more processes.
func (s *PostgresServer) forAll(signal func(*process) error) error {
	if err := signal(s.process); err != nil {
		return err
	}
	for _, pid := range childrenOf(s.process.cmd.Process.Pid) {
		if p, err := os.FindProcess(pid); err == nil {
			_ = signal(&process{cmd: &exec.Cmd{Process: p}}) // it may have ended
		}
	}
	return nil
}

// childrenOf returns the processes that pid has started, where the system has a
// /proc. Elsewhere they end by themselves soon after their parent.
func childrenOf(pid int) []int {
	var pids []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, err := os.ReadFile(path) //nolint:gosec // /proc
		if err != nil {
			continue // it has ended
		}
		// pid (program) state parent …, and the program may contain anything
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, child)
		}
	}
	return pids
}

// postgresBinary finds a program of the newest installed version, "" if there
// is none. Debian keeps servers out of the path.
func postgresBinary(name string) string {
	versions, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	best, newest := "", 0
	for _, path := range versions {
		version, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		if version > newest {
			best, newest = path, version
		}
	}
	if best == "" {
		best, _ = exec.LookPath(name)
	}
	return best
}

// serviceUser is the user for servers that refuse to run as root: "" for our own.
func serviceUser() string {
	if os.Getuid() != 0 {
		return ""
	}
	return "nobody"
}

// asService makes a command for a server that refuses to run as root. A process that
// changes its user loses its death signal, so setpriv sets it again.
func asService(binary string, args ...string) *exec.Cmd {
	user := serviceUser()
	if user == "" {
		return exec.Command(binary, args...) //nolint:gosec // test servers
	}
	wrapped := append([]string{"--reuid=" + user, "--regid=nogroup", "--clear-groups", "--pdeathsig=KILL", "--", binary}, args...)
	return exec.Command("setpriv", wrapped...) //nolint:gosec // test servers
}

// serviceDir makes a temporary directory for the server's user, below
// LOCKER_TEST_POSTGRES if that is set. Other users cannot enter that of t.TempDir.
func serviceDir(t TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(os.Getenv("LOCKER_TEST_POSTGRES"), "lockstile-")
	if err != nil {
		t.Fatalf("a directory for the server: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if user := serviceUser(); user != "" {
		if err := said(exec.Command("chown", user, dir)); err != nil {
			t.Fatalf("a directory for the server: %v", err)
		}
	}
	return dir
}
