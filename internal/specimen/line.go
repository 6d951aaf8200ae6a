package specimen

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/lockstile/locker"
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
	heard  chan struct{} // closed when the store has answered it, or it has left
	hear   func()        // closes heard
	picked bool          // by successor: it can no longer leave
	silent atomic.Bool   // what the store has answered it is long ago
}

// stand returns a new place, or the one in front if the caller would stand behind it and
// does not want to.
func (s *lines) stand(name string, a *attempt, behind bool) (p *place, stands bool) {
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
		return line.Front().Value.(*place), false
	}
	p = &place{lines: s, name: name, who: a, front: make(chan struct{}), heard: make(chan struct{})}
	p.hear = sync.OnceFunc(func() { close(p.heard) })
	p.entry = line.PushBack(p)
	if line.Len() == 1 {
		close(p.front)
	}
	return p, true
}

// tryEnter takes the place in front if nobody has it. If somebody has, it waits until the
// store has answered that one, for only then is the lock known to be taken.
func (s *lines) tryEnter(ctx context.Context, name string, a *attempt) (*place, error) {
	p, ok := s.stand(name, a, false)
	if ok {
		return p, nil
	}
	select {
	case <-p.heard:
	case <-ctx.Done():
	}
	return nil, p.taken()
}

// taken is what those behind p know.
func (p *place) taken() error {
	if p.silent.Load() {
		return errSilent
	}
	return locker.ErrTaken
}

var errSilent = fmt.Errorf("%w: it has been silent since it said \"taken\"", locker.ErrUnavailable)

// enter waits until it is in front, or for the end of ctx. One that was picked waits in any
// case: its attempt may have a lease.
func (s *lines) enter(ctx context.Context, name string, a *attempt) (*place, error) {
	p, _ := s.stand(name, a, true)
	select {
	case <-p.front:
		return p, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	leaves, first := !p.picked && p.entry.Prev() != nil, s.names[name].Front().Value.(*place)
	if leaves {
		s.names[name].Remove(p.entry)
	}
	s.mu.Unlock()
	if leaves {
		return nil, fmt.Errorf("%w: %w", first.taken(), context.Cause(ctx))
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
	p.hear()
	next := p.entry.Next()
	s.names[p.name].Remove(p.entry)
	if next == nil {
		delete(s.names, p.name)
		return
	}
	close(next.Value.(*place).front)
}
