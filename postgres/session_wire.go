package postgres

import (
	"bytes"
	"context"
	"net"
	"sync"
)

// wire is the network below a connection. It is read all the time, so that the end of
// an idle connection is noticed at once, and not with the next question.
type wire struct {
	net.Conn
	ctx context.Context // ends when nothing more can arrive; its cause is why
	cut context.CancelCauseFunc

	mu      sync.Mutex
	arrived *sync.Cond
	unread  bytes.Buffer
}

func newWire(conn net.Conn) *wire {
	w := &wire{Conn: conn}
	w.ctx, w.cut = context.WithCancelCause(context.Background())
	w.arrived = sync.NewCond(&w.mu)
	go w.receive()
	return w
}

// receive ends with the connection.
func (w *wire) receive() {
	b := make([]byte, 4096)
	for w.ctx.Err() == nil {
		n, err := w.Conn.Read(b)
		w.mu.Lock()
		w.unread.Write(b[:n])
		if err != nil {
			w.cut(err)
		}
		w.arrived.Broadcast()
		w.mu.Unlock()
	}
}

// Read implements [net.Conn].
func (w *wire) Read(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.unread.Len() == 0 && w.ctx.Err() == nil {
		w.arrived.Wait()
	}
	if w.unread.Len() == 0 {
		return 0, context.Cause(w.ctx)
	}
	return w.unread.Read(b)
}
