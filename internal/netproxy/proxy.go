// Package netproxy is a TCP proxy that can be broken, for tests: the network between one
// client and one server.
package netproxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
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

	mu      sync.Mutex
	links   map[*link]struct{}
	now     network   // of new connections
	stalled []network // of those that Stall left behind
	done    bool
}

// Listen starts a proxy in front of the server at target, host:port.
func Listen(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("netproxy: for %s: %w", target, err)
	}
	p := &Proxy{listener: l, links: make(map[*link]struct{}), now: newNetwork()}
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
func (p *Proxy) Cut() {
	n := p.network()
	n.requests.shut()
	n.replies.shut()
}

// EndUnheard implements conformance.Network.
func (p *Proxy) EndUnheard() {
	p.Cut()
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		_ = l.server.Close()
	}
}

// CutReplies implements conformance.Network.
func (p *Proxy) CutReplies() { p.network().replies.shut() }

// CutRepliesAfterOne implements conformance.Network.
func (p *Proxy) CutRepliesAfterOne() { p.network().replies.shutAfterOne() }

// Stall implements conformance.Network.
func (p *Proxy) Stall() {
	p.Cut()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = append(p.stalled, p.now)
	p.now = newNetwork()
}

// Heal implements conformance.Network.
func (p *Proxy) Heal() {
	p.hangUp()
	p.Deliver()
}

// Deliver implements conformance.Network.
func (p *Proxy) Deliver() {
	p.mu.Lock()
	all := slices.Concat(p.stalled, []network{p.now})
	p.stalled = nil
	p.mu.Unlock()
	for _, n := range all {
		n.requests.open()
		n.replies.open()
	}
}

func (p *Proxy) network() network {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// Conns implements conformance.Network. A connection that its client has hung up counts no
// more, though a server that hangs never ends its side.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for l := range p.links {
		if !l.hungUp.Load() {
			n++
		}
	}
	return n
}

// HeldBack implements conformance.Network. It counts bytes: at least the first that each
// connection has sent since.
func (p *Proxy) HeldBack() (requests, replies int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range slices.Concat(p.stalled, []network{p.now}) {
		requests += n.requests.waiting()
		replies += n.replies.waiting()
	}
	return requests, replies
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

// hangUp closes all connections.
func (p *Proxy) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
		delete(p.links, l)
	}
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		client := conn.(*net.TCPConn) // what a TCP listener accepts
		p.wg.Go(func() { p.serve(client) })
	}
}

// serve carries one connection until both sides have closed it, or hangUp.
func (p *Proxy) serve(client *net.TCPConn) {
	defer client.Close()
	var d net.Dialer
	conn, err := d.DialContext(p.open, "tcp", *p.target.Load()) // a server that hangs may accept nobody any more
	if err != nil {
		return // the server is down: the client's connection ends, as it would without us
	}
	l := &link{client: client, server: conn.(*net.TCPConn)}
	n, ok := p.add(l)
	if !ok {
		l.close()
		return
	}
	delay := time.Duration(p.delay.Load())
	var replies sync.WaitGroup
	replies.Go(func() { n.replies.carry(slow(l.server, delay), l.client) })
	n.requests.carry(slow(l.client, delay), l.server)
	l.hungUp.Store(true)
	replies.Wait()
	l.close()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// add returns the network that a new connection goes through.
func (p *Proxy) add(l *link) (network, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return network{}, false
	}
	p.links[l] = struct{}{}
	return p.now, true
}

// link is one connection: the client's to us and ours to the server.
type link struct {
	client, server *net.TCPConn
	hungUp         atomic.Bool // by the client, and the server was told
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// network is what some connections go through.
type network struct{ requests, replies *gate }

func newNetwork() network { return network{newGate(), newGate()} }

// gate lets the bytes of one direction pass, or holds them back.
type gate struct {
	mu      sync.Mutex
	changed sync.Cond
	closed  bool
	last    bool // closed, and one write may pass yet
	passing int  // writes under way
	held    int  // bytes that wait
}

func newGate() *gate {
	g := new(gate)
	g.changed.L = &g.mu
	return g
}

// shut returns when nothing passes any more.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.last = true, false
	for g.passing > 0 {
		g.changed.Wait()
	}
}

func (g *gate) shutAfterOne() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.last = true, true
	g.changed.Broadcast()
	for g.held > 0 && g.last {
		g.changed.Wait()
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.last = false, false
	g.changed.Broadcast()
}

func (g *gate) waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held
}

// pass runs write, of n bytes, once the gate is open.
func (g *gate) pass(n int, write func()) {
	g.mu.Lock()
	g.held += n
	for g.closed && !g.last {
		g.changed.Wait()
	}
	g.held -= n
	g.last = false
	g.passing++
	g.mu.Unlock()
	write()
	g.mu.Lock()
	g.passing--
	g.changed.Broadcast()
	g.mu.Unlock()
}

// carry copies until the end of from. The end is held back like any byte, so that what was
// sent before it is delivered though the sender is gone. What cannot be delivered is
// dropped: the other direction goes on.
func (g *gate) carry(from io.Reader, to *net.TCPConn) {
	buf := make([]byte, 32<<10)
	deaf := false
	for {
		n, err := from.Read(buf)
		if n > 0 && !deaf {
			g.pass(n, func() {
				_, failed := to.Write(buf[:n])
				deaf = failed != nil
			})
		}
		if err != nil {
			g.pass(0, func() { _ = to.CloseWrite() })
			return
		}
	}
}
