// Package netproxy is a TCP proxy that can be broken, for tests: the network between one
// client and one server.
package netproxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy is a TCP proxy in front of one server: a network that a test can break for one
// client, without root or a firewall.
type Proxy struct {
	listener net.Listener
	target   atomic.Pointer[string]
	delay    atomic.Int64    // of new connections, in nanoseconds
	open     context.Context // ends with Close
	end      context.CancelFunc
	wg       sync.WaitGroup

	mu      sync.Mutex // of all that follows
	changed sync.Cond
	links   map[*link]struct{}
	shut    [2]bool // what does not pass, by its direction
	spare   bool    // replies are shut, and one more passes
	done    bool
}

// The directions.
const (
	requests = 0
	replies  = 1
)

// link is one connection: the client's to us and ours to the server. The Proxy's mutex is of it.
type link struct {
	client, server *net.TCPConn // the server's is nil until it is dialled
	stalled        bool         // nothing passes until Deliver
	ended          bool         // on the server's side, unheard: nothing passes any more
	over           bool         // what waits is lost
	hungUp         bool         // by the client
	held           [2]int       // bytes that wait
	passing        [2]int       // writes under way
}

// Listen starts a proxy in front of the server at target, host:port.
func Listen(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("netproxy: for %s: %w", target, err)
	}
	p := &Proxy{listener: l, links: make(map[*link]struct{})}
	p.changed.L = &p.mu
	p.open, p.end = context.WithCancel(context.Background())
	p.target.Store(&target)
	p.wg.Go(p.accept)
	return p, nil
}

// Retarget has new connections go to another server. Open connections stay.
func (p *Proxy) Retarget(target string) { p.target.Store(&target) }

// Delay has every byte on new connections take d in each direction. Open connections stay
// as they are.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Addr returns where clients connect to, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut implements conformance.Network.
func (p *Proxy) Cut() { p.set([2]bool{true, true}, func(*link) {}) }

// CutReplies implements conformance.Network.
func (p *Proxy) CutReplies() { p.set([2]bool{replies: true}, func(*link) {}) }

// Stall implements conformance.Network.
func (p *Proxy) Stall() { p.set([2]bool{}, func(l *link) { l.stalled = true }) }

// EndUnheard implements conformance.Network.
func (p *Proxy) EndUnheard() {
	p.set([2]bool{true, true}, func(l *link) {
		l.ended = true
		if l.server != nil {
			_ = l.server.Close()
		}
	})
}

// CutRepliesAfterOne implements conformance.Network.
func (p *Proxy) CutRepliesAfterOne() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut, p.spare = [2]bool{replies: true}, true
	p.changed.Broadcast()
	for p.spare && p.any(func(l *link) bool { return l.held[replies] > 0 && p.passes(l, replies, 1) }) {
		p.changed.Wait()
	}
}

// Heal implements conformance.Network.
func (p *Proxy) Heal() { p.reopen(func(*link) bool { return true }) }

// Deliver implements conformance.Network.
func (p *Proxy) Deliver() { p.reopen(func(l *link) bool { return l.ended }) }

// set shuts directions, and changes each open connection. It returns when nothing passes that must not.
func (p *Proxy) set(shut [2]bool, change func(*link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut, p.spare = shut, false
	for l := range p.links {
		change(l)
	}
	p.changed.Broadcast()
	for p.any(func(l *link) bool {
		return l.passing[requests] > 0 && !p.passes(l, requests, 1) || l.passing[replies] > 0 && !p.passes(l, replies, 1)
	}) {
		p.changed.Wait()
	}
}

// reopen has everything pass. Connections that are to end are closed first, and what waits is lost with them.
func (p *Proxy) reopen(end func(*link) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if l.stalled = false; end(l) {
			p.hangUp(l)
		}
	}
	p.shut, p.spare = [2]bool{}, false
	p.changed.Broadcast()
}

// any reports whether it is so of some connection. The mutex is held.
func (p *Proxy) any(so func(*link) bool) bool {
	for l := range p.links {
		if so(l) {
			return true
		}
	}
	return false
}

// passes reports whether n bytes may pass now; 0 are the end of a connection, which is no reply. The mutex is held.
func (p *Proxy) passes(l *link, direction, n int) bool {
	return !l.stalled && !l.ended && l.server != nil && (!p.shut[direction] || direction == replies && p.spare && n > 0)
}

// hangUp closes a connection. The mutex is held.
func (p *Proxy) hangUp(l *link) {
	l.over = true
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
	delete(p.links, l)
	p.changed.Broadcast()
}

// Conns implements conformance.Network. A connection that its client has hung up counts no
// more, though a server that hangs never ends its side.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for l := range p.links {
		if !l.hungUp {
			n++
		}
	}
	return n
}

// HeldBack implements conformance.Network. It counts bytes: at least the first that each
// connection has sent since.
func (p *Proxy) HeldBack() (asked, answered int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		asked += l.held[requests]
		answered += l.held[replies]
	}
	return asked, answered
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.done = true
	p.mu.Unlock()
	p.end()
	_ = p.listener.Close()
	p.Heal()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		l := &link{client: conn.(*net.TCPConn)} // what a TCP listener accepts
		p.mu.Lock()
		if p.done {
			_ = conn.Close()
		} else {
			p.links[l] = struct{}{}
			p.wg.Go(func() { p.serve(l) })
		}
		p.mu.Unlock()
	}
}

// serve carries one connection until both sides have closed it, or hangUp.
func (p *Proxy) serve(l *link) {
	delay := time.Duration(p.delay.Load())
	var answers sync.WaitGroup
	answers.Go(func() {
		if p.dial(l) {
			p.carry(l, replies, slow(l.server, delay), func() *net.TCPConn { return l.client })
		}
	})
	p.carry(l, requests, slow(l.client, delay), func() *net.TCPConn { return l.server })
	answers.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangUp(l)
}

// dial connects a link to the server as soon as requests pass. If the server is down, the client's
// connection ends, as it would without us.
func (p *Proxy) dial(l *link) bool {
	p.mu.Lock()
	for !l.over && (l.stalled || l.ended || p.shut[requests]) {
		p.changed.Wait()
	}
	over := l.over
	p.mu.Unlock()
	if over {
		return false
	}
	var d net.Dialer
	conn, err := d.DialContext(p.open, "tcp", *p.target.Load()) // a server that hangs may accept nobody any more
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil:
		p.hangUp(l)
		return false
	case l.over || l.ended: // meanwhile
		_ = conn.Close()
	}
	l.server = conn.(*net.TCPConn)
	p.changed.Broadcast()
	return true
}

// carry copies until the end of from. The end is held back like any byte, so that what was
// sent before it is delivered though the sender is gone. What cannot be delivered is
// dropped: the other direction goes on.
func (p *Proxy) carry(l *link, direction int, from io.Reader, to func() *net.TCPConn) {
	buf := make([]byte, 32<<10)
	deaf := false
	for {
		n, err := from.Read(buf)
		if n > 0 && !deaf {
			p.pass(l, direction, n, func() {
				_, failed := to().Write(buf[:n])
				deaf = failed != nil
			})
		}
		if err != nil {
			p.mu.Lock()
			l.hungUp = l.hungUp || direction == requests
			p.mu.Unlock()
			p.pass(l, direction, 0, func() { _ = to().CloseWrite() })
			return
		}
	}
}

// pass runs write, of n bytes, once they may pass.
func (p *Proxy) pass(l *link, direction, n int, write func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.held[direction] += n
	for !l.over && !p.passes(l, direction, n) {
		p.changed.Wait()
	}
	l.held[direction] -= n
	if l.over {
		return
	}
	if direction == replies && n > 0 {
		p.spare = false
	}
	l.passing[direction]++
	p.mu.Unlock()
	write()
	p.mu.Lock()
	l.passing[direction]--
	p.changed.Broadcast()
}
