package matrix

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

// servers starts the servers of a subject.
type servers struct {
	set     Settings
	subject Subject

	mu  sync.Mutex
	lab *Lab // nil until a scenario needs it
	sys *System
	err error

	asked     sync.Once
	unreached error // of the first lock on the shared servers, if there was none
}

// shared returns the servers that all scenarios share. The first call starts them.
func (s *servers) shared() (*System, *Lab, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lab == nil {
		s.sys, s.lab, s.err = s.start()
	}
	return s.sys, s.lab, s.err
}

// start starts servers in a lab that the caller closes, whatever the error.
func (s *servers) start() (sys *System, lab *Lab, err error) {
	lab = newLab(s.set.Start, s.subject.ttl())
	failed := try(func() { sys, err = s.subject.Start(lab) })
	if err = errors.Join(failed, err); err != nil {
		return nil, lab, err
	}
	sys.detaches = s.subject.Guarantees.Detaches
	var mu sync.Mutex
	client := sys.Client
	sys.Client = func() (string, conformance.Network, error) {
		mu.Lock()
		defer mu.Unlock()
		return client()
	}
	return sys, lab, nil
}

// newPlay returns a play of the scenario with a lock of that name.
func (s *servers) newPlay(ctx context.Context, sys *System, lab *Lab, sc Scenario, name string) *play {
	return &play{
		System: sys, History: &history.History{Began: driver.Now(), Tokenless: s.subject.Tokenless()}, TTL: s.subject.ttl(),
		ctx: ctx, lab: lab, guarantees: s.subject.Guarantees, scenario: sc, name: name, names: []string{name},
	}
}

// reach returns an error unless a worker could lock on the shared servers while nothing was broken there. It
// asks once, when the first worker of any scenario is to start, for as long as a scenario may take. A store that
// cannot be reached says nothing of what its faults would do, so nothing is played there. (A crowd does not ask: what
// its store holds is counted after its first lock.)
func (s *servers) reach(run context.Context) error {
	s.asked.Do(func() {
		sys, lab, err := s.shared()
		if err == nil {
			ctx, cancel := context.WithTimeoutCause(run, playTime, fmt.Errorf("no lock after %v", playTime))
			defer cancel()
			p := s.newPlay(ctx, sys, lab, Scenario{}, lockName)
			defer p.end()
			err = try(func() { p.Worker("A").reach() })
		}
		s.unreached = err
	})
	return s.unreached
}

// close ends the shared servers.
func (s *servers) close() {
	if s.lab != nil {
		s.lab.Close()
	}
}
