package matrix

import (
	"errors"
	"sync"

	"github.com/lockstile/locker/conformance"
)

// servers starts the servers of a subject.
type servers struct {
	set     Settings
	subject Subject

	mu  sync.Mutex
	lab *Lab // nil until a scenario needs it
	sys *System
	err error
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
	var mu sync.Mutex
	client := sys.Client
	sys.Client = func() (string, conformance.Network, error) {
		mu.Lock()
		defer mu.Unlock()
		return client()
	}
	return sys, lab, nil
}

// close ends the shared servers.
func (s *servers) close() {
	if s.lab != nil {
		s.lab.Close()
	}
}
