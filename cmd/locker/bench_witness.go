package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/lockstile/locker/fencing"
)

// errBroken means that a lock was seen to break its promise.
var errBroken = errors.New("this store's locks do not keep their promise")

// witness checks that the holders of one name come one at a time, in the order of
// their tokens.
type witness struct {
	name     string
	mu       sync.Mutex
	seen     int
	last     fencing.Token // the greatest so far
	holder   fencing.Token // 0 if nobody holds it
	believes func() error  // the holder's; nil while it believes in its lock
}

// benchPrefix is how all names that "bench" locks begin.
const benchPrefix = "lockstile-bench/"

// benchNames returns names that nobody else locks. They are the same in all
// workloads of a run: tokens increase over all of them.
func benchNames(n int) []witness {
	prefix, names := benchPrefix+strings.ToLower(rand.Text())+"/", make([]witness, n)
	for i := range names {
		names[i].name = fmt.Sprint(prefix, i)
	}
	return names
}

// granted is called after Lock has returned and before anything else, with the
// Err of the lock. A lock that is lost by then breaks no promise: its Unlock
// returns the loss.
func (w *witness) granted(token fencing.Token, believes func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if believes() != nil {
		return nil
	}
	w.seen++
	switch {
	case w.holder != 0 && w.believes() == nil:
		return fmt.Errorf("%w: %q had two holders at once, with the tokens %d and %d", errBroken, w.name, w.holder, token)
	case token <= w.last:
		return fmt.Errorf("%w: %q was granted with the token %d after %d, which must increase", errBroken, w.name, token, w.last)
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
