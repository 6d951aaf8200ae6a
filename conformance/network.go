package conformance

import (
	"strings"

	"github.com/lockstile/locker/internal/netproxy"
)

// Network is the way between one process and its store. Tests break it: here, in package
// lockertest (Link) and in proof/matrix, these words mean the same. A [Proxy] is a Network for stores that
// are reached by TCP.
//
// Requests go to the store; replies, and what a store sends unasked, come from it. What a
// broken network holds back is not lost before [Network.Heal].
//
// The last call of Cut, CutReplies, CutRepliesAfterOne, EndUnheard or Stall decides what passes: what was
// held back and passes now is delivered. Only the connections that Stall has silenced, or EndUnheard has
// ended, stay so until Heal or Deliver. Methods may be called from any goroutine and any number of times, and have
// taken effect when they return.
type Network interface {
	// Cut lets nothing pass any more, in either direction. Connections stay open and silent, and new
	// ones are silent, too.
	Cut()

	// CutReplies lets requests arrive, and holds back replies.
	CutReplies()

	// CutRepliesAfterOne is CutReplies after one more reply of each server, whatever the connection. A reply is
	// what a server sends in one go. If one is held back already, that is the one, and it has passed when
	// CutRepliesAfterOne returns.
	CutRepliesAfterOne()

	// EndUnheard is Cut, and connections that are open now end on the store's side: what it still sends or
	// would get over them is lost. On the process's side they stay open and silent.
	EndUnheard()

	// Stall silences the connections that are open now. New ones pass, so that what is sent over them
	// overtakes what was sent before.
	Stall()

	// Heal ends all of these, and every connection that is open: what was held back is lost. New ones pass.
	Heal()

	// Deliver ends all of these. What was held back is delivered now, over the connections on which it was
	// sent, also where its sender has long given up. (Connections that EndUnheard has ended end on the process's
	// side, too, and what was held back there is lost.)
	Deliver()

	// HeldBack returns how much of requests and of replies is held back now. Only 0 and more than 0 can be told
	// apart: a Proxy counts bytes, a Link messages. The end of a connection is not counted.
	HeldBack() (requests, replies int)

	// Conns returns how many connections the process has open, or -1 if the network cannot say.
	Conns() int
}

// Proxy is a TCP proxy in front of one server: a [Network] for one client, without root or a
// firewall.
type Proxy struct {
	Network
	proxy *netproxy.Proxy
}

// NewProxy starts a proxy in front of the server at target, host:port. It ends
// with the test. A program without tests passes anything that has these methods, if its
// Fatalf does not return.
func NewProxy(t interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(f func())
}, target string,
) *Proxy {
	t.Helper()
	p, err := netproxy.Listen(target)
	if err != nil {
		t.Fatalf("conformance: %v", err)
	}
	t.Cleanup(p.Close)
	return &Proxy{p, p}
}

// Addr returns where clients connect to, host:port.
func (p *Proxy) Addr() string { return p.proxy.Addr() }

// Retarget has new connections go to another server, as an address does after a failover.
// Connections that are open stay with the server that they have.
func (p *Proxy) Retarget(target string) { p.proxy.Retarget(target) }

// Proxies are a [Network] for a store that has several servers: one client's proxies, one in front
// of each. A part of them is a network, too.
type Proxies []*Proxy

var _ Network = Proxies{}

// Addrs returns where the client connects to: host:port of each proxy, separated by
// commas.
func (ps Proxies) Addrs() string {
	var addrs []string
	for _, p := range ps {
		addrs = append(addrs, p.Addr())
	}
	return strings.Join(addrs, ",")
}

// Cut implements [Network].
func (ps Proxies) Cut() { ps.each(Network.Cut) }

// CutReplies implements [Network].
func (ps Proxies) CutReplies() { ps.each(Network.CutReplies) }

// CutRepliesAfterOne implements [Network].
func (ps Proxies) CutRepliesAfterOne() { ps.each(Network.CutRepliesAfterOne) }

// EndUnheard implements [Network].
func (ps Proxies) EndUnheard() { ps.each(Network.EndUnheard) }

// Stall implements [Network].
func (ps Proxies) Stall() { ps.each(Network.Stall) }

// Heal implements [Network].
func (ps Proxies) Heal() { ps.each(Network.Heal) }

// Deliver implements [Network].
func (ps Proxies) Deliver() { ps.each(Network.Deliver) }

// HeldBack implements [Network].
func (ps Proxies) HeldBack() (requests, replies int) {
	for _, p := range ps {
		sent, answered := p.HeldBack()
		requests, replies = requests+sent, replies+answered
	}
	return requests, replies
}

// Conns implements [Network].
func (ps Proxies) Conns() (n int) {
	for _, p := range ps {
		n += p.Conns()
	}
	return n
}

func (ps Proxies) each(f func(Network)) {
	for _, p := range ps {
		f(p)
	}
}
