package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/chores"
)

// errConnectionLost says that a session is over.
var errConnectionLost = errors.New("the connection was lost")

// session is one connection with the locks that it holds. A goroutine of its own
// carries out statements in the order in which they come, and listens in
// between, for letters and for the end.
type session struct {
	conn    *pgx.Conn
	mode    pgx.QueryExecMode
	channel string
	mail    *mailbox
	died    func(*session)

	mu    sync.Mutex
	calls []*call
	wake  context.CancelFunc      // ends the listening
	more  chan struct{}           // filled when a statement comes
	locks map[*lease]*locker.Lock // nil for one that is only asked for
	err   error                   // why it is over
	over  chan struct{}
}

// call is a statement in the queue. Nobody stops it once it is there: pgx ends
// the connection together with a statement's context, and all locks with it.
type call struct {
	sql  string
	args []any
	dest []any
	done chan error
}

func newSession(conn *pgx.Conn, mode pgx.QueryExecMode, channel string, mail *mailbox, died func(*session)) *session {
	s := &session{conn: conn, mode: mode, channel: channel, mail: mail, died: died,
		more: make(chan struct{}, 1), locks: make(map[*lease]*locker.Lock), over: make(chan struct{})}
	go s.serve()
	return s
}

func (s *session) dead() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// do has a statement carried out, and waits for its answer or the end of ctx; it
// is carried out in any case.
func (s *session) do(ctx context.Context, sql string, args, dest []any) error {
	c := &call{sql, args, dest, make(chan error, 1)}
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return &notSent{s.err}
	}
	for i, arg := range args {
		if arg == any(sessionPatience{}) {
			args[i] = s.patience().Milliseconds()
		}
	}
	s.calls = append(s.calls, c)
	if s.wake != nil {
		s.wake()
	}
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// next takes a statement from the queue. Without one, it returns a context that
// ends when one comes.
func (s *session) next() (*call, context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.calls) > 0 {
		c := s.calls[0]
		s.calls = s.calls[1:]
		s.wake = nil
		return c, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.wake = cancel
	return nil, ctx
}

// serve runs until the connection ends.
func (s *session) serve() {
	for {
		c, idle := s.next()
		if c != nil {
			c.done <- s.carryOut(c)
			s.linger()
		} else if n, err := s.conn.WaitForNotification(idle); n != nil {
			s.mail.arrived(n.Payload)
		} else if idle.Err() == nil {
			s.end(fmt.Errorf("%w: %w", errConnectionLost, err))
			return
		}
		if s.conn.IsClosed() {
			s.end(errConnectionLost)
			return
		}
	}
}

// lingerTime is how long the end of an idle connection may go unnoticed.
const lingerTime = 2 * time.Millisecond

// linger waits a moment for another statement before the session listens again,
// for to be interrupted in that costs as much as the statement. When somebody
// waits for a letter, there is no time to lose.
func (s *session) linger() {
	if !s.mail.empty() {
		return
	}
	timer := time.NewTimer(lingerTime)
	defer timer.Stop()
	for {
		s.mu.Lock()
		waiting := len(s.calls) > 0
		s.mu.Unlock()
		if waiting {
			return
		}
		select {
		case <-s.more: // perhaps for one that is done already
		case <-timer.C:
			return
		}
	}
}

func (s *session) carryOut(c *call) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.limit())
	defer cancel()
	return scan(ctx, s.conn, s.mode, c.sql, c.args, c.dest)
}

// limit is how long an answer may take before the session is given up: not while
// a lock on it may still be believed in.
func (s *session) limit() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := answerTime
	for l, lock := range s.locks {
		if lock != nil {
			limit = max(limit, l.ttl)
		}
	}
	return limit
}

// end tells everybody that the session is over.
func (s *session) end(err error) {
	s.mu.Lock()
	s.err = err
	calls, locks := s.calls, s.locks
	s.calls, s.locks = nil, nil
	close(s.over)
	s.mu.Unlock()
	for _, lock := range locks {
		if lock != nil {
			locker.Lose(lock, locker.SessionEnded, err)
		}
	}
	for _, c := range calls {
		c.done <- &notSent{err}
	}
	hangUp(s.conn)
	s.died(s)
}

// expect enters a lock in the books that is about to be asked for.
func (s *session) expect(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && s.locks[l] == nil {
		s.locks[l] = nil
	}
}

// hold enters the lock that came of it.
func (s *session) hold(l *lease, lock *locker.Lock) {
	s.mu.Lock()
	err := s.err
	if err == nil {
		s.locks[l] = lock
	}
	s.mu.Unlock()
	if err != nil {
		locker.Lose(lock, locker.SessionEnded, err)
	}
}

func (s *session) forget(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.locks, l)
}

// closeIfIdle ends a session that holds nothing.
func (s *session) closeIfIdle() {
	s.mu.Lock()
	idle := len(s.locks) == 0 && s.err == nil
	s.mu.Unlock()
	if idle {
		s.hangUp()
	}
}

// hangUp ends the session, and the server with it all that it holds.
func (s *session) hangUp() { _ = s.conn.PgConn().Conn().Close() }

// silence is how much longer than the longest TTL the server keeps a connection
// that says nothing. Its count starts when it has answered, and belief is counted
// from before it was asked: the holder is always first.
const silence = time.Second

// sessionPatience stands for the patience in the arguments of a statement. It is
// put in together with the statement's place in the queue: a statement that
// comes later must not bring an earlier look at the books.
type sessionPatience struct{}

// patience is how long the server must keep the connection when it says nothing:
// 0, for ever, if it holds no lock. The mutex is held.
func (s *session) patience() time.Duration {
	var longest time.Duration
	for l := range s.locks {
		longest = max(longest, l.ttl+silence)
	}
	return longest
}

// bury has the server end the connections that were lost, and takes those whose
// end it confirms out of the list. An old connection holds the advisory lock of
// its channel for as long as it lives: waiting for that is waiting for its end.
func (s *SessionLocker) bury(ctx context.Context, sess *session, old []string) {
	for _, channel := range old {
		var ended bool
		err := sess.do(ctx, `SELECT lockstile_session_end($1)`, []any{channel}, []any{&ended})
		if err != nil || !ended {
			continue
		}
		s.mu.Lock()
		for i, c := range s.old {
			if c == channel {
				s.old = append(s.old[:i:i], s.old[i+1:]...)
				break
			}
		}
		s.mu.Unlock()
	}
}

// unburied reports whether a lost connection may still be alive in the server.
func (s *SessionLocker) unburied() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.old) > 0
}

// died opens another connection in the background, so that the server ends this
// one soon if it has not noticed.
func (s *SessionLocker) died(*session) {
	s.queue.mail.wakeAll()
	if s.queue.closing.Err() != nil {
		return
	}
	s.queue.chores.Go(func() {
		chores.Persist(s.queue.closing, func(ctx context.Context) error {
			if s.queue.closing.Err() == nil {
				_, err := s.live(ctx)
				return err
			}
			return nil
		})
	})
}

// renewSessions asks every connection for a sign of life, which is good for all
// locks that it holds.
func renewSessions(ctx context.Context, leases []*lease) []error {
	answers := make(map[*session]error)
	errs := make([]error, len(leases))
	for i, l := range leases {
		err, asked := answers[l.session]
		if !asked {
			var alive bool
			if err = l.session.do(ctx, `SELECT $1::boolean`, []any{true}, []any{&alive}); err != nil {
				err = classify(err)
			}
			answers[l.session] = err
		}
		errs[i] = err
	}
	return errs
}
