package matrix

import (
	"errors"
	"sync"
)

// house is where a subject's servers are.
type house struct {
	set     Settings
	subject Subject

	mu  sync.Mutex
	lab *Lab // nil until somebody needs it
	sys *System
	err error
}

// servers returns those that all scenarios share, and starts them once.
func (h *house) servers() (*System, *Lab, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lab == nil {
		h.sys, h.lab, h.err = h.start()
	}
	return h.sys, h.lab, h.err
}

// start starts servers in a lab that the caller closes, whatever the error.
func (h *house) start() (sys *System, lab *Lab, err error) {
	lab = &Lab{command: h.set.Worker, Start: h.set.Start}
	failed := lab.Try(func() { sys, err = h.subject.Start(lab) })
	if err = errors.Join(failed, err); err != nil {
		return nil, lab, err
	}
	var mu sync.Mutex
	client := sys.Client
	sys.Client = func() (string, Network, error) {
		mu.Lock()
		defer mu.Unlock()
		return client()
	}
	return sys, lab, nil
}

func (h *house) close() {
	if h.lab != nil {
		h.lab.close()
	}
}
