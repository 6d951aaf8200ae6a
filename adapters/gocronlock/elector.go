package gocronlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/election"
)

// Elector is what gocron asks before it runs a job, for gocron.WithDistributedElector: one
// instance, the leader, runs all jobs. gocron then asks no Locker.
//
// While one instance leads, a job runs once a tick. Around a change of leaders it may run
// once more, or not at all: for the new leader its own clock says whether the tick is over.
// With a [Locker] the store says so. A job that goes on when the term is lost may be run
// beside itself, here or elsewhere: make it with [Elector.Task].
type Elector struct{ candidate *election.Candidate }

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an Elector, which stands for election during Run. The Candidate is
// used by nobody else's Run; it may be asked, and observed.
func NewElector(c *election.Candidate) *Elector { return &Elector{c} }

var errNoLeader = errors.New("gocronlock: this instance does not lead, so it runs no jobs")

// IsLeader implements gocron.Elector. It reads this machine's clock and asks nobody, so it is
// right also when the process was paused and has just woken.
func (e *Elector) IsLeader(context.Context) error {
	if e.candidate.IsLeader() {
		return nil
	}
	return errNoLeader
}

// Run starts the scheduler and stands for election until ctx ends. Then it shuts the
// scheduler down, which waits for jobs, and resigns after that: nobody else leads while a job
// goes on, except one that outlasts gocron.WithStopTimeout.
//
// It always returns an error, as [election.Candidate.Run] does. When ctx has ended, that is
// its cause, with what went wrong at the end. Earlier it is an error of the Locker against which
// standing again does not help; then, too, the scheduler has been shut down.
func (e *Elector) Run(ctx context.Context, s gocron.Scheduler) error {
	s.Start()
	standing, resign := context.WithCancelCause(context.WithoutCancel(ctx))
	defer resign(nil)
	shut := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		shut <- s.Shutdown()
		resign(context.Cause(ctx))
	})
	err := e.candidate.Run(standing, func(ctx context.Context, _ *locker.Lock) error {
		<-ctx.Done()
		return nil
	})
	if stop() {
		shut <- s.Shutdown()
	}
	if failed := <-shut; failed != nil {
		return fmt.Errorf("%w; gocronlock: shutdown: %w", err, failed)
	}
	return err
}

// Task is gocron.NewTask for a function that wants to know its term. The context of fn ends
// when the term is lost, or when gocron ends the job's; its cause says which. If the term is
// lost before fn has returned, gocron is told that the run has failed, with an error that is
// a [locker.ErrLost]. If this instance leads no more, fn is not called.
func (e *Elector) Task(fn func(ctx context.Context, term *locker.Lock) error) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		term := e.candidate.Term()
		if term == nil {
			return errNoLeader
		}
		return under(ctx, term, fn)
	})
}
