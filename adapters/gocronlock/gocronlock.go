// Package gocronlock lets several instances of a program share the jobs of gocron
// (github.com/go-co-op/gocron/v2), over any [locker.Locker]. A [Locker] has one instance run
// each job, an [Elector] has one instance run all jobs.
//
// # What is promised
//
// The locks of two runs of a job are granted at least the minimum hold apart
// ([DefaultMinHold]), however short the runs are, unless the first instance died or lost its
// lock. No two instances believe at the same time that they may run it. Both are true as long
// as the store keeps what its [locker.Guarantees] say. An instance that finds the lock taken
// skips the run, and never waits: a run that waited would begin late. For the same reason it
// skips a run whose lock comes later than half of the minimum hold after its tick, because the
// store was slow or the process was paused. So two runs begin at least half of the minimum hold
// apart, but for an instance that is paused between its lock and its run, which nothing but the
// token tells from the next one.
//
// # What is not
//
// Not every tick has a run. If the instance that has the lock dies, its lease ends after
// [locker.WithTTL], and another instance runs the job at its next tick. If the store is
// away, nobody runs it.
//
// gocron tells only a listener (gocron.AfterLockError) why a run was skipped, and drops the
// error of Unlock. An observer hears of both, and of losses ([locker.Observe]).
//
// gocron does not end the context of a job when its lock is lost. So a job that must not go
// on without its lock is made with [Locker.Task] or [Elector.Task]: it gets the lock, and a
// context that ends with it. What it writes carries the token, for nothing stops a process
// that is paused between two lines.
//
// # Names
//
// The name of a job is the name of its lock, so give it one: gocron.WithName. Without that
// it is the name of a Go function, and two closures of one place have the same. A name that
// [locker.CheckName] refuses is an error at each tick, and the job does not run.
package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// DefaultMinHold is how long a job's lock is held at least, without [locker.WithMinHold]
// among the options. It is more than synchronized clocks differ and a busy machine is late,
// so that an instance whose tick comes last finds the lock taken. It is less than the time
// between two ticks of most jobs. A job that ticks more often would skip ticks: it needs less.
const DefaultMinHold = 5 * time.Second

// Locker is what gocron asks before it runs a job. It is for gocron.WithDistributedLocker
// and gocron.WithDistributedJobLocker. Several schedulers of a process may share one.
type Locker struct {
	locks  locker.Locker
	answer time.Duration // how long the store may take to grant a lock

	mu   sync.Mutex
	runs map[string]*locker.Lock // of the runs under way in this process, by job; nil: it is asked for
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker, which asks nobody until a job ticks. The options are those
// of the locks: [locker.WithMinHold] instead of [DefaultMinHold], [locker.WithTTL] for how
// long the lock of a dead instance stays taken, [locker.WithMaxHold] for jobs that may hang.
// Locks are exclusive; WithWait and WithGuard are refused.
func NewLocker(l locker.Locker, opts ...locker.Option) (*Locker, error) {
	locks := locker.With(l, opts...)
	req, err := driver.NewRequest(locks, "job")
	if err == nil && req.MinHold == 0 {
		locks = locker.With(locks, locker.WithMinHold(DefaultMinHold))
		req, err = driver.NewRequest(locks, "job")
	}
	before, _ := driver.NewRequest(l, "job")
	if err == nil && req.Wait != before.Wait { // of the Locker's own, TryLock makes nothing
		err = errors.New("WithWait would begin a run late: a run whose lock is taken is skipped")
	}
	if err != nil {
		return nil, fmt.Errorf("gocronlock: %w", err)
	}
	return &Locker{locks: locks, answer: req.MinHold / 2, runs: make(map[string]*locker.Lock)}, nil
}

// Lock implements gocron.Locker. It makes one attempt. While a run of the job that this
// Locker let begin goes on, also one that has lost its lock, the error is a [locker.ErrTaken]:
// it has no job run twice at a time in its process.
func (l *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	if !l.begin(name) {
		return nil, fmt.Errorf("gocronlock: job %q: %w: an earlier run of it goes on in this process", name, locker.ErrTaken)
	}
	defer l.ended(name, nil)
	ticked := driver.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, l.answer, fmt.Errorf("the store has not answered within %v, half of the minimum hold", l.answer))
	defer cancel()
	lock, err := l.locks.TryLock(ctx, name)
	if err != nil {
		return nil, err
	}
	if late := driver.Now().Sub(ticked); late > l.answer {
		err := fmt.Errorf("gocronlock: job %q: the process was paused: its lock came %v after the tick, and the limit is half of the minimum hold, %v", name, late, l.answer)
		if unlocked := lock.Unlock(ctx); unlocked != nil {
			return nil, fmt.Errorf("%w; %w", err, unlocked)
		}
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[name] = lock
	return run{l, lock}, nil
}

// begin reports whether no run of the job is under way, and notes that this one is.
func (l *Locker) begin(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, running := l.runs[name]
	if !running {
		l.runs[name] = nil
	}
	return !running
}

// ended forgets the run that has this lock, or none yet, and no later one.
func (l *Locker) ended(name string, lock *locker.Lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs[name] == lock {
		delete(l.runs, name)
	}
}

// lockOf returns the lock of the run under way, or nil.
func (l *Locker) lockOf(name string) *locker.Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runs[name]
}

// run is a run of a job.
type run struct {
	of   *Locker
	lock *locker.Lock
}

// Unlock implements gocron.Lock. The end of ctx does not stop the release.
func (r run) Unlock(ctx context.Context) error {
	defer r.of.ended(r.lock.Name(), r.lock)
	return r.lock.Unlock(ctx)
}

// Task is gocron.NewTask for a function that wants its lock. name is that of the job, as in
// gocron.WithName. The context of fn ends when the lock is lost, or when gocron ends the
// job's; its cause says which. If the lock is lost before fn has returned, gocron is told
// that the run has failed, with an error that is a [locker.ErrLost]. If the job has no lock
// of that name, fn is not called, and the error says so.
func (l *Locker) Task(name string, fn func(ctx context.Context, lock *locker.Lock) error) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		lock := l.lockOf(name)
		if lock == nil {
			return fmt.Errorf("gocronlock: job %q has no lock of its name: give it gocron.WithName(%[1]q), and its scheduler this Locker", name)
		}
		return under(ctx, lock, fn)
	})
}

// under calls fn if it has the lock, and says so if it was lost.
func under(ctx context.Context, lock *locker.Lock, fn func(ctx context.Context, lock *locker.Lock) error) error {
	ctx, cancel := lock.Bind(ctx)
	defer cancel()
	if lost := lock.Err(); lost != nil {
		return lost
	}
	err, lost := fn(ctx, lock), lock.Err()
	switch {
	case err == nil:
		return lost
	case lost == nil || errors.Is(err, lost):
		return err
	}
	return fmt.Errorf("%w; %w", err, lost)
}
