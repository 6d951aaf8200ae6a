package testserver_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/testserver"
)

// The test binary is also the program that is killed in the last test here.
func TestMain(m *testing.M) {
	if os.Getenv("TESTSERVER_CHILD") == "1" {
		srv := testserver.Redis(child{})
		fmt.Println(srv.Addr())
		select {}
	}
	os.Exit(m.Run())
}

// child is a TB outside a test.
type child struct{}

func (child) Helper()                           {}
func (child) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (child) Skipf(format string, args ...any)  { panic(fmt.Sprintf(format, args...)) }
func (child) Cleanup(func())                    {}
func (child) TempDir() string                   { return os.Getenv("TESTSERVER_DIR") }

func TestServerComesBackWithTheDataThatItKept(t *testing.T) {
	srv := testserver.Redis(t, "--appendonly", "yes", "--appendfsync", "always")
	srv.Do("SET", "k", "v")
	srv.Kill()
	if _, err := srv.TryDo("PING"); err == nil {
		t.Error("a killed server answers")
	}
	srv.Start()
	if got := srv.Do("GET", "k"); got != "v" {
		t.Errorf("after a restart with data: %q", got)
	}
	srv.Kill()
	srv.Wipe()
	srv.Start()
	if got := srv.Do("GET", "k"); got != "" {
		t.Errorf("after a restart without data: %q", got)
	}
}

func TestPausedServerDoesNotAnswerUntilItIsResumed(t *testing.T) {
	srv := testserver.Redis(t)
	srv.Pause()
	answer := make(chan error, 1)
	go func() {
		_, err := srv.TryDo("PING")
		answer <- err
	}()
	select {
	case err := <-answer:
		t.Errorf("a paused server answered: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	srv.Resume()
	if err := <-answer; err != nil {
		t.Error(err)
	}
	srv.Pause() // the end of the test must get rid of a paused server too
}

func TestServerWithAPasswordIsUsable(t *testing.T) {
	srv := testserver.Redis(t, "--requirepass", "secret")
	if got := srv.Do("ECHO", "hello"); got != "hello" {
		t.Errorf("%q", got)
	}
}

func TestServersStartedAtOnceDoNotCollide(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 5 {
		srv := testserver.Redis(t)
		wg.Go(func() {
			srv.Do("SET", "who", fmt.Sprint(i))
			if got := srv.Do("GET", "who"); got != fmt.Sprint(i) {
				t.Errorf("server %d answers as %s", i, got)
			}
		})
	}
	wg.Wait()
}

func TestClusterServesEverySlot(t *testing.T) {
	t.Parallel()
	servers := testserver.RedisCluster(t, 3)
	if got := servers[2].Do("CLUSTER", "INFO"); !strings.Contains(got, "cluster_slots_ok:16384") {
		t.Error(got)
	}
}

func TestReplicasOfAClusterFollowTheirMasters(t *testing.T) {
	t.Parallel()
	masters := testserver.RedisCluster(t, 2)
	for i, replica := range testserver.RedisClusterReplicas(t, masters) {
		_, port, _ := strings.Cut(masters[i].Addr(), ":")
		if got := replica.Do("INFO", "replication"); !strings.Contains(got, "master_port:"+port+"\r") {
			t.Errorf("replica %d of the master at %s says %s", i, masters[i].Addr(), got)
		}
	}
}

func TestServerEndsWithAProcessThatIsKilled(t *testing.T) {
	testserver.Redis(t) // skips where there is none
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TESTSERVER_CHILD=1", "TESTSERVER_DIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("tcp", strings.TrimSpace(addr))
		if err != nil {
			return
		}
		_ = conn.Close()
		if time.Now().After(deadline) {
			t.Fatal("the server outlives the process that started it")
		}
	}
}

// Nobody who asks for any port gets that of a server which is down: else a test
// of a dead server would meet a living one of somebody else's.
func TestPortOfAKilledServerIsItsOwn(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	srv.Kill()
	for range 40_000 { // more than there are
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		taken := l.Addr().String() == srv.Addr()
		_ = l.Close() // it was only asked for
		if taken {
			t.Fatal("the port was given away")
		}
	}
	srv.Start()
	srv.Do("PING")
}
