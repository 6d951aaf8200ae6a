package testserver

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lockstile/locker/internal/netproxy"
)

// ZooKeeperTick is the tickTime of the servers. Sessions end at multiples of it, and the
// shortest session timeout that a server grants is two ticks.
const ZooKeeperTick = 250 * time.Millisecond

// ZooKeeperServer is a ZooKeeper server of a test's own, alone or one of an
// ensemble.
type ZooKeeperServer struct {
	single
	id       int
	settings []string
	dir      string
	client   int // ports
	peer     int
	election int
	changes  *netproxy.Proxy // from the leader, of an observer
}

// ZooKeeper starts an ensemble of n servers (1, 3, …) and waits until it serves. It needs
// Java and Debian's package libzookeeper-java, or the same jar elsewhere, which
// LOCKER_ZOOKEEPER_CLASSPATH names. No service of the system is touched.
func ZooKeeper(t TB, n int) []*ZooKeeperServer {
	t.Helper()
	return ZooKeeperWith(t, n)
}

// ZooKeeperWith is ZooKeeper with settings, such as tickTime=1000, which come after those
// that all servers have here: of two the last counts.
func ZooKeeperWith(t TB, n int, settings ...string) []*ZooKeeperServer {
	t.Helper()
	return zooKeeper(t, func(root string) ([]*ZooKeeperServer, error) { return startEnsemble(t, root, n, nil, settings) })
}

// ZooKeeperBehind starts a server, and an observer that hears of changes through a proxy: while
// the proxy's replies are cut, it answers from what it has.
func ZooKeeperBehind(t TB) (leader, observer *ZooKeeperServer, changes *netproxy.Proxy) {
	t.Helper()
	changes, err := netproxy.Listen("")
	if err != nil {
		t.Fatalf("the observer's proxy: %v", err)
	}
	servers := zooKeeper(t, func(root string) ([]*ZooKeeperServer, error) {
		return startEnsemble(t, root, 2, changes, []string{"standaloneEnabled=false"})
	})
	t.Cleanup(changes.Close) // before the servers end
	return servers[0], servers[1], changes
}

func zooKeeper(t TB, start func(root string) ([]*ZooKeeperServer, error)) []*ZooKeeperServer {
	t.Helper()
	if _, err := exec.LookPath("java"); err != nil {
		missing(t, "java", "apt-get install default-jre-headless")
	}
	if os.Getenv("LOCKER_ZOOKEEPER_CLASSPATH") == "" {
		if _, err := os.Stat(zooKeeperJar); err != nil {
			missing(t, "zookeeper", "apt-get install libzookeeper-java")
		}
	}
	root := t.TempDir() // before Cleanup, so that it is removed after the servers have ended
	var servers []*ZooKeeperServer
	t.Cleanup(func() {
		for _, s := range servers {
			s.stop()
		}
	})
	var err error
	for range 3 { // somebody may have taken a port between our look and the server's
		if servers, err = start(root); err == nil {
			return servers
		}
		for _, s := range servers {
			s.stop()
		}
	}
	t.Fatalf("starting zookeeper: %v", err)
	return nil
}

const zooKeeperJar = "/usr/share/java/zookeeper.jar"

// startEnsemble has the last server be an observer, if there are changes for it to hear of.
func startEnsemble(t TB, root string, n int, changes *netproxy.Proxy, settings []string) ([]*ZooKeeperServer, error) {
	ports := make([]int, 3*n)
	for i := range ports {
		var err error
		if ports[i], err = reserve(t); err != nil {
			return nil, err
		}
	}
	servers := make([]*ZooKeeperServer, n)
	for i := range servers {
		dir, err := os.MkdirTemp(root, "")
		if err != nil {
			return nil, err
		}
		servers[i] = &ZooKeeperServer{single: single{t: t, binary: "zookeeper"}, id: i + 1, settings: settings, dir: dir, client: ports[3*i], peer: ports[3*i+1], election: ports[3*i+2]}
	}
	if changes != nil {
		servers[n-1].changes = changes
		changes.Retarget(local(servers[0].peer))
	}
	for _, s := range servers {
		if err := s.configure(servers); err != nil {
			return servers, err
		}
		if err := s.launch(); err != nil {
			return servers, err
		}
	}
	for _, s := range servers {
		if err := s.ready(); err != nil {
			return servers, err
		}
	}
	return servers, nil
}

func (s *ZooKeeperServer) configure(all []*ZooKeeperServer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "tickTime=%d\n", ZooKeeperTick.Milliseconds())
	fmt.Fprintf(&b, "maxSessionTimeout=60000\ninitLimit=80\nsyncLimit=20\n") // in ticks: slow machines
	fmt.Fprintf(&b, "dataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\n", s.dir, s.client)
	fmt.Fprintf(&b, "maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=*\n")
	fmt.Fprintln(&b, strings.Join(s.settings, "\n")) // the last of two counts
	if len(all) > 1 {
		for _, peer := range all {
			at, role := local(peer.peer), ""
			if s.changes != nil && peer != s {
				at = s.changes.Addr()
			}
			if peer.changes != nil {
				role = ":observer"
			}
			fmt.Fprintf(&b, "server.%d=%s:%d%s\n", peer.id, at, peer.election, role)
		}
		if err := os.WriteFile(filepath.Join(s.dir, "myid"), []byte(strconv.Itoa(s.id)), 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(s.config(), []byte(b.String()), 0o600)
}

func (s *ZooKeeperServer) config() string { return filepath.Join(s.dir, "zoo.cfg") }

func (s *ZooKeeperServer) launch() error {
	classpath := os.Getenv("LOCKER_ZOOKEEPER_CLASSPATH")
	if classpath == "" {
		classpath = zooKeeperJar
	}
	cmd := exec.Command("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
		"-Dznode.container.checkIntervalMs=1000", // the default is a minute: too long for tests of containers
		"-cp", classpath, "org.apache.zookeeper.server.quorum.QuorumPeerMain", s.config())
	cmd.Dir = s.dir
	var err error
	s.process, err = start(cmd)
	return err
}

func (s *ZooKeeperServer) stop() {
	if s != nil {
		s.end()
	}
}

func (s *ZooKeeperServer) ready() error {
	return s.process.await(func() error {
		if mode, err := s.mode(); err != nil || mode == "" {
			return fmt.Errorf("the server does not serve yet: %w", errors.Join(err, errNotServing))
		}
		return nil
	})
}

var errNotServing = errors.New("no mode yet")

// mode is standalone, leader or follower; empty while the server has no quorum.
func (s *ZooKeeperServer) mode() (string, error) {
	text, err := s.TryDo("srvr")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if mode, ok := strings.CutPrefix(line, "Mode: "); ok {
			return strings.TrimSpace(mode), nil
		}
	}
	return "", nil
}

// ZooKeeperLeader returns the server that leads, once there is one.
func ZooKeeperLeader(t TB, servers []*ZooKeeperServer) *ZooKeeperServer {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, s := range servers {
			if mode, err := s.mode(); err == nil && (mode == "leader" || mode == "standalone") {
				return s
			}
		}
	}
	t.Fatalf("no server leads after %v", patience)
	return nil
}

// Addr returns host:port for clients.
func (s *ZooKeeperServer) Addr() string { return local(s.client) }

// Start starts a killed server again, on the same ports with its data, and
// waits until it serves: an ensemble must have its majority for that.
func (s *ZooKeeperServer) Start() {
	s.t.Helper()
	err := s.launch()
	if err == nil {
		err = s.ready()
	}
	if err != nil {
		s.t.Fatalf("starting zookeeper again: %v", err)
	}
}

// TryDo sends one of the four-letter commands and returns the answer.
func (s *ZooKeeperServer) TryDo(command string) (string, error) {
	conn, err := net.DialTimeout("tcp", s.Addr(), patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, command); err != nil {
		return "", err
	}
	reply, err := io.ReadAll(conn)
	return string(reply), err
}

// Stat returns one number of the server's monitoring, such as
// zk_packets_received.
func (s *ZooKeeperServer) Stat(key string) int64 {
	s.t.Helper()
	text, err := s.TryDo("mntr")
	if err != nil {
		s.t.Fatalf("mntr: %v", err)
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if name != key {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSuffix(value, ".0"), 10, 64)
		if err != nil {
			s.t.Fatalf("mntr: %s is %q", key, value)
		}
		return n
	}
	s.t.Fatalf("mntr has no %s:\n%s", key, text)
	return 0
}
