package testserver_test

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/testserver"
)

// ask sends a request to a NATS server, in its own protocol, and returns the answer. The subject of the answer is its own: a server
// that was paused answers earlier requests when it is resumed.
func ask(srv *testserver.NATSServer, wait time.Duration, subject, body string) (string, error) {
	conn, err := net.DialTimeout("tcp", srv.Addr(), wait)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(wait))
	inbox := rand.Text()
	_, err = fmt.Fprintf(conn, "CONNECT {\"verbose\":false}\r\nSUB %s 1\r\nPUB %s %s %d\r\n%s\r\n", inbox, subject, inbox, len(body), body)
	if err != nil {
		return "", err
	}
	for lines := bufio.NewReader(conn); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(line, "MSG ") {
			return lines.ReadString('\n')
		}
	}
}

func TestNATSServerComesBackWithItsDataUntilItIsWiped(t *testing.T) {
	t.Parallel()
	srv := testserver.NATS(t)
	streams := func(want bool) {
		t.Helper()
		if got, err := ask(srv, time.Minute, "$JS.API.STREAM.NAMES", ""); err != nil || strings.Contains(got, `"kept"`) != want {
			t.Errorf("its streams are %s, %v", got, err)
		}
	}
	if got, err := ask(srv, time.Minute, "$JS.API.STREAM.CREATE.kept", `{"name":"kept","subjects":["kept"]}`); err != nil || strings.Contains(got, "error") {
		t.Fatalf("creating a stream: %s, %v", got, err)
	}
	streams(true)
	srv.Kill()
	if _, err := ask(srv, time.Minute, "$JS.API.INFO", ""); err == nil {
		t.Error("a killed server answers")
	}
	srv.Start()
	streams(true)
	srv.Pause()
	if got, err := ask(srv, 100*time.Millisecond, "$JS.API.INFO", ""); err == nil {
		t.Errorf("a paused server answers %s", got)
	}
	srv.Resume()
	streams(true)
	srv.Kill()
	srv.Wipe()
	srv.Start()
	streams(false)
}

func TestNATSServerTakesLinesOfConfiguration(t *testing.T) {
	t.Parallel()
	srv := testserver.NATS(t, "jetstream: {domain: here}", "max_payload: 12345")
	got, err := ask(srv, time.Minute, "$JS.here.API.INFO", "")
	if err != nil || !strings.Contains(got, `"domain":"here"`) {
		t.Errorf("it says %s, %v", got, err)
	}
}
