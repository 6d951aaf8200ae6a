package lockertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockstile/locker/driver"
)

// Link is the network between a Locker and its store, a conformance.Network. It carries all
// messages at once, unless a test tells it otherwise.
type Link struct {
	mu                sync.Mutex
	requests, answers bool       // whether these pass
	spare             bool       // one more answer passes all the same
	withheld          []*message // what does not, in order
	delay             time.Duration
	refusal           error
	sent              int
	conn              *conn // for the next request
}

// conn is a connection. It is not used again after a caller has given up a request on it.
type conn struct {
	stalled bool
	ended   bool // on the store's side
}

// message is on its way: first to the store, then back.
type message struct {
	conn    *conn
	carry   func() // delivers it
	request bool
	lose    func() // ends it with its connection
}

var errReset = errors.New("connection reset")

// requestTime bounds a request, as clients of real stores do.
const requestTime = 5 * time.Second

var errSilent = fmt.Errorf("no answer within %v", requestTime)

func newLink() *Link { return &Link{requests: true, answers: true, conn: new(conn)} }

// Cut holds back all messages, until Heal or Deliver.
func (n *Link) Cut() { n.set(false, false) }

// CutReplies holds back the store's answers and lets requests pass, until Heal or
// Deliver.
func (n *Link) CutReplies() { n.set(true, false) }

// CutRepliesAfterOne lets one more answer of the store pass, and holds back what comes after it, until
// Heal or Deliver. If one is held back already, that one passes now.
func (n *Link) CutRepliesAfterOne() {
	n.mu.Lock()
	n.requests, n.answers, n.spare = true, false, true
	first := slices.IndexFunc(n.withheld, func(m *message) bool { return !m.request && !m.conn.stalled && !m.conn.ended })
	var m *message
	if first >= 0 {
		m, n.spare = n.withheld[first], false
		n.withheld = slices.Delete(n.withheld, first, first+1)
	}
	n.mu.Unlock()
	if m != nil {
		m.carry()
	}
}

// EndUnheard is Cut, and the connection that is open now ends on the store's side: what is sent on it
// arrives nowhere, and Deliver does not change that.
func (n *Link) EndUnheard() {
	n.Cut()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conn.ended = true
}

// Stall holds back all messages on the connection that is open now, until Heal or
// Deliver. When a request on it was given up, a new connection is opened, which works.
func (n *Link) Stall() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conn.stalled = true
}

func (n *Link) set(requests, answers bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.requests, n.answers, n.spare = requests, answers, false
}

// HeldBack returns how many messages are held back now.
func (n *Link) HeldBack() (requests, replies int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range n.withheld {
		if m.request {
			requests++
		} else {
			replies++
		}
	}
	return requests, replies
}

// Conns returns 1: a process has one connection to the store in memory.
func (n *Link) Conns() int { return 1 }

// Delay makes every message take d from now on. 0 ends that.
func (n *Link) Delay(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = d
}

// Refuse makes the store answer every request with err, and do nothing. Nil ends that.
func (n *Link) Refuse(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refusal = err
}

// Requests returns how many requests this Locker has sent so far.
func (n *Link) Requests() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sent
}

// Heal ends Cut, CutReplies, EndUnheard and Stall. What was held back is lost: its callers get an
// error.
func (n *Link) Heal() {
	for _, m := range n.open() {
		m.lose()
	}
}

// Deliver ends Cut, CutReplies, EndUnheard and Stall. What was held back arrives now.
func (n *Link) Deliver() {
	for messages := n.open(); len(messages) > 0; messages = n.open() {
		for _, m := range messages {
			if m.conn.ended {
				m.lose()
			} else {
				m.carry()
			}
		}
	}
}

func (n *Link) open() []*message {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.requests, n.answers, n.spare, n.conn = true, true, false, new(conn)
	messages := n.withheld
	n.withheld = nil
	for _, m := range messages {
		m.conn.stalled = false
	}
	return messages
}

// pass delivers a message, or holds it back.
func (n *Link) pass(m *message) {
	n.mu.Lock()
	passes, delay := !m.conn.stalled && !m.conn.ended && (m.request && n.requests || !m.request && (n.answers || n.spare)), n.delay
	if passes && !m.request {
		n.spare = false
	}
	if !passes {
		n.withheld = append(n.withheld, m)
	}
	n.mu.Unlock()
	switch {
	case passes && delay > 0:
		time.AfterFunc(delay, m.carry)
	case passes:
		m.carry()
	}
}

// send calls f in the store, and returns the answer when it has come back.
func send[T any](ctx context.Context, n *Link, f func() T) (answer T, err error) {
	n.mu.Lock()
	on, refusal := n.conn, n.refusal
	n.sent++
	n.mu.Unlock()
	if refusal != nil {
		return answer, driver.Refused(refusal)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, requestTime, errSilent)
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

// push carries a word from the store. If its connection breaks, the waiter is woken all
// the same, to ask again.
func (n *Link) push(f func()) {
	n.mu.Lock()
	on := n.conn
	n.mu.Unlock()
	n.pass(&message{on, f, false, f})
}

// leave gives up a connection on which an answer did not come.
func (n *Link) leave(on *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conn == on {
		n.conn = new(conn)
	}
}
