package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/chores"
	"github.com/lockstile/locker/internal/line"
)

// confirmTime is how long a caller whose attempt failed waits to hear that
// nothing of it is left. The clean-up goes on behind its back.
const confirmTime = 250 * time.Millisecond

// post is how a queue reaches the server and letters reach the queue.
type post interface {
	// bind prepares for a question of the lease's.
	bind(ctx context.Context, l *lease) error
	// open waits until letters can arrive, where they do.
	open(ctx context.Context) error
	// channel is where they must be sent at the moment: "" for nowhere.
	channel() string
	// poll is the time between two looks where no letters arrive, else 0.
	poll() time.Duration
	// withdraw removes whatever the lease's attempt has left, or will leave.
	withdraw(ctx context.Context, l *lease, spare bool) error
	// held is told of every lock that begins, and ended of the end of every
	// attempt that bind was told of. After a loss, ended also frees what does
	// not end by itself.
	held(l *lease, lock *locker.Lock)
	ended(l *lease, lost bool)
}

// queue is what the two kinds of locks share: the line of this process's
// goroutines, the wait in the store, release and clean-up.
type queue struct {
	store  *store
	admin  *poolRunner // for those who look on
	post   post
	mail   *mailbox
	lines  line.Lines[*attempt]
	keeper *locker.Keeper

	standby atomic.Bool // a synchronous standby was seen configured

	closing context.Context // ends with stop
	close   context.CancelFunc
	chores  chores.Chores // clean-ups under way
}

// attempt is one call of Lock or TryLock, and the hold that comes of it.
type attempt struct {
	req   *locker.Request
	lease *lease
	turn  *line.Turn[*attempt]

	queued bool // it may have a place in the store's queue

	// The predecessor in the line fills these in before it passes the turn.
	token  fencing.Token
	since  locker.Instant
	streak line.Streak
	behind fencing.Token // what a crash may go back to, if the grant did without the disk

	mu sync.Mutex // one release at a time, and none while the turn is passed on
}

func (q *queue) lock(ctx context.Context, name string, opts []locker.Option) (*locker.Lock, error) {
	a, err := q.newAttempt(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	if a.turn, err = q.lines.Stand(ctx, q.closing, name, a); err != nil {
		return nil, fmt.Errorf("postgres: lock %q: %w", name, err)
	}
	return q.finish(a, q.wait(ctx, a))
}

func (q *queue) tryLock(ctx context.Context, name string, opts []locker.Option) (*locker.Lock, error) {
	a, err := q.newAttempt(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	turn, ok := q.lines.TryEnter(name, a)
	if !ok {
		return nil, fmt.Errorf("postgres: lock %q: %w", name, locker.ErrTaken)
	}
	a.turn = turn
	s, err := q.ask(ctx, a, false, 0)
	if err == nil && s.token == 0 {
		err = locker.ErrTaken
	}
	return q.finish(a, err)
}

func (q *queue) newAttempt(ctx context.Context, name string, opts []locker.Option) (*attempt, error) {
	req, err := locker.NewRequest(name, opts...)
	switch {
	case err != nil:
		return nil, err
	case q.closing.Err() != nil:
		return nil, fmt.Errorf("postgres: lock %q: %w", name, locker.ErrClosed)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("postgres: lock %q: %w", name, context.Cause(ctx))
	}
	return &attempt{req: req, lease: newLease(req)}, nil
}

// finish makes the lock of a granted attempt, and clears away one that failed.
func (q *queue) finish(a *attempt, err error) (*locker.Lock, error) {
	if err == nil {
		err = a.req.CheckValidity(a.since)
	}
	if err != nil {
		if (a.queued || a.token != 0 || a.lease.unsure.Load()) && !q.cleanUp(a.lease) {
			err = fmt.Errorf("%w: %w", locker.ErrOutcomeUnknown, err)
		}
		q.post.ended(a.lease, false)
		q.leave(a)
		return nil, fmt.Errorf("postgres: lock %q: %w", a.req.Name, err)
	}
	lock := locker.NewLock(locker.Hold{
		Request: a.req,
		Token:   a.token,
		Since:   a.since,
		Keeper:  q.keeper,
		Lease:   a.lease,
		Release: func(ctx context.Context) error { return q.release(ctx, a) },
		Lost:    func() { q.lost(a) },
	})
	q.post.held(a.lease, lock)
	return lock, nil
}

// lost clears up after a loss and passes the turn on.
func (q *queue) lost(a *attempt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q.post.ended(a.lease, true)
	q.leave(a)
}

// release gives the lock back, where it can to the next goroutine in line.
func (q *queue) release(ctx context.Context, a *attempt) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer q.leave(a)
	defer q.post.ended(a.lease, false)
	next, ok := a.turn.Next()
	var heir *lease
	if ok {
		heir = next.lease
	}
	since, quick := a.passOn(next)
	token, err := q.store.release(ctx, a.lease, heir, q.post.channel(), a.streak.Over(), quick, a.behind, a.token)
	if token != 0 {
		next.token, next.since, next.streak = token, since, a.streak.Next()
		heir.onDisk.Store(int64(since))
		if quick {
			next.behind = a.tokenOnDisk()
		}
	}
	var lost *locker.LostError
	switch {
	case errors.As(err, &lost):
		return lost
	case a.lease.session != nil && (terminated(err) || neverSent(err)): // the session is over, and the lock with it
		return &locker.LostError{Name: a.req.Name, Reason: locker.SessionEnded, Cause: err}
	case err != nil:
		q.cleanUpLater(a.lease)
		return fmt.Errorf("postgres: unlock %q: %w", a.req.Name, err)
	}
	return nil
}

// checkStandby looks once whether the server is what SyncStandby says.
func (q *queue) checkStandby(ctx context.Context, opts Options) error {
	if !opts.SyncStandby || q.standby.Load() {
		return nil
	}
	var names string
	_, err := q.admin.run(ctx, nil, `SELECT current_setting($1)`, []any{"synchronous_standby_names"}, &names)
	switch {
	case err != nil:
		return err
	case names == "":
		return errors.New("SyncStandby is set, but the server has no synchronous_standby_names")
	}
	q.standby.Store(true)
	return nil
}

func (q *queue) inspect(ctx context.Context, name string) (locker.Info, error) {
	if err := locker.CheckName(name); err != nil {
		return locker.Info{}, err
	}
	info, err := q.admin.inspect(ctx, name, q.store.advisory)
	if err != nil {
		return locker.Info{}, fmt.Errorf("postgres: inspect %q: %w", name, err)
	}
	return info, nil
}

// force runs a function of the schema's that frees a lock, whoever holds it: sent
// again after a lost answer, it would free the next holder's.
func (q *queue) force(ctx context.Context, name, sql string, args ...any) (broken bool, err error) {
	if err := locker.CheckName(name); err != nil {
		return false, err
	}
	if err := q.admin.runOnce(ctx, sql, append([]any{name}, args...), &broken); err != nil {
		return false, fmt.Errorf("postgres: break %q: %w", name, classify(err))
	}
	return broken, nil
}

// stop ends the waiting. Clean-ups under way get one more try.
func (q *queue) stop() { q.close() }
