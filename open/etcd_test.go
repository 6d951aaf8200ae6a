package open_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/open"
)

func TestEtcdByURL(t *testing.T) {
	t.Parallel()
	c := testserver.Etcd(t, 1)
	addr := c.Members[0].Addr()
	works(t, mustOpen(t, "etcd://"+addr))
	works(t, mustOpen(t, "etcd://"+addr+"/?prefix=p/"))
	mustHold(t, mustOpen(t, "etcd://"+addr+"?prefix=p%2F"), "x")
	if _, err := mustOpen(t, "etcd://"+addr+"?prefix=p/").TryLock(patience(t), "x"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock of the same prefix and name: %v", err)
	}
	mustHold(t, mustOpen(t, "etcd://"+addr), "x") // another key
	if _, err := open.URL(patience(t), "etcds://"+addr); !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "TLS handshake") {
		t.Errorf("TLS where the server speaks none: %v", err)
	}
	c.Members[0].Kill()
	silent(t, "etcd://"+addr, addr, "connection refused")
	silent(t, "etcd://u:secret@"+addr, addr, "connection refused")
	silent(t, "etcd://u:secret@host.invalid", "host.invalid:2379")
}

func TestEtcdMemberThatIsDownIsNotTheClusters(t *testing.T) {
	t.Parallel()
	c := testserver.Etcd(t, 3)
	c.Members[0].Kill()
	url := "etcd://" + strings.Join(c.Endpoints(), ",")
	works(t, mustOpen(t, url))
	c.Members[1].Kill()
	silent(t, url, c.Members[2].Addr(), "connection refused")
	c.Members[2].Kill()
	silent(t, url, "connect: connection refused; dial tcp")
}

func TestEtcdThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	c := testserver.Etcd(t, 1)
	c.Members[0].Pause()
	defer c.Members[0].Resume()
	for _, user := range []string{"", "u:secret@"} {
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(50*time.Millisecond, func() { cancel(errors.New("enough")) })
		if _, err := open.URL(ctx, "etcd://"+user+c.Members[0].Addr()); !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "enough") {
			t.Errorf("a cancelled attempt: %v", err)
		}
	}
	silent(t, "etcd://u:secret@"+c.Members[0].Addr(), c.Members[0].Addr(), "no answer within 5s")
}

// The user may use what is below one prefix.
func TestEtcdUserPasswordAndPermission(t *testing.T) {
	t.Parallel()
	const pass = `p@s:s/w?r#d%41,+&= "secret`
	c := testserver.Etcd(t, 1)
	addr := c.Members[0].Addr()
	withAuth(t, addr, pass)
	works(t, mustOpen(t, "etcd://me:"+escapeLess(pass)+"@"+addr+"?prefix=mine/"))
	refused(t, "etcd://me:secret@"+addr+"?prefix=mine/", addr, "authentication failed")
	refused(t, "etcd://nobody:secret@"+addr+"?prefix=mine/", addr, "authentication failed")
	refused(t, "etcd://me:"+escapeLess(pass)+"@"+addr, addr, "permission denied")
	refused(t, "etcd://"+addr, addr, "user name is empty")
}

func withAuth(t *testing.T, addr, pass string) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	ctx := patience(t)
	steps := []func() error{
		func() error { _, err := client.UserAdd(ctx, "root", "root-secret"); return err },
		func() error { _, err := client.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := client.UserAdd(ctx, "me", pass); return err },
		func() error { _, err := client.RoleAdd(ctx, "locks"); return err },
		func() error {
			_, err := client.RoleGrantPermission(ctx, "locks", "mine/", clientv3.GetPrefixRangeEnd("mine/"), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := client.UserGrantRole(ctx, "me", "locks"); return err },
		func() error { _, err := client.AuthEnable(ctx); return err },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
}

func TestEtcdOverTLSByURL(t *testing.T) {
	t.Parallel()
	cert, key := selfSigned(t)
	plain := testserver.Etcd(t, 1).Members[0].Addr()
	addr, strict := behindTLS(t, plain, cert, key, tls.RequestClientCert), behindTLS(t, plain, cert, key, tls.RequireAnyClientCert)
	works(t, mustOpen(t, "etcds://"+addr+"?skip_verify=true"))
	works(t, mustOpen(t, "etcds://"+addr+"?cacert="+cert))
	works(t, mustOpen(t, "etcds://"+strict+"?cacert="+cert+"&cert="+cert+"&key="+key))
	refused(t, "etcds://"+addr, addr, "certificate")
	silent(t, "etcd://"+addr, addr)
}

// behindTLS returns the address of a server that speaks TLS and passes on to addr
// what it is told.
func behindTLS(t *testing.T, addr, certFile, keyFile string, from tls.ClientAuthType) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	return listenTLS(t, addr, &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}, ClientAuth: from,
	}, func(net.Conn) {})
}

// listenTLS returns the address of a server that passes on to addr what it is told, and calls
// accepted for each connection.
func listenTLS(t *testing.T, addr string, config *tls.Config, accepted func(net.Conn)) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted(conn)
			go pass(conn, addr)
		}
	}()
	return l.Addr().String()
}

// pass ends when either side does.
func pass(conn net.Conn, addr string) {
	defer func() { _ = conn.Close() }()
	server, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	go func() {
		defer func() { _ = server.Close() }()
		_, _ = io.Copy(server, conn)
	}()
	_, _ = io.Copy(conn, server)
}
