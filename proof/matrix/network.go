package matrix

import (
	"strings"

	"github.com/lockstile/locker/internal/netproxy"
)

// Proxies are a [Network] for stores that are reached by TCP: one worker's proxies, one
// in front of each server and in the order of the servers. A part of them is a network,
// too.
type Proxies []*netproxy.Proxy

// Proxy starts a proxy in front of each server at an address host:port, for one worker.
// They end with the lab.
func (l *Lab) Proxy(servers ...string) (Proxies, error) {
	var ps Proxies
	for _, server := range servers {
		p, err := netproxy.Listen(server)
		if err != nil {
			return nil, err
		}
		l.Cleanup(p.Close)
		ps = append(ps, p)
	}
	return ps, nil
}

// Addrs returns where the worker connects to: host:port of each proxy, separated by
// commas.
func (ps Proxies) Addrs() string {
	var addrs []string
	for _, p := range ps {
		addrs = append(addrs, p.Addr())
	}
	return strings.Join(addrs, ",")
}

// Cut implements [Network].
func (ps Proxies) Cut() { ps.each((*netproxy.Proxy).Cut) }

// CutReplies implements [Network].
func (ps Proxies) CutReplies() { ps.each((*netproxy.Proxy).CutReplies) }

// CutRepliesAfterOne implements [Network].
func (ps Proxies) CutRepliesAfterOne() { ps.each((*netproxy.Proxy).CutRepliesAfterOne) }

// EndUnheard implements [Network].
func (ps Proxies) EndUnheard() { ps.each((*netproxy.Proxy).EndUnheard) }

// Stall implements [Network].
func (ps Proxies) Stall() { ps.each((*netproxy.Proxy).Stall) }

// Heal implements [Network].
func (ps Proxies) Heal() { ps.each((*netproxy.Proxy).Heal) }

// Deliver implements [Network].
func (ps Proxies) Deliver() { ps.each((*netproxy.Proxy).Deliver) }

// HeldBack implements [Network].
func (ps Proxies) HeldBack() (requests, replies int) {
	for _, p := range ps {
		sent, answered := p.HeldBack()
		requests, replies = requests+sent, replies+answered
	}
	return requests, replies
}

func (ps Proxies) each(f func(*netproxy.Proxy)) {
	for _, p := range ps {
		f(p)
	}
}
