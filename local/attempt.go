package local

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/line"
)

const (
	// claimTime is how long a free lock is left to those who wait for it.
	claimTime = 250 * time.Millisecond

	// mostReplaced bounds how often a look starts again because the file was
	// broken or deleted in the middle of it.
	mostReplaced = 100
)

// attempt is one call of Lock or TryLock, and the hold that comes of it.
type attempt struct {
	req   *locker.Request
	turn  *line.Turn[*attempt]
	token fencing.Token
	since locker.Instant

	// The predecessor in the line may fill these in before it passes the turn.
	file   *file       // nil: not open
	streak line.Streak // of hand-overs of the locked file
	yield  bool        // others first

	mu sync.Mutex // guards file once the lock is granted
}

// standing is the outcome of one look at the lock.
type standing int

const (
	granted standing = iota + 1
	taken
	awaited // it may be free, but others were there first
)

// enter waits for the turn in the line of this Locker's goroutines.
func (l *Locker) enter(ctx context.Context, a *attempt) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(l.closing, func() { cancel(locker.ErrClosed) })
	defer stop()
	turn, err := l.lines.Enter(ctx, a.req.Name, a)
	a.turn = turn
	if err != nil && !errors.Is(err, locker.ErrClosed) {
		err = fmt.Errorf("%w: %w", locker.ErrTaken, err)
	}
	return err
}

// once is TryLock's attempt.
func (l *Locker) once(ctx context.Context, a *attempt) error {
	given := locker.Now().Add(claimTime)
	for {
		s, err := l.try(a, locker.Now() < given)
		switch {
		case err != nil:
			return err
		case s == granted:
			return nil
		case s == taken:
			return locker.ErrTaken
		}
		if err := l.pause(ctx); err != nil {
			return err
		}
	}
}

// wait looks until the lock is ours, ctx ends or the Locker is closed.
func (l *Locker) wait(ctx context.Context, a *attempt) error {
	for polite := true; ; polite = false {
		if err := l.ended(ctx); err != nil {
			return err // also with a file that was handed to us: finish gives it back
		}
		s, err := l.try(a, polite)
		if err != nil || s == granted {
			return err
		}
		if err := a.file.wait(); err != nil {
			return unavailable(err)
		}
		if err := l.pause(ctx); err != nil {
			return err
		}
	}
}

// try looks once, at the file that is there now. If polite, it leaves a free lock
// to those who wait for it. Unless the lock is granted, a.file is open and not
// ours, or there was an error.
func (l *Locker) try(a *attempt, polite bool) (standing, error) {
	for range mostReplaced {
		s, err := l.tryFile(a, polite)
		if err != nil {
			return 0, unavailable(err)
		}
		reason, err := a.file.gone()
		if err != nil {
			return 0, unavailable(err)
		}
		if reason == 0 {
			return s, nil
		}
		// Somebody broke the lock or deleted its file while we looked. A token
		// that we drew from the old file was seen by nobody.
		f := a.file
		a.file = nil
		if err := f.drop(); err != nil {
			return 0, unavailable(err)
		}
	}
	return 0, unavailable(fmt.Errorf("the lock file %s is replaced as fast as it is opened", l.path(a.req.Name)))
}

// tryFile looks at a.file, which it opens if it is not.
func (l *Locker) tryFile(a *attempt, polite bool) (s standing, err error) {
	since := locker.Now() // before the file is made, which may take a while to be durable
	if a.file == nil {
		if a.file, err = openOrCreate(l.path(a.req.Name), a.req.Name); err != nil {
			return 0, err
		}
	}
	if polite && !a.file.held {
		if s, err := a.giveWay(); err != nil || s != 0 {
			return s, err
		}
	}
	ok, err := a.file.take()
	if err != nil || !ok {
		return taken, err
	}
	if reason, err := a.file.gone(); err != nil || reason != 0 {
		return taken, err // see Break: nothing is written to a file that is gone
	}
	token, err := a.file.draw(a.req)
	a.token, a.since = token, since
	return granted, err
}

// giveWay reports awaited if others wait for the lock, and taken if somebody
// has it too.
func (a *attempt) giveWay() (standing, error) {
	if a.yield && !seesWaiters {
		a.yield = false // there may be others: be as late as they are, once
		return awaited, nil
	}
	waiting, err := countWaiters(a.file.File, 1)
	if err != nil || waiting == 0 {
		return 0, err
	}
	locked, err := isLocked(a.file.File)
	if locked {
		return taken, err
	}
	return awaited, err
}

// pause waits as long as all waiters do between two looks, at random so that
// each of them has its chance.
func (l *Locker) pause(ctx context.Context) error {
	timer := time.NewTimer(time.Millisecond + rand.N(3*time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
	case <-l.closing.Done():
	}
	return l.ended(ctx)
}

// ended says why a wait is over, if it is.
func (l *Locker) ended(ctx context.Context) error {
	switch {
	case l.closing.Err() != nil:
		return locker.ErrClosed
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", locker.ErrTaken, context.Cause(ctx))
	}
	return nil
}

// unavailable marks an error of the file system, once.
func unavailable(err error) error {
	if errors.Is(err, locker.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", locker.ErrUnavailable, err)
}
