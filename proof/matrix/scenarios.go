package matrix

import (
	"slices"
	"time"

	"github.com/lockstile/locker/driver"
)

// Scenarios returns all scenarios: first those with exclusive locks.
func Scenarios() []Scenario {
	ruinous := slices.Concat(serverScenarios, clockScenarios, signScenarios, clusterScenarios)
	for i := range ruinous {
		ruinous[i].ruins = true
	}
	all := slices.Concat(holderScenarios, updateScenarios, networkScenarios, midwayScenarios, ruinous, waiterScenarios)
	return append(all, withKinds(all)...)
}

// needsNetwork is for scenarios that break the network.
func needsNetwork(s *System) string {
	_, net, err := s.Client()
	if err == nil && net == nil {
		return "there is no network to break"
	}
	return ""
}

// needs is for scenarios that need something of the system. It says what is missing.
func needs(has func(*System) bool, missing string) func(*System) string {
	return func(s *System) string {
		if !has(s) {
			return missing
		}
		return ""
	}
}

// both is for scenarios that need two things.
func both(first, second func(*System) string) func(*System) string {
	return func(s *System) string {
		if missing := first(s); missing != "" {
			return missing
		}
		return second(s)
	}
}

// shortly is the deadline of an attempt whose answer will not come.
const shortly = 300 * time.Millisecond

// slower makes leases last so long that the holder's next renewal, by which it would
// learn what happened, comes after the restart of a server and the next holder's first
// write, on any machine.
const slower = 6

// long is when a silent holder's lock must have ended in any store that ends locks by
// time: session timeouts are checked in steps, and leases are whole seconds.
func (p *play) long() time.Duration { return 3*p.TTL + 4*time.Second }

func now() driver.Instant { return driver.Now() }
