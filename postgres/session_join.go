package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker/driver"
)

// sessionLimit is how many connections there are at most of those that wait for a
// lock, or hold one that was waited for.
const sessionLimit = 16

// tableShare is the part of the server's lock table that the locks of one Locker may take
// up, as a divisor. When the table is full, the application's own statements fail.
const tableShare = 4

var errSessionLimit = driver.Refused(fmt.Errorf("%d connections wait for locks, or hold some that were waited for: that is the limit of a Locker", sessionLimit))

// share has an attempt join the shared connection.
func (s *sessionStore) share(a *sessionAttempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.join(s.current(), false)
}

// enter counts an attempt whose turn it is to ask on its connection. Before that is open
// nobody knows how much room the server has.
func (s *sessionStore) enter(a *sessionAttempt) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch _, joined := a.conn.users[a]; {
	case !joined:
		return errGaveUp
	case s.entered >= s.room/tableShare:
		return driver.Refused(fmt.Errorf("%d locks are held or asked for, a quarter of what the server's lock table has room for: "+
			"that is the limit of a Locker: set max_locks_per_transaction, or use lease rows", s.entered))
	}
	a.entered = true
	s.entered++
	return nil
}

// errGaveUp means that nothing was sent: the attempt left while it stood in line.
var errGaveUp = errors.New("the attempt was given up")

// current returns the shared connection. One whose answer is overdue is replaced, and
// counts as extra from then on: where there are too many of those, it stays. The mutex
// is held.
func (s *sessionStore) current() *sessionConn {
	switch old := s.shared; {
	case old == nil:
	case !old.slow():
		return old
	case len(old.users) == 0:
		go old.end(errConnectionLost)
	case len(s.extra) >= sessionLimit:
		return old
	default:
		s.extra[old] = struct{}{}
	}
	s.shared = s.newConn()
	return s.shared
}

// own has an attempt join a connection that nobody else uses.
func (s *sessionStore) own(a *sessionAttempt) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.extra {
		if len(c.users) == 0 && !c.slow() {
			a.join(c, true)
			return nil
		}
	}
	if len(s.extra) >= sessionLimit {
		return errSessionLimit
	}
	c := s.newConn()
	s.extra[c] = struct{}{}
	a.join(c, true)
	return nil
}

// join makes c the connection of an attempt. The store's mutex is held.
func (a *sessionAttempt) join(c *sessionConn, own bool) {
	a.conn, a.own = c, own
	c.users[a] = false
	c.ttls[a.req.TTL]++
	if c.spare != nil {
		c.spare.Stop()
	}
}

// leave undoes join. The last user ends a connection that owes an answer, or whose Locker
// was closed; any other is ended a TTL later, before the server ends it, which would log
// that as a fault.
func (s *sessionStore) leave(a *sessionAttempt) {
	c := a.conn
	if c == nil {
		return
	}
	s.mu.Lock()
	_, joined := c.users[a]
	delete(c.users, a)
	if a.entered {
		a.entered = false
		s.entered--
	}
	if joined {
		if c.ttls[a.req.TTL]--; c.ttls[a.req.TTL] == 0 {
			delete(c.ttls, a.req.TTL)
		}
	}
	unused := joined && len(c.users) == 0
	switch {
	case unused && c.spare == nil:
		c.spare = time.AfterFunc(a.req.TTL, func() { s.endUnused(c) })
	case unused:
		c.spare.Reset(a.req.TTL)
	}
	s.mu.Unlock()
	if unused && (c.slow() || s.locks.Closing().Err() != nil) {
		s.endUnused(c)
	}
}

// alone reports whether nobody else uses an attempt's connection.
func (s *sessionStore) alone(a *sessionAttempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, there := a.conn.users[a]
	return there && len(a.conn.users) == 1
}

// endAllUnused ends the connections that nobody uses, when the Locker was closed.
func (s *sessionStore) endAllUnused() {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.extra))
	if s.shared != nil {
		all = append(all, s.shared)
	}
	s.mu.Unlock()
	for _, c := range all {
		s.endUnused(c)
	}
}

// endUnused ends a connection, unless somebody has joined it meanwhile.
func (s *sessionStore) endUnused(c *sessionConn) {
	s.mu.Lock()
	unused := len(c.users) == 0
	if unused {
		s.remove(c)
	}
	s.mu.Unlock()
	if unused {
		c.end(errConnectionLost)
	}
}

// remove keeps attempts from joining a connection from now on. The mutex is held.
func (s *sessionStore) remove(c *sessionConn) {
	if s.shared == c {
		s.shared = nil
	}
	delete(s.extra, c)
}

// look ends a connection that is gone in the server.
func (s *sessionStore) look(ctx context.Context, c *sessionConn, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if gone, err := s.gone(ctx, c, false); err == nil && gone {
		c.end(errConnectionLost)
	}
}

// endInServer has the server end a connection that was lost, and returns when it is gone
// there, with all its locks.
func (s *sessionStore) endInServer(ctx context.Context, c *sessionConn) error {
	select {
	case c.ending <- struct{}{}:
		defer func() { <-c.ending }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for !c.gone {
		gone, err := s.gone(ctx, c, true)
		if err != nil {
			return err
		}
		c.gone = gone
		if !gone {
			time.Sleep(2 * time.Millisecond) // bounded by ctx, with which the question fails
		}
	}
	return nil
}

// gone asks over the shared connection whether another is gone in the server, and with end has
// the server end it.
func (s *sessionStore) gone(ctx context.Context, c *sessionConn, end bool) (bool, error) {
	s.mu.Lock()
	shared, pid, began := s.current(), c.pid, c.began
	s.mu.Unlock()
	gone := false
	err := shared.begin(func(pg *pgx.Conn) error {
		return pg.QueryRow(context.Background(), sessionGone, pid, began, end).Scan(&gone)
	}).wait(ctx)
	return err == nil && gone, err // the answer may come later, after an error
}
