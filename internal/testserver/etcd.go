package testserver

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// EtcdCluster is a cluster of etcd servers of a test's own.
type EtcdCluster struct {
	t       TB
	Members []*EtcdServer
}

// EtcdServer is one member of an [EtcdCluster].
type EtcdServer struct {
	single
	name       string
	dir        string
	port, peer int
	args       []string
}

// Etcd starts a cluster of so many etcd servers, of the version that
// internal/testserver/etcdserver requires, with args added to each one's command line.
// LOCKER_ETCD_SERVER names another binary.
func Etcd(t TB, members int, args ...string) *EtcdCluster {
	t.Helper()
	binary := os.Getenv("LOCKER_ETCD_SERVER")
	if binary == "" {
		var err error
		if binary, err = built("etcdserver"); err != nil {
			missing(t, "etcd", fmt.Sprintf("it is built with go build in internal/testserver/etcdserver: %v", err))
		}
	}
	c := &EtcdCluster{t: t}
	root := t.TempDir() // before Cleanup, so that it is removed after the servers have ended
	t.Cleanup(c.end)
	var err error
	for try := range 5 {
		if err = c.try(binary, filepath.Join(root, strconv.Itoa(try)), members, args); err == nil || !strings.Contains(err.Error(), "address already in use") {
			break
		}
		c.end()
	}
	if err != nil {
		t.Fatalf("starting %d etcd servers: %v", members, err)
	}
	return c
}

func (c *EtcdCluster) end() {
	for _, s := range c.Members {
		s.end()
	}
}

// try starts all members at once, for none is ready without a majority.
func (c *EtcdCluster) try(binary, dir string, members int, args []string) error {
	c.Members = nil
	var peers []string
	for i := range members {
		s := &EtcdServer{single: single{t: c.t, binary: binary}, name: fmt.Sprintf("m%d", i), args: args}
		s.dir = filepath.Join(dir, s.name)
		var err error
		if s.port, err = reserve(c.t); err != nil {
			return err
		}
		if s.peer, err = reserve(c.t); err != nil {
			return err
		}
		peers = append(peers, s.name+"="+url(s.peer))
		c.Members = append(c.Members, s)
	}
	for _, s := range c.Members {
		s.args = append([]string{"--initial-cluster", strings.Join(peers, ",")}, args...)
		if err := s.launch(); err != nil {
			return err
		}
	}
	for _, s := range c.Members {
		if err := s.process.await(s.healthy); err != nil {
			return err
		}
	}
	return nil
}

// Endpoints returns host:port of every member.
func (c *EtcdCluster) Endpoints() []string {
	var addrs []string
	for _, s := range c.Members {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// Leader waits for a member that says it leads, and returns it.
func (c *EtcdCluster) Leader() *EtcdServer {
	c.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		for _, s := range c.Members {
			if n, err := s.TryMetric("etcd_server_is_leader"); err == nil && n == 1 {
				return s
			}
		}
	}
	c.t.Fatalf("no etcd server leads after %v", patience)
	return nil
}

// Etcdctl returns a command of etcd's own client on the cluster, of the version that
// internal/testserver/etcdctl requires.
func (c *EtcdCluster) Etcdctl(args ...string) *exec.Cmd {
	c.t.Helper()
	binary, err := built("etcdctl")
	if err != nil {
		missing(c.t, "etcdctl", fmt.Sprintf("it is built with go build in internal/testserver/etcdctl: %v", err))
	}
	return exec.Command(binary, append([]string{"--endpoints", strings.Join(c.Endpoints(), ",")}, args...)...)
}

func url(port int) string { return "http://127.0.0.1:" + strconv.Itoa(port) }

func (s *EtcdServer) launch() error {
	args := []string{
		"--name", s.name, "--data-dir", s.dir, "--log-level", "error",
		"--listen-client-urls", url(s.port), "--advertise-client-urls", url(s.port),
		"--listen-peer-urls", url(s.peer), "--initial-advertise-peer-urls", url(s.peer),
		"--bcrypt-cost", "4", // the least: no test is about how long a check of a password takes
	}
	var err error
	s.process, err = start(exec.Command(s.binary, append(args, s.args...)...))
	return err
}

// healthy asks for a read that a majority confirms.
func (s *EtcdServer) healthy() error {
	_, err := s.get("/health", 5*time.Second)
	return err
}

func (s *EtcdServer) get(path string, wait time.Duration) (string, error) {
	client := http.Client{Timeout: wait, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url(s.port) + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, body)
	}
	return string(body), err
}

// Addr returns host:port.
func (s *EtcdServer) Addr() string { return local(s.port) }

// Dir returns the folder of its data.
func (s *EtcdServer) Dir() string { return s.dir }

// Start starts a killed server again, on the same ports with the data it left, and waits
// until it serves: there must be a majority.
func (s *EtcdServer) Start() {
	s.t.Helper()
	s.StartAlone()
	if err := s.process.await(s.healthy); err != nil {
		s.t.Fatalf("starting %s again: %v", s.binary, err)
	}
}

// StartAlone is Start without the wait, for a cluster that has no majority yet.
func (s *EtcdServer) StartAlone() {
	s.t.Helper()
	if err := s.launch(); err != nil {
		s.t.Fatalf("starting %s again: %v", s.binary, err)
	}
}

// Metric returns the sum of all its metrics whose name and labels begin with
// prefix, such as `grpc_server_handled_total{grpc_code="OK",grpc_method="Txn"`.
func (s *EtcdServer) Metric(prefix string) float64 {
	s.t.Helper()
	n, err := s.TryMetric(prefix)
	if err != nil {
		s.t.Fatalf("metrics of %s: %v", s.Addr(), err)
	}
	return n
}

// TryMetric is Metric for servers that may not answer.
func (s *EtcdServer) TryMetric(prefix string) (float64, error) {
	body, err := s.get("/metrics", 5*time.Second)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, prefix) {
			continue
		}
		fields := strings.Fields(line)
		n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			return 0, fmt.Errorf("the metric %q is not understood", line)
		}
		sum += n
	}
	return sum, nil
}
