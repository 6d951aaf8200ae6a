package testserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// RedisServer is a redis-server of a test's own.
type RedisServer struct {
	single
	dir      string
	port     int
	env      []string
	args     []string
	password string
}

// Redis starts a redis-server that keeps nothing on disk unless args say
// otherwise ("--appendonly", "yes"). LOCKER_REDIS_SERVER names another binary,
// such as valkey-server.
func Redis(t TB, args ...string) *RedisServer {
	t.Helper()
	return RedisWithEnv(t, nil, args...)
}

// RedisWithEnv is Redis with additions to the server's environment.
func RedisWithEnv(t TB, env []string, args ...string) *RedisServer {
	t.Helper()
	binary, err := exec.LookPath(redisBinary())
	if err != nil {
		missing(t, redisBinary(), "apt-get install redis-server")
	}
	s := &RedisServer{single: single{t: t, binary: binary}, dir: t.TempDir(), env: env, args: args}
	if i := slices.Index(args, "--requirepass"); i >= 0 && i+1 < len(args) {
		s.password = args[i+1]
	}
	t.Cleanup(s.end)
	for range 5 { // the port is ours, but a cluster has another, 10,000 above it
		if s.port, err = reserve(t); err != nil {
			break
		}
		if err = s.start(); err == nil || !strings.Contains(err.Error(), "Address already in use") {
			break
		}
	}
	if err != nil {
		t.Fatalf("starting %s: %v", binary, err)
	}
	return s
}

func redisBinary() string {
	if binary := os.Getenv("LOCKER_REDIS_SERVER"); binary != "" {
		return binary
	}
	return "redis-server"
}

func (s *RedisServer) start() error {
	args := []string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(s.port), "--dir", s.dir,
		"--save", "", "--appendonly", "no", "--enable-debug-command", "local",
	}
	cmd := exec.Command(s.binary, append(args, s.args...)...)
	cmd.Env = append(os.Environ(), s.env...)
	var err error
	s.process, err = start(cmd)
	if err != nil {
		return err
	}
	return s.process.await(func() error {
		if _, err := s.TryDo("PING"); err != nil {
			return err
		}
		return s.isOurs()
	})
}

// isOurs returns an error if somebody else's server has taken the port while ours was
// down.
func (s *RedisServer) isOurs() error {
	info, err := s.TryDo("INFO", "server")
	if err == nil && !strings.Contains(info, fmt.Sprintf("process_id:%d\r", s.process.cmd.Process.Pid)) {
		err = errors.New("another server has taken its port")
	}
	return err
}

// Addr returns host:port.
func (s *RedisServer) Addr() string { return local(s.port) }

// Dir returns the folder of its data.
func (s *RedisServer) Dir() string { return s.dir }

// Start starts a killed server again, on the same port with the data it left.
func (s *RedisServer) Start() {
	s.t.Helper()
	if err := s.start(); err != nil {
		s.t.Fatalf("starting %s again: %v", s.binary, err)
	}
}

// Wipe deletes the data of a killed server.
func (s *RedisServer) Wipe() {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "*"))
	if err != nil {
		s.t.Fatalf("wiping %s: %v", s.dir, err)
	}
	for _, f := range files {
		if err := os.RemoveAll(f); err != nil {
			s.t.Fatalf("wiping %s: %v", s.dir, err)
		}
	}
}

// Await calls ok again and again until it returns true.
func (s *RedisServer) Await(what string, ok func() bool) {
	s.t.Helper()
	err := s.process.await(func() error {
		if !ok() {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil {
		s.t.Fatalf("waiting for %s: %v", what, err)
	}
}

// Do sends one command over a connection of its own and returns the reply as
// text, an array one element a line. An error reply fails the test.
func (s *RedisServer) Do(args ...string) string {
	s.t.Helper()
	reply, err := s.TryDo(args...)
	if err != nil {
		s.t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return reply
}

// TryDo is Do for commands that may fail.
func (s *RedisServer) TryDo(args ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", s.Addr(), patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	c := newRESP(conn)
	if s.password != "" {
		if _, err := c.do("AUTH", s.password); err != nil {
			return "", err
		}
	}
	return c.do(args...)
}
