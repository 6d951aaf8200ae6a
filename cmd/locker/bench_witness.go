package main

import (
	"errors"
	"fmt"
	"sync"

	"github.com/lockstile/locker/fencing"
)

// errBroken means that a lock was seen to break its promise.
var errBroken = errors.New("this store's locks do not keep their promise")

// witness sees everybody who holds one name, and that they are one at a time and
// in the order of their tokens.
type witness struct {
	mu       sync.Mutex
	seen     int
	last     fencing.Token // the greatest so far
	holder   fencing.Token // 0 if nobody holds it
	believes func() error  // the holder's; nil while it believes in its lock
}

// granted is called after Lock has returned and before anything else, with the
// Err of the lock. Who has lost the lock in between is no holder, and breaks
// nothing: its Unlock tells of the loss.
func (w *witness) granted(name string, token fencing.Token, believes func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if believes() != nil {
		return nil
	}
	w.seen++
	switch {
	case w.holder != 0 && w.believes() == nil:
		return fmt.Errorf("%w: %q had two holders at once, with the tokens %d and %d", errBroken, name, w.holder, token)
	case token <= w.last:
		return fmt.Errorf("%w: %q was granted with the token %d after %d, which must increase", errBroken, name, token, w.last)
	}
	w.last, w.holder, w.believes = token, token, believes
	return nil
}

// released is called before Unlock is.
func (w *witness) released(token fencing.Token) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holder == token {
		w.holder = 0
	}
}
