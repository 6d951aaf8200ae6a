package dial

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"
)

// speakTLS has the client of o say in its errors that the handshake failed. A
// server that does not speak TLS waits in silence for the end of a line, and the
// client's own dialer then reports a deadline and nothing else, as if the
// server could not be reached. It also heeds the end of a context, which the
// client's own does not during a handshake.
func speakTLS(o *redis.Options) {
	if o.TLSConfig == nil {
		return
	}
	config, dialer := o.TLSConfig, &net.Dialer{}
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, o.DialTimeout)
		defer cancel()
		plain, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		conn := tls.Client(plain, config)
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = plain.Close() // nothing was sent that could be lost
			return nil, fmt.Errorf("TLS handshake: %w: is this the server's port for TLS?", err)
		}
		return conn, nil
	}
}
