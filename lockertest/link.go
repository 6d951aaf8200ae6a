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
	conns             []*conn // that are open; the last is for the next request
}

// conn is a connection. It is not used again after a caller has given up a request on it.
type conn struct {
	stalled bool
	ended   bool // on the store's side
	over    bool // on both sides
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

// NewLink returns a network for [Send], which lets all pass.
func NewLink() *Link { return &Link{requests: true, answers: true, conns: []*conn{new(conn)}} }

// Cut holds back all messages, until Heal or Deliver.
func (n *Link) Cut() { n.set(false, false, false, func(*conn) {}) }

// CutReplies holds back the store's answers and lets requests pass, until Heal or
// Deliver.
func (n *Link) CutReplies() { n.set(true, false, false, func(*conn) {}) }

// CutRepliesAfterOne lets one more answer of the store pass, and holds back what comes after it, until
// Heal or Deliver. If one is held back already, that one passes now.
func (n *Link) CutRepliesAfterOne() { n.set(true, false, true, func(*conn) {}) }

// EndUnheard is Cut, and the connections that are open now end on the store's side: what is sent on them
// arrives nowhere, and Deliver does not change that.
func (n *Link) EndUnheard() { n.set(false, false, false, func(c *conn) { c.ended = true }) }

// Stall holds back all messages on the connections that are open now, until Heal or
// Deliver. When a request on one was given up, a new connection is opened, which works.
func (n *Link) Stall() { n.set(true, true, false, func(c *conn) { c.stalled = true }) }

// set says what passes from now on, and changes each open connection. What is held back and passes now is
// delivered.
func (n *Link) set(requests, answers, spare bool, change func(*conn)) {
	n.mu.Lock()
	n.requests, n.answers, n.spare = requests, answers, spare
	for _, c := range n.conns {
		change(c)
	}
	var delivered []*message
	n.withheld = slices.DeleteFunc(n.withheld, func(m *message) bool {
		passes := n.passes(m)
		if passes {
			delivered = append(delivered, m)
		}
		return passes
	})
	n.mu.Unlock()
	for _, m := range delivered {
		m.carry()
	}
}

// passes reports whether a message may pass now, and counts it as the one more answer if it does so as
// that. The mutex is held.
func (n *Link) passes(m *message) bool {
	if m.conn.stalled || m.conn.ended {
		return false
	}
	if m.request {
		return n.requests
	}
	passes := n.answers || n.spare
	n.spare = false
	return passes
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

// Refuse makes the store answer every request with err, and do nothing: whatever err is, it is a
// [locker.ErrRefused], which lasts until somebody changes a setting. Nil ends that. For a store
// that is away for a while, call Cut, and later Heal.
func (n *Link) Refuse(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refusal = err
}

func (n *Link) refuses() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.refusal
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
	for _, m := range n.open() {
		if m.conn.ended {
			m.lose()
		} else {
			m.carry()
		}
	}
}

// open has everything pass, over a new connection, and returns what was held back. Connections that have
// ended are over for both sides.
func (n *Link) open() []*message {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.requests, n.answers, n.spare = true, true, false
	for _, c := range n.conns {
		c.stalled, c.over = false, c.ended
	}
	n.conns = []*conn{new(conn)}
	messages := n.withheld
	n.withheld = nil
	return messages
}

// pass delivers a message, holds it back, or loses it with its connection.
func (n *Link) pass(m *message) {
	n.mu.Lock()
	over, passes, delay := m.conn.over, n.passes(m), n.delay
	if !over && !passes {
		n.withheld = append(n.withheld, m)
	}
	n.mu.Unlock()
	switch {
	case over:
		m.lose()
	case passes && delay > 0:
		time.AfterFunc(delay, m.carry)
	case passes:
		m.carry()
	}
}

// Send calls f in the store, and returns the answer when it has come back. It is for stores of one's own: f is called when the
// request arrives, which may be later than Send returns, or never.
func Send[T any](ctx context.Context, n *Link, f func() T) (answer T, err error) {
	n.mu.Lock()
	on := n.conns[len(n.conns)-1]
	n.sent++
	n.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, requestTime, errSilent)
	defer cancel()
	answered, lost := make(chan T, 1), make(chan struct{})
	refused := make(chan error, 1)
	lose := func() { close(lost) }
	n.pass(&message{on, func() {
		var back func()
		if no := n.refuses(); no != nil {
			back = func() { refused <- driver.Refused(no) }
		} else {
			answer := f()
			back = func() { answered <- answer }
		}
		n.pass(&message{on, back, false, lose})
	}, true, lose})
	select {
	case answer = <-answered:
		return answer, nil
	case err := <-refused:
		return answer, err
	case <-lost:
		return answer, errReset
	case <-ctx.Done():
		n.leave(on)
		return answer, context.Cause(ctx)
	}
}

// Push carries a word from the store, which is f. If its connection breaks, the waiter is woken all
// the same, to ask again.
func (n *Link) Push(f func()) {
	n.mu.Lock()
	on := n.conns[len(n.conns)-1]
	n.mu.Unlock()
	n.pass(&message{on, f, false, f})
}

// leave gives up a connection on which an answer did not come.
func (n *Link) leave(on *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conns[len(n.conns)-1] == on {
		n.conns = append(n.conns, new(conn))
	}
}
