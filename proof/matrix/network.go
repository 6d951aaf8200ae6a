package matrix

import "github.com/lockstile/locker/conformance"

// Proxy starts a proxy in front of each server at an address host:port, for one worker.
// They end with the lab.
func (l *Lab) Proxy(servers ...string) (ps conformance.Proxies, err error) {
	err = l.Try(func() {
		for _, server := range servers {
			ps = append(ps, conformance.NewProxy(l, server))
		}
	})
	return ps, err
}
