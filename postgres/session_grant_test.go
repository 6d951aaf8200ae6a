package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstile/locker/driver"
)

// Goal: a holder hears of the end of its connection.
//
// Interleaving: the server grants, the connection ends and the holders there are told,
// and then the answer is read.
func TestGrantOfAConnectionThatHasEndedIsNone(t *testing.T) {
	s := &sessionStore{}
	c := &sessionConn{store: s, users: make(map[*sessionAttempt]bool), ttls: make(map[time.Duration]int)}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	a := &sessionAttempt{req: &driver.Request{}, first: tokens}
	a.join(c, false)
	c.end(errConnectionLost)
	if grant, err := s.grant(a); !errors.Is(err, errConnectionLost) {
		t.Errorf("%+v, %v", grant, err)
	}
}

// Goal: no books are kept for an attempt that has gone. Method: it gives up while it stands
// in line for its connection, which another one uses, and then its turn comes.
func TestAttemptThatHasLeftAsksForNothing(t *testing.T) {
	s := &sessionStore{room: 1000}
	c := &sessionConn{store: s, users: make(map[*sessionAttempt]bool), ttls: make(map[time.Duration]int), ctx: context.Background()}
	gone, stays := &sessionAttempt{req: &driver.Request{}}, &sessionAttempt{req: &driver.Request{}}
	gone.join(c, false)
	stays.join(c, false)
	gone.asked = &pending{done: make(chan struct{})}
	defer close(gone.asked.done)
	s.End(gone)
	if err := gone.ask(nil, false); !errors.Is(err, errGaveUp) || s.entered != 0 {
		t.Errorf("%v, and %d may have locks", err, s.entered)
	}
}
