package postgres_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// wire is the network of one pool: it counts what is sent, and can lose answers
// or hold back questions.
type wire struct {
	trips atomic.Int64 // pgx sends once and then waits for the answer

	mu    sync.Mutex
	conns []*wiredConn
	mode  wireMode
}

type wireMode int

const (
	whole  wireMode = iota
	deaf            // what is sent arrives, the answer does not
	slow            // what is sent arrives only with deliver
	dying           // what is sent arrives, and the connection breaks when the answer comes
	deafer          // as deaf, and the end of the connection does not arrive either
)

// wiredConn is a connection. Once broken, it stays so.
type wiredConn struct {
	net.Conn
	w    *wire
	mode wireMode // guarded by w.mu, as is held
	held []byte
}

// wired returns a pool whose network is in the test's hands.
func wired(tb testing.TB, url string) (*pgxpool.Pool, *wire) {
	tb.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		tb.Fatal(err)
	}
	w := &wire{}
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		c := &wiredConn{Conn: conn, w: w, mode: w.mode}
		w.conns = append(w.conns, c)
		return c, nil
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	tb.Cleanup(w.close) // or pgx waits 15 seconds for the connections that are cut
	return pool, w
}

// cut breaks the connections that are open, and those to come until repair.
func (w *wire) cut(mode wireMode) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mode = mode
	for _, c := range w.conns {
		c.mode = mode
	}
}

// cutLast breaks the connection that was opened last.
func (w *wire) cutLast(mode wireMode) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns[len(w.conns)-1].mode = mode
}

// repair makes new connections work again.
func (w *wire) repair() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mode = whole
}

// deliver sends what was held back, also on connections that this side has
// closed meanwhile, and reports how much that was.
func (w *wire) deliver() (bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		if c.mode == slow {
			n, _ := c.Conn.Write(c.held)
			bytes += n
			c.held = nil
		}
	}
	return bytes
}

func (w *wire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		_ = c.Conn.Close()
	}
}

func (c *wiredConn) Write(b []byte) (int, error) {
	c.w.trips.Add(1)
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.mode == slow {
		c.held = append(c.held, b...)
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *wiredConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		c.w.mu.Lock()
		mode := c.mode
		c.w.mu.Unlock()
		switch {
		case err != nil && mode == deafer && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded):
			time.Sleep(time.Millisecond) // until this side closes it
		case err != nil || mode == whole:
			return n, err
		case mode == dying:
			_ = c.Conn.Close()
			return 0, io.ErrUnexpectedEOF
		}
	}
}

func (c *wiredConn) Close() error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.mode == slow {
		return c.SetReadDeadline(time.Now()) // ends the reader; the rest is on its way
	}
	return c.Conn.Close()
}
