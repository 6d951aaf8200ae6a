package dial

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// dialed remembers why servers could not be connected to, which the clients of
// etcd and ZooKeeper keep to themselves: they try again until time is up.
type dialed struct {
	mu     sync.Mutex
	hosts  int
	errs   map[string]error
	failed chan struct{} // closed when no host could be connected to
}

func newDialed(hosts []string) *dialed {
	return &dialed{hosts: len(hosts), errs: make(map[string]error), failed: make(chan struct{})}
}

// note keeps how the last attempt at a server ended.
func (d *dialed) note(addr string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		delete(d.errs, addr)
		return
	}
	d.errs[addr] = err
	if len(d.errs) < d.hosts {
		return
	}
	select {
	case <-d.failed:
	default:
		close(d.failed)
	}
}

// err is what was noted of all servers.
func (d *dialed) err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all error
	for _, addr := range slices.Sorted(maps.Keys(d.errs)) {
		if all == nil {
			all = d.errs[addr]
		} else {
			all = fmt.Errorf("%w; %w", all, d.errs[addr]) // on one line, unlike errors.Join
		}
	}
	return all
}

// explain adds to err, of a client that gave up, what is known of connections.
func (d *dialed) explain(err error) error {
	seen := d.err()
	if err == nil || seen == nil || err.Error() == seen.Error() {
		return err
	}
	return fmt.Errorf("%w: %w", err, seen)
}

// within returns a context that ends with ctx, or when no host could be
// connected to.
func (d *dialed) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-d.failed:
			cancel(d.err())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// dialedConn is a connection that knows what it was dialled as.
type dialedConn struct {
	net.Conn
	addr string
}

func (d *dialed) dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	d.note(addr, err)
	if err != nil {
		return nil, err
	}
	return dialedConn{conn, addr}, nil
}

// options make the client of etcd use d. Creds may be nil, for no TLS.
func (d *dialed) options(creds credentials.TransportCredentials) []grpc.DialOption {
	opts := []grpc.DialOption{grpc.WithContextDialer(d.dial)}
	if creds != nil {
		opts = append(opts, grpc.WithTransportCredentials(noted{creds, d}))
	}
	return opts
}

// noted are credentials that note how handshakes end.
type noted struct {
	credentials.TransportCredentials
	to *dialed
}

func (n noted) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := n.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if c, ok := raw.(dialedConn); ok && err != nil {
		n.to.note(c.addr, fmt.Errorf("%s: %w", c.addr, handshakeError(err)))
	}
	return conn, info, err
}

func (n noted) Clone() credentials.TransportCredentials {
	return noted{n.TransportCredentials.Clone(), n.to}
}
