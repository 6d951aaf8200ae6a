package matrix

import (
	"errors"
	"slices"
	"time"
)

// Scenarios returns all scenarios.
func Scenarios() []Scenario {
	ruinous := slices.Concat(serverScenarios(), clockScenarios(), []Scenario{betweenSigns()})
	for i := range ruinous {
		ruinous[i].Ruins = true
	}
	return slices.Concat(holderScenarios(), networkScenarios(), tornScenarios(), ruinous, crowdScenarios())
}

// wantNetwork is for scenarios that break the network.
func wantNetwork(s *System) string {
	_, net, err := s.Client()
	if err == nil && net == nil {
		return "there is no network to break"
	}
	return ""
}

// want is for scenarios that need a hook of the system.
func want(has func(*System) bool, what string) func(*System) string {
	return func(s *System) string {
		if !has(s) {
			return what
		}
		return ""
	}
}

// long is when a silent holder's lock must have ended in any store that ends
// locks by time: session timeouts are checked in steps, and leases are whole
// seconds.
func (p *Play) long() time.Duration { return 3*p.TTL + 4*time.Second }

// nobodyElse checks that a lock that is held cannot be had: if it can, the
// history shows the overlap. Only a store that calls it taken has said so; after
// any other error it is asked again, for less long than LockingLong holds.
func (p *Play) nobodyElse(w *Worker) {
	for end := time.Now().Add(p.long()); ; p.Sleep(p.TTL / 20) {
		g, err := w.Try(2 * p.TTL)
		var no *refusal
		switch {
		case err == nil:
			g.Write(99)
			return
		case !errors.As(err, &no):
			p.must(err)
		case no.Taken:
			return
		case time.Now().After(end):
			p.miss("nobody knows whether somebody else could have had the lock: %w", no)
		}
	}
}
