package postgres_test

import (
	"bytes"
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
	at    string   // what breaks the connection when it is sent, once
	next  wireMode // and how
}

type wireMode int

const (
	whole  wireMode = iota
	deaf            // what is sent arrives, the answer does not
	slow            // what is sent arrives only with deliver
	dying           // what is sent arrives, and the connection breaks when the answer comes
	deafer          // as deaf, and the end of the connection does not arrive either
	parted          // what is sent arrives; with the answer, or with part, the connection ends for this side alone
	late            // what is sent arrives, the answer only with answer, and nothing after it
)

// wiredConn is a connection. Once broken, it stays so.
type wiredConn struct {
	net.Conn
	w    *wire
	mode wireMode // guarded by w.mu, as is the rest
	held []byte
	over bool // it has ended, for this side alone
	kept []byte
	come []byte
}

// wired returns a pool whose network is in the test's hands.
func wired(tb testing.TB, url string) (*pgxpool.Pool, *wire) {
	tb.Helper()
	w := &wire{}
	pool := poolWith(tb, url, func(c *pgxpool.Config) { c.ConnConfig.DialFunc = w.dial })
	tb.Cleanup(w.close) // or pgx waits 15 seconds for the connections that are cut
	return pool, w
}

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
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

// opened is how many connections were opened so far.
func (w *wire) opened() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.conns)
}

// cutAt breaks the connection on which a text is sent next.
func (w *wire) cutAt(text string, mode wireMode) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at, w.next = text, mode
}

// part ends the connections for this side alone: the server hears of nothing.
func (w *wire) part() {
	w.cut(parted)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		c.over = true
		_ = c.SetReadDeadline(time.Now()) // wakes the reader
	}
}

// answer has what is late on the connection that was opened last arrive, and reports
// how much that was.
func (w *wire) answer() (bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.conns[len(w.conns)-1]
	c.come, c.kept, c.mode = c.kept, nil, deaf
	_ = c.SetReadDeadline(time.Now()) // wakes the reader
	return len(c.come)
}

// kept is how much is late on the connection that was opened last.
func (w *wire) kept() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.conns[len(w.conns)-1].kept)
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
	if c.w.at != "" && bytes.Contains(b, []byte(c.w.at)) {
		c.mode, c.w.at = c.w.next, ""
	}
	if c.mode == slow {
		c.held = append(c.held, b...)
		return len(b), nil
	}
	if c.over {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *wiredConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if n, done, err := c.partly(b, n, err); done {
			return n, err
		}
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

// partly is Read for a connection that is parted or late.
func (c *wiredConn) partly(b []byte, n int, err error) (read int, done bool, failed error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	switch {
	case c.over, c.mode == parted && n > 0:
		c.over = true
		return 0, true, io.ErrUnexpectedEOF
	case len(c.come) > 0:
		n := copy(b, c.come)
		c.come = c.come[n:]
		return n, true, c.SetReadDeadline(time.Time{})
	case c.mode == late && n > 0:
		c.kept = append(c.kept, b[:n]...)
	case c.mode == late || c.mode == parted:
		return n, true, err
	}
	return 0, false, nil
}

func (c *wiredConn) Close() error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.mode == slow || c.over {
		return c.SetReadDeadline(time.Now()) // ends the reader; the rest is on its way
	}
	return c.Conn.Close()
}
