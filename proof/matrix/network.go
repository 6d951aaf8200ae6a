package matrix

import (
	"strings"

	"github.com/lockstile/locker/conformance"
)

// Proxies are a [Network] for stores that are reached by TCP: one worker's proxies, one
// in front of each server and in the order of the servers. A part of them is a network,
// too.
type Proxies []*conformance.Proxy

// Proxy starts a proxy in front of each server at an address host:port, for one worker.
// They end with the lab.
func (l *Lab) Proxy(servers ...string) (ps Proxies, err error) {
	err = l.Try(func() {
		for _, server := range servers {
			ps = append(ps, conformance.NewProxy(l, server))
		}
	})
	return ps, err
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
func (ps Proxies) Cut() { ps.each((*conformance.Proxy).Cut) }

// CutReplies implements [Network].
func (ps Proxies) CutReplies() { ps.each((*conformance.Proxy).CutReplies) }

// CutRepliesAfterOne implements [Network].
func (ps Proxies) CutRepliesAfterOne() { ps.each((*conformance.Proxy).CutRepliesAfterOne) }

// EndUnheard implements [Network].
func (ps Proxies) EndUnheard() { ps.each((*conformance.Proxy).EndUnheard) }

// Stall implements [Network].
func (ps Proxies) Stall() { ps.each((*conformance.Proxy).Stall) }

// Heal implements [Network].
func (ps Proxies) Heal() { ps.each((*conformance.Proxy).Heal) }

// Deliver implements [Network].
func (ps Proxies) Deliver() { ps.each((*conformance.Proxy).Deliver) }

// HeldBack implements [Network].
func (ps Proxies) HeldBack() (requests, replies int) {
	for _, p := range ps {
		sent, answered := p.HeldBack()
		requests, replies = requests+sent, replies+answered
	}
	return requests, replies
}

func (ps Proxies) each(f func(*conformance.Proxy)) {
	for _, p := range ps {
		f(p)
	}
}
