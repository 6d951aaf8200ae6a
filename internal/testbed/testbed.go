// Package testbed sets up every backend on real servers, with the faults that
// this machine can inject, for the scenarios of conformance/matrix.
package testbed

import (
	"slices"

	"github.com/lockstile/locker/conformance/matrix"
	"github.com/lockstile/locker/internal/netproxy"
)

// Subjects returns every backend in every configuration.
func Subjects() []matrix.Subject {
	return slices.Concat(
		[]matrix.Subject{localSubject()}, redisSubjects(), redlockSubjects(),
		[]matrix.Subject{etcdSubject(), zooKeeperSubject()}, postgresSubjects(),
	)
}

// proxies are the network of one worker: one proxy for each server.
type proxies []*netproxy.Proxy

// through starts a proxy in front of each server.
func through(lab *matrix.Lab, targets ...string) (proxies, error) {
	var ps proxies
	for _, target := range targets {
		p, err := netproxy.Listen(target)
		if err != nil {
			return nil, err
		}
		lab.Cleanup(p.Close)
		ps = append(ps, p)
	}
	return ps, nil
}

// Cut implements matrix.Network.
func (ps proxies) Cut() { ps.each((*netproxy.Proxy).Cut) }

// EndUnheard implements matrix.Network.
func (ps proxies) EndUnheard() { ps.each((*netproxy.Proxy).EndUnheard) }

// CutReplies implements matrix.Network.
func (ps proxies) CutReplies() { ps.each((*netproxy.Proxy).CutReplies) }

// CutRepliesAfterOne implements matrix.Network.
func (ps proxies) CutRepliesAfterOne() { ps.each((*netproxy.Proxy).CutRepliesAfterOne) }

// Stall implements matrix.Network.
func (ps proxies) Stall() { ps.each((*netproxy.Proxy).Stall) }

// Heal implements matrix.Network.
func (ps proxies) Heal() { ps.each((*netproxy.Proxy).Heal) }

// Deliver implements matrix.Network.
func (ps proxies) Deliver() { ps.each((*netproxy.Proxy).Deliver) }

// Held implements matrix.Network.
func (ps proxies) Held() (requests, replies int) {
	for _, p := range ps {
		sent, answered := p.Held()
		requests, replies = requests+sent, replies+answered
	}
	return requests, replies
}

func (ps proxies) each(f func(*netproxy.Proxy)) {
	for _, p := range ps {
		f(p)
	}
}

// must is for steps on servers, whose own helpers report through the lab.
func must(lab *matrix.Lab, what string, err error) {
	if err != nil {
		lab.Fatalf("%s: %w", what, err)
	}
}

// try runs steps on a server and returns what went wrong.
func try(lab *matrix.Lab, steps ...func()) func() error {
	return func() error {
		return lab.Try(func() {
			for _, step := range steps {
				step()
			}
		})
	}
}

// server is a process that can be stopped.
type server interface {
	comparable
	Addr() string
	Pause()
	Resume()
}

// onePart is one server alone.
func onePart[S server](lab *matrix.Lab, before string, s S) (matrix.Part, error) {
	ps, err := through(lab, s.Addr())
	return matrix.Part{URL: before + ps.list(), Net: ps, Stop: try(lab, s.Pause), Resume: try(lab, s.Resume)}, err
}

// another returns one that is not the one.
func another[S server](all []S, one S) S {
	if all[0] != one {
		return all[0]
	}
	return all[1]
}
