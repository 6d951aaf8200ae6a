package open_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/lockstile/locker/internal/testserver"
)

func TestRedisThatWantsACertificateByURL(t *testing.T) {
	t.Parallel()
	cert, key := selfSigned(t)
	addr := freeAddr(t)
	_, port, _ := strings.Cut(addr, ":")
	testserver.Redis(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert) // tls-auth-clients is yes by default
	works(t, mustOpen(t, "rediss://"+addr+"?cacert="+cert+"&cert="+cert+"&key="+key))
	refused(t, "rediss://"+addr, addr, "certificate")
}

// renewing speaks TLS and passes on to a server what it is told. It reads its certificate for
// each connection, and takes no client that does not show the same one.
type renewing struct {
	addr, cert, key string

	mu    sync.Mutex
	conns []net.Conn
}

func newRenewing(t *testing.T, addr string) *renewing {
	t.Helper()
	cert, key := selfSigned(t)
	r := &renewing{cert: cert, key: key}
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, err
		}
		pem, err := os.ReadFile(cert)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"h2"}}, nil
	}}
	r.addr = listenTLS(t, addr, config, func(conn net.Conn) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.conns = append(r.conns, conn)
	})
	return r
}

// renew writes another certificate into the files, and ends all connections.
func (r *renewing) renew(t *testing.T) {
	t.Helper()
	cert, key := selfSigned(t)
	for from, to := range map[string]string{cert: r.cert, key: r.key} {
		pem, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, pem, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range r.conns {
		_ = conn.Close()
	}
	r.conns = nil
}

func (r *renewing) files() string { return "cacert=" + r.cert + "&cert=" + r.cert + "&key=" + r.key }

// Certificates are renewed on disk while a program runs, and its next connection needs the new
// ones, of itself and of the authority.
func TestRenewedCertificatesAreReadAgain(t *testing.T) {
	t.Parallel()
	for scheme, addr := range map[string]func(t *testing.T) string{
		"rediss": func(t *testing.T) string { return testserver.Redis(t).Addr() },
		"etcds":  func(t *testing.T) string { return testserver.Etcd(t, 1).Members[0].Addr() },
	} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			proxy := newRenewing(t, addr(t))
			b := mustOpen(t, scheme+"://"+proxy.addr+"?"+proxy.files())
			works(t, b)
			proxy.renew(t)
			for ctx := patience(t); ; { // what was asked over a connection that has ended may fail
				if _, err := b.Inspect(ctx, "a/b"); err == nil {
					break
				} else if ctx.Err() != nil {
					t.Fatal(err)
				}
			}
			works(t, b)
		})
	}
}
