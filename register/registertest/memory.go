package registertest

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"time"

	"github.com/lockstile/locker/register"
)

// Memory is a [register.Store] in memory, the smallest that keeps the contract. The zero value is empty.
type Memory struct {
	mu      sync.Mutex
	records map[string]*held
}

type held struct {
	record  []byte
	version string
	since   time.Time
	changed chan struct{}
}

// record returns what is under a name. The mutex is held.
func (m *Memory) record(name string) *held {
	r := m.records[name]
	if r == nil {
		if m.records == nil {
			m.records = make(map[string]*held)
		}
		r = &held{changed: make(chan struct{})}
		m.records[name] = r
	}
	return r
}

func (r *held) entry() register.Entry {
	if r.version == "" {
		return register.Entry{}
	}
	return register.Entry{Record: r.record, Version: r.version, Age: time.Since(r.since)}
}

// Get implements [register.Store].
func (m *Memory) Get(_ context.Context, name string) (register.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.record(name).entry(), nil
}

// Swap implements [register.Store].
func (m *Memory) Swap(_ context.Context, name, version string, record []byte) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.record(name)
	if r.version != version {
		return "", register.ErrChanged
	}
	r.record, r.version, r.since = record, rand.Text(), time.Now()
	close(r.changed)
	r.changed = make(chan struct{})
	return r.version, nil
}

// Watch implements [register.Watcher].
func (m *Memory) Watch(ctx context.Context, name string, tell func(register.Entry)) error {
	for {
		m.mu.Lock()
		r := m.record(name)
		e, changed := r.entry(), r.changed
		m.mu.Unlock()
		tell(e)
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// List implements [register.Lister].
func (m *Memory) List(_ context.Context, prefix string) (map[string]register.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	entries := make(map[string]register.Entry)
	for name, r := range m.records {
		if r.version != "" && strings.HasPrefix(name, prefix) {
			entries[name] = r.entry()
		}
	}
	return entries, nil
}
