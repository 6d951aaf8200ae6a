package lockertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstile/locker/driver"
)

// Link is the network between a Locker and its store, and the store's door. It passes
// all messages at once, unless it is told otherwise.
type Link struct {
	mu                sync.Mutex
	requests, answers bool       // whether these pass
	held              []*message // what does not, in order
	delay             time.Duration
	refusal           error
	sent              int
	conn              *conn // for the next request
}

// conn is a connection. One on which an answer was not waited for is not used again.
type conn struct{ stalled bool }

// message is on its way: first to the store, then back.
type message struct {
	conn    *conn
	carry   func() // to where it goes
	request bool
	lose    func() // with its connection
}

var errReset = errors.New("connection reset")

// patience bounds a request, as the clients of real stores do.
const patience = 5 * time.Second

var errSilent = fmt.Errorf("no answer within %v", patience)

func newLink() *Link { return &Link{requests: true, answers: true, conn: new(conn)} }

// Cut lets nothing pass in either direction.
func (n *Link) Cut() { n.set(false, false) }

// CutReplies lets requests pass, and no answers.
func (n *Link) CutReplies() { n.set(true, false) }

// Stall has nothing pass on the connection that is open now. The next one passes.
func (n *Link) Stall() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conn.stalled = true
}

func (n *Link) set(requests, answers bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.requests, n.answers = requests, answers
}

// Delay has every message take d from now on. 0 ends that.
func (n *Link) Delay(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = d
}

// Refuse has the store answer every request with err, and do nothing. Nil ends that.
func (n *Link) Refuse(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refusal = err
}

// Requests counts what was sent to the store so far.
func (n *Link) Requests() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sent
}

// Heal ends what the other methods began. What was held back is lost.
func (n *Link) Heal() {
	for _, m := range n.open() {
		m.lose()
	}
}

// Deliver ends what the other methods began. What was held back arrives now.
func (n *Link) Deliver() {
	for held := n.open(); len(held) > 0; held = n.open() {
		for _, m := range held {
			m.carry()
		}
	}
}

func (n *Link) open() []*message {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.requests, n.answers, n.conn = true, true, new(conn)
	held := n.held
	n.held = nil
	for _, m := range held {
		m.conn.stalled = false
	}
	return held
}

// pass carries a message, or holds it back.
func (n *Link) pass(m *message) {
	n.mu.Lock()
	passes, delay := !m.conn.stalled && (m.request && n.requests || !m.request && n.answers), n.delay
	if !passes {
		n.held = append(n.held, m)
	}
	n.mu.Unlock()
	switch {
	case passes && delay > 0:
		time.AfterFunc(delay, m.carry)
	case passes:
		m.carry()
	}
}

// send calls f in the store, and returns its answer when that has come back.
func send[T any](ctx context.Context, n *Link, f func() T) (answer T, err error) {
	n.mu.Lock()
	on, refusal := n.conn, n.refusal
	n.sent++
	n.mu.Unlock()
	if refusal != nil {
		return answer, driver.Refused(refusal)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errSilent)
	defer cancel()
	answered, lost := make(chan T, 1), make(chan struct{})
	lose := func() { close(lost) }
	n.pass(&message{on, func() {
		answer := f()
		n.pass(&message{on, func() { answered <- answer }, false, lose})
	}, true, lose})
	select {
	case answer = <-answered:
		return answer, nil
	case <-lost:
		return answer, errReset
	case <-ctx.Done():
		n.leave(on)
		return answer, context.Cause(ctx)
	}
}

// push carries a word from the store. The end of its connection is as good: whoever
// waits asks again.
func (n *Link) push(f func()) {
	n.mu.Lock()
	on := n.conn
	n.mu.Unlock()
	n.pass(&message{on, f, false, f})
}

// leave gives up a connection on which an answer is missing.
func (n *Link) leave(on *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conn == on {
		n.conn = new(conn)
	}
}
