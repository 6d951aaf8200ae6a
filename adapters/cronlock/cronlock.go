// Package cronlock lets several machines share the jobs of robfig/cron
// (github.com/robfig/cron/v3), over any [locker.Locker]: all have the same schedule, and one of
// them runs the job at each tick.
//
//	once, err := cronlock.NewWrapper(locks, "report", logger)
//	…
//	_, err = schedule.AddJob("0 3 * * *", once(job))
//
// # What is promised
//
// The locks of two runs are granted at least the minimum hold apart ([DefaultMinHold]), however
// short the runs are, unless the first machine died or lost its lock. No two machines believe
// at the same time that they may run the job. Both are true as long as the store keeps what its
// [locker.Guarantees] say. A machine that finds the lock taken skips the run, and never
// waits: a run that waited would begin late. For the same reason it skips a run that could
// begin only when half of the minimum hold has passed since its tick, because the store was
// slow or the process was paused. So two runs begin at least half of the minimum hold apart.
// A wrapper has no job run twice at a time in its process, even if a run goes on after its lock
// was lost.
//
// # What is not
//
// A process that is paused between that check and the job, for longer than half of the minimum
// hold, begins the job late. Then only the token tells the next run's writes from this one's.
//
// Not every tick has a run. If the machine that has the lock dies, its lease ends after
// [locker.WithTTL], and another one runs the job at its next tick. If the store is away,
// nobody runs it, and the logger is told.
//
// A wrapped job knows nothing of its lock. If that is lost, by a pause or because the store
// is away, the job runs on, another machine may run it at the next tick, and the logger hears
// of it when the run ends. A job that must not go on without its lock is made with [NewJob]: it
// gets the lock, and a context that ends with it. What it writes carries the token, for
// nothing stops a process that is paused between two lines.
package cronlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// DefaultMinHold is how long the lock is held at least, without [locker.WithMinHold] among
// the options. It is more than synchronized clocks differ and a busy machine is late, so that
// a machine whose tick comes last finds the lock taken. It is less than the time between two
// ticks of most jobs. A job that ticks more often would skip ticks: it needs less.
const DefaultMinHold = 5 * time.Second

// NewWrapper returns a cron.JobWrapper for one job: all that it wraps has the lock called
// name. So do not give it to cron.WithChain, where every job would be the same. Cron has no
// names, so name must be the same on all machines. If the job panics, its lock is given
// back, and the panic goes on: wrap it in cron.Recover, inside or outside.
//
// The logger is told, as Info, of runs that are skipped because the lock is taken, and, as
// Error, of all else that went wrong. The options are those of the lock: [locker.WithMinHold]
// instead of [DefaultMinHold], [locker.WithTTL] for how long the lock of a dead machine stays
// taken, [locker.WithMaxHold] for a job that may hang. The lock is exclusive; WithWait and
// WithGuard are refused.
func NewWrapper(l locker.Locker, name string, logger cron.Logger, opts ...locker.Option) (cron.JobWrapper, error) {
	s, err := newShared(context.Background(), l, name, logger, opts)
	if err != nil {
		return nil, err
	}
	return func(j cron.Job) cron.Job {
		return cron.FuncJob(func() {
			s.run(func(context.Context, *locker.Lock) error { j.Run(); return nil })
		})
	}, nil
}

// NewJob returns a cron.Job that calls fn under the lock called name, as [NewWrapper] does.
// The context of fn has the values of ctx. It ends with ctx, or when the lock is lost; its
// cause says which. When ctx has ended, runs are skipped. The logger is told, as Error, of what
// fn returns, and of the loss.
func NewJob(ctx context.Context, l locker.Locker, name string, fn func(ctx context.Context, lock *locker.Lock) error,
	logger cron.Logger, opts ...locker.Option,
) (cron.Job, error) {
	s, err := newShared(ctx, l, name, logger, opts)
	if err != nil {
		return nil, err
	}
	return cron.FuncJob(func() { s.run(fn) }), nil
}

// shared is a job that several machines share.
type shared struct {
	ctx     context.Context
	locks   locker.Locker
	name    string
	logger  cron.Logger
	answer  time.Duration // how long the store may take to grant the lock
	running sync.Mutex    // held while a run goes on in this process, with its lock or without
}

func newShared(ctx context.Context, l locker.Locker, name string, logger cron.Logger, opts []locker.Option) (*shared, error) {
	locks := locker.With(l, opts...)
	req, err := driver.NewRequest(locks, name)
	if err == nil && req.MinHold == 0 {
		locks = locker.With(locks, locker.WithMinHold(DefaultMinHold))
		req, err = driver.NewRequest(locks, name)
	}
	before, _ := driver.NewRequest(l, name)
	switch {
	case err != nil:
	case req.Wait != before.Wait: // of the Locker's own, TryLock makes nothing
		err = fmt.Errorf("job %q: WithWait would begin a run late: a run whose lock is taken is skipped", name)
	case logger == nil:
		err = fmt.Errorf("job %q: the logger is nil: nobody would hear why runs are skipped", name)
	}
	if err != nil {
		return nil, fmt.Errorf("cronlock: %w", err)
	}
	return &shared{ctx: ctx, locks: locks, name: name, logger: logger, answer: req.MinHold / 2}, nil
}

// run calls fn under the lock, or tells the logger why not.
func (s *shared) run(fn func(ctx context.Context, lock *locker.Lock) error) {
	if !s.running.TryLock() {
		s.logger.Info("skip", "job", s.name, "because", "an earlier run goes on in this process")
		return
	}
	defer s.running.Unlock()
	called, ticked := false, driver.Now()
	bounded, cancel := context.WithTimeoutCause(s.ctx, s.answer, fmt.Errorf("the store has not answered within %v, half of the minimum hold", s.answer))
	defer cancel()
	err := locker.TryDo(bounded, s.locks, s.name, func(_ context.Context, lock *locker.Lock) error {
		if late := driver.Now().Sub(ticked); late > s.answer {
			return fmt.Errorf("the process was paused: the run would begin %v after its tick, and the limit is half of the minimum hold, %v", late, s.answer)
		}
		called = true
		ctx, cancel := lock.Bind(s.ctx)
		defer cancel()
		return fn(ctx, lock)
	})
	switch {
	case err == nil:
	case called:
		s.logger.Error(err, "the job has run", "job", s.name)
	case (errors.Is(err, locker.ErrTaken) || s.ctx.Err() != nil) && !errors.Is(err, locker.ErrOutcomeUnknown):
		s.logger.Info("skip", "job", s.name, "because", err)
	default:
		s.logger.Error(err, "skip", "job", s.name)
	}
}
