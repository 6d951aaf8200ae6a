package conformance

import "github.com/lockstile/locker/internal/netproxy"

// Proxy is a TCP proxy in front of one server: a network that a test can break for one
// client, without root or a firewall.
type Proxy struct{ p *netproxy.Proxy }

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
	return &Proxy{p}
}

// Addr returns where clients connect to, host:port.
func (p *Proxy) Addr() string { return p.p.Addr() }

// Cut lets nothing pass in either direction from now on. Connections stay open
// and silent; new ones are accepted and silent too.
func (p *Proxy) Cut() { p.p.Cut() }

// EndUnheard is Cut, and the connections that are open now end on the server's
// side.
func (p *Proxy) EndUnheard() { p.p.EndUnheard() }

// CutReplies holds back what the server answers. Requests arrive.
func (p *Proxy) CutReplies() { p.p.CutReplies() }

// CutRepliesAfterOne lets one more answer of the server pass, and holds back what
// comes after it. An answer is what the server sends in one go. Where one is held back
// already, it is that one, and it passes before CutRepliesAfterOne returns.
func (p *Proxy) CutRepliesAfterOne() { p.p.CutRepliesAfterOne() }

// Stall silences the connections that are open now. New ones pass, so that what
// is sent over them overtakes what was sent before.
func (p *Proxy) Stall() { p.p.Stall() }

// Heal ends a cut or stall. Connections are closed first, and what was held back
// is lost with them; new connections pass.
func (p *Proxy) Heal() { p.p.Heal() }

// Deliver ends a cut or stall. What was held back is delivered now, over the
// connections that it was sent on, also where the sender has long hung up.
func (p *Proxy) Deliver() { p.p.Deliver() }

// HeldBack returns how many bytes wait for a cut or stall to end: at least the first that
// each connection has sent since. Both are 0 only if nothing waits.
func (p *Proxy) HeldBack() (requests, replies int) { return p.p.HeldBack() }

// Retarget has new connections go to another server, as an address does after a failover.
// Connections that are open stay with the server that they have.
func (p *Proxy) Retarget(target string) { p.p.Retarget(target) }

// Conns returns how many connections clients have open through the proxy.
func (p *Proxy) Conns() int { return p.p.Conns() }
