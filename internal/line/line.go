// Package line lets the goroutines of one Locker wait for a name one behind
// another, so that at most one of them deals with the store about it.
package line

import (
	"context"
	"sync"
)

// Lines is a first-come, first-served line for every name. Whoever is at the
// front has the turn: it alone asks the store, holds the lock if it is granted,
// and passes the turn on when it has given the lock back, lost it or failed.
//
// An A is what a waiter wants. The holder reads that of its successor ([Turn.Next])
// and may leave a grant in it, which is how a lock is handed over within the
// process. The zero Lines is ready to use.
type Lines[A any] struct {
	mu    sync.Mutex
	names map[string]*Turn[A] // who has the turn
}

// Turn is a place in a line, and in the end the turn itself.
type Turn[A any] struct {
	lines  *Lines[A]
	name   string
	ask    A
	ready  chan struct{} // closed when the turn is ours
	picked bool          // by Next: it can no longer walk away
	left   bool
	before *Turn[A] // who is ahead
	next   *Turn[A] // who is behind
	last   *Turn[A] // the end of the line; only the front's is kept up to date
}

// Enter waits for the turn or for the end of ctx. When the holder has picked
// this waiter as its successor, Enter waits for it to Leave, and returns the
// turn though ctx may be over: there may be a grant in ask that must be given
// back.
func (s *Lines[A]) Enter(ctx context.Context, name string, ask A) (*Turn[A], error) {
	t := &Turn[A]{lines: s, name: name, ask: ask}
	if s.append(t) {
		return t, nil
	}
	select {
	case <-t.ready:
		return t, nil
	case <-ctx.Done():
	}
	if s.walkAway(t) {
		return nil, context.Cause(ctx)
	}
	<-t.ready // picked: the holder leaves within its release's bound
	return t, nil
}

// Len counts who has the turn and who waits for it.
func (s *Lines[A]) Len(name string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := s.names[name]; t != nil; t = t.next {
		n++
	}
	return n
}

// TryEnter takes the turn if nobody has it.
func (s *Lines[A]) TryEnter(name string, ask A) (*Turn[A], bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names[name] != nil {
		return nil, false
	}
	t := &Turn[A]{lines: s, name: name, ask: ask}
	s.front(t)
	return t, true
}

// append puts t at the end of its line and reports whether that is the front.
func (s *Lines[A]) append(t *Turn[A]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	front := s.names[t.name]
	if front == nil {
		s.front(t)
		return true
	}
	t.ready = make(chan struct{})
	t.before = front.last
	front.last.next = t
	front.last = t
	return false
}

func (s *Lines[A]) front(t *Turn[A]) {
	if s.names == nil {
		s.names = make(map[string]*Turn[A])
	}
	if t.last == nil {
		t.last = t
	}
	s.names[t.name] = t
}

// walkAway takes t out of the line unless it has the turn or was picked. It
// does not look at anybody but t's neighbours: ten thousand waiters whose
// contexts end at once must not be ten thousand walks along the line.
func (s *Lines[A]) walkAway(t *Turn[A]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	front := s.names[t.name]
	if t == front || t.picked {
		return false
	}
	t.before.next = t.next
	if t.next == nil {
		front.last = t.before
	} else {
		t.next.before = t.before
	}
	return true
}

// Ask returns what the waiter brought.
func (t *Turn[A]) Ask() A { return t.ask }

// Next picks the successor and returns what it wants. From then on the successor
// waits for Leave even if its context ends. Picking again returns the same one.
func (t *Turn[A]) Next() (ask A, ok bool) {
	t.lines.mu.Lock()
	defer t.lines.mu.Unlock()
	if t.next == nil {
		return ask, false
	}
	t.next.picked = true
	return t.next.ask, true
}

// Leave passes the turn on. Only the first call counts.
func (t *Turn[A]) Leave() {
	s := t.lines
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.left {
		return
	}
	t.left = true
	next := t.next
	if next == nil {
		delete(s.names, t.name)
		return
	}
	next.last = t.last
	t.next, t.last, next.before = nil, nil, nil // a turn that is kept must not keep all that came before or after it
	s.front(next)
	close(next.ready)
}
