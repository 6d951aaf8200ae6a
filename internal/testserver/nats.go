package testserver

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// NATSServer is a NATS server with JetStream of a test's own.
type NATSServer struct {
	single
	name   string
	dir    string
	config string
	port   int
}

// NATS starts a NATS server with JetStream, of the version that internal/testserver/natsserver requires. Each of config is a line
// of its configuration, such as "jetstream: {sync_interval: always}". LOCKER_NATS_SERVER names another binary.
func NATS(t TB, config ...string) *NATSServer {
	t.Helper()
	binary := os.Getenv("LOCKER_NATS_SERVER")
	if binary == "" {
		var err error
		if binary, err = built("natsserver"); err != nil {
			missing(t, "nats-server", fmt.Sprintf("it is built with go build in internal/testserver/natsserver: %v", err))
		}
	}
	root := t.TempDir() // before Cleanup, so that it is removed after the server has ended
	s := &NATSServer{single: single{t: t, binary: binary}, name: rand.Text(), dir: filepath.Join(root, "data"), config: filepath.Join(root, "nats.conf")}
	t.Cleanup(s.end)
	err := os.WriteFile(s.config, []byte(strings.Join(config, "\n")), 0o600)
	if err == nil {
		if s.port, err = reserve(t); err == nil {
			err = s.start()
		}
	}
	if err != nil {
		t.Fatalf("starting %s: %v", binary, err)
	}
	return s
}

func (s *NATSServer) start() error {
	var err error
	s.process, err = start(exec.Command(s.binary, "--config", s.config, "--addr", "127.0.0.1", "--port", strconv.Itoa(s.port),
		"--name", s.name, "--jetstream", "--store_dir", s.dir))
	if err != nil {
		return err
	}
	return s.process.await(s.greets)
}

// greets returns nil if the server says who it is and that it has JetStream. A server says so as soon as somebody connects.
func (s *NATSServer) greets() error {
	conn, err := net.DialTimeout("tcp", s.Addr(), patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	said, err := bufio.NewReader(conn).ReadString('\n')
	switch {
	case err != nil:
		return err
	case !strings.Contains(said, strconv.Quote(s.name)):
		return errors.New("another server has taken its port")
	case !strings.Contains(said, `"jetstream":true`):
		return errors.New("it has no JetStream yet")
	}
	return nil
}

// Addr returns host:port.
func (s *NATSServer) Addr() string { return local(s.port) }

// URL is what a client of NATS connects to.
func (s *NATSServer) URL() string { return "nats://" + s.Addr() }

// Dir returns the folder of its data.
func (s *NATSServer) Dir() string { return s.dir }

// Start starts a killed server again, on the same port with the data it left. That is all that it has acknowledged: only a crash of
// the machine loses what was not synced.
func (s *NATSServer) Start() {
	s.t.Helper()
	if err := s.start(); err != nil {
		s.t.Fatalf("starting %s again: %v", s.binary, err)
	}
}

// Wipe deletes the data of a killed server, as a crash of its machine can do: a server syncs once in two minutes unless it is told otherwise.
func (s *NATSServer) Wipe() {
	s.t.Helper()
	if err := os.RemoveAll(s.dir); err != nil {
		s.t.Fatalf("wiping %s: %v", s.dir, err)
	}
}

// Keep copies the data of a killed server, which [NATSServer.Restore] brings back: what a crash of its machine can leave.
func (s *NATSServer) Keep() {
	s.t.Helper()
	s.copy(s.dir, s.dir+"-kept")
}

// Restore brings back to a killed server the data that Keep copied.
func (s *NATSServer) Restore() {
	s.t.Helper()
	s.copy(s.dir+"-kept", s.dir)
}

func (s *NATSServer) copy(from, to string) {
	s.t.Helper()
	err := os.RemoveAll(to)
	if err == nil {
		err = os.CopyFS(to, os.DirFS(from))
	}
	if err != nil {
		s.t.Fatalf("copying %s: %v", from, err)
	}
}

// Name returns the server's name.
func (s *NATSServer) Name() string { return s.name }
