package specimen

import (
	"container/list"
	"context"
	"sync"
)

// lines has a line for each name: the one in front asks the server, holds the lock, and
// leaves.
type lines struct {
	mu    sync.Mutex
	names map[string]*list.List // of *place
}

// place is one in a line.
type place struct {
	lines  *lines
	name   string
	who    *attempt
	entry  *list.Element
	front  chan struct{} // closed when it is in front
	picked bool          // by successor: it can no longer leave
}

func (s *lines) stand(name string, a *attempt, behind bool) *place {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		s.names = make(map[string]*list.List)
	}
	line := s.names[name]
	if line == nil {
		line = list.New()
		s.names[name] = line
	}
	if line.Len() > 0 && !behind {
		return nil
	}
	p := &place{lines: s, name: name, who: a, front: make(chan struct{})}
	p.entry = line.PushBack(p)
	if line.Len() == 1 {
		close(p.front)
	}
	return p
}

// tryEnter takes the place in front if nobody has it.
func (s *lines) tryEnter(name string, a *attempt) (*place, bool) {
	p := s.stand(name, a, false)
	return p, p != nil
}

// enter waits until it is in front, or for the end of ctx. One that was picked waits in any
// case: its attempt may have a lease.
func (s *lines) enter(ctx context.Context, name string, a *attempt) (*place, error) {
	p := s.stand(name, a, true)
	select {
	case <-p.front:
		return p, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	leaves := !p.picked && p.entry.Prev() != nil
	if leaves {
		s.names[name].Remove(p.entry)
	}
	s.mu.Unlock()
	if leaves {
		return nil, context.Cause(ctx)
	}
	<-p.front
	return p, nil
}

// successor picks who is next.
func (p *place) successor() (*attempt, bool) {
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	next := p.entry.Next()
	if next == nil {
		return nil, false
	}
	q := next.Value.(*place)
	q.picked = true
	return q.who, true
}

// leave lets the next one come to the front. It is called once.
func (p *place) leave() {
	s := p.lines
	s.mu.Lock()
	defer s.mu.Unlock()
	next := p.entry.Next()
	s.names[p.name].Remove(p.entry)
	if next == nil {
		delete(s.names, p.name)
		return
	}
	close(next.Value.(*place).front)
}
