package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/credentials"
)

// files are what a URL names with cacert, cert and key, as etcdctl and redis-cli do. They are
// read again for each connection, for certificates are renewed on disk while a program runs.
type files struct{ ca, cert, key string }

// takeFiles takes them from a URL. Without TLS they are refused, for the connection would not be
// what was meant. With it they are read once, so that what is wrong is found at once.
func (a *address) takeFiles(withTLS bool, secure string) (files, error) {
	f := files{a.take("cacert"), a.take("cert"), a.take("key")}
	if !withTLS && f != (files{}) {
		return f, fmt.Errorf("cacert, cert and key are for TLS: write %s://", secure)
	}
	_, err := f.config(&tls.Config{MinVersion: tls.VersionTLS12})
	return f, err
}

// config returns a copy of base with what the files have now.
func (f files) config(base *tls.Config) (*tls.Config, error) {
	config := base.Clone()
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca) //nolint:gosec // the caller's own choice
		if err != nil {
			return nil, fmt.Errorf("cacert: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("cacert: %s has no certificate in PEM form", f.ca)
		}
	}
	if f.cert != "" || f.key != "" {
		if f.cert == "" || f.key == "" {
			return nil, fmt.Errorf("cert and key belong together, and one is missing")
		}
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("cert %s and key %s: %w", f.cert, f.key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// credentials are those of a client of etcd.
func (f files) credentials(base *tls.Config) credentials.TransportCredentials {
	return fresh{credentials.NewTLS(base), f, base}
}

// fresh are credentials that read files for each connection.
type fresh struct {
	credentials.TransportCredentials
	files files
	base  *tls.Config
}

func (f fresh) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := f.files.config(f.base)
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, raw)
}

func (f fresh) Clone() credentials.TransportCredentials {
	return fresh{f.TransportCredentials.Clone(), f.files, f.base.Clone()}
}

// speakTLS has the client of o say in its errors that the handshake failed. A
// server that does not speak TLS waits in silence for the end of a line, and the
// client's own dialer then reports a deadline and nothing else, as if the
// server could not be reached. It also heeds the end of a context, which the
// client's own does not during a handshake.
func speakTLS(o *redis.Options, f files) {
	if o.TLSConfig == nil {
		return
	}
	base, dialer := o.TLSConfig, &net.Dialer{}
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, o.DialTimeout)
		defer cancel()
		config, err := f.config(base)
		if err != nil {
			return nil, notConnected{err}
		}
		plain, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		conn := tls.Client(plain, config)
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = plain.Close() // nothing was sent that could be lost
			return nil, notConnected{handshakeError(err)}
		}
		return conn, nil
	}
}

// notConnected is why there is no connection. Nothing was sent to the server.
type notConnected struct{ error }

func (e notConnected) Unwrap() error { return e.error }

// NotSent is looked for by redisnode.
func (notConnected) NotSent() {}

// handshakeError says what to look at. A server that has shown a certificate speaks TLS.
func handshakeError(err error) error {
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		return fmt.Errorf("TLS handshake: %w: cacert names the file of its authority, and the address must be one that the certificate has", err)
	}
	return fmt.Errorf("TLS handshake: %w: is this the server's port for TLS, and does it want a certificate of ours (cert and key)?", err)
}
