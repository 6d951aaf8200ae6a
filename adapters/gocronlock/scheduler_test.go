package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/election"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/lockertest"
)

// noGuard is a guard that nobody asks.
type noGuard struct{}

func (noGuard) Check(context.Context, string, fencing.Token) error { return nil }

// patience bounds every wait for an event.
const patience = 60 * time.Second

// next returns what comes.
func next[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatal("gave up waiting")
	}
	return v
}

// scheduler starts a scheduler, and returns a function that runs a job of it now, and how
// runs have ended: what the task has returned, or why there was no run.
func scheduler(t *testing.T, task gocron.Task, name string, opts ...gocron.SchedulerOption) (now func(), ended <-chan error) {
	t.Helper()
	s, err := gocron.NewScheduler(opts...)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	ends := make(chan error, 100)
	failed := func(_ uuid.UUID, _ string, err error) { ends <- err }
	return func() {
		t.Helper()
		_, err := s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), task, gocron.WithName(name), gocron.WithEventListeners(
			gocron.AfterLockError(failed), gocron.AfterJobRunsWithError(failed), gocron.AfterJobRuns(func(uuid.UUID, string) { ends <- nil })))
		if err != nil {
			t.Fatal(err)
		}
	}, ends
}

func TestATaskHasTheLockOfItsRunAndHearsOfItsLoss(t *testing.T) {
	t.Parallel()
	locks := lockertest.New()
	l := newLocker(t, locks, locker.WithMinHold(10*time.Second))
	tokens := make(chan fencing.Token, 1)
	now, ended := scheduler(t, l.Task("report", func(ctx context.Context, lock *locker.Lock) error {
		tokens <- lock.Token()
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, locker.ErrLost) {
			t.Errorf("the context ends with %v", cause)
		}
		return nil
	}), "report", gocron.WithDistributedLocker(l))
	now()
	if token := next(t, tokens); token == 0 {
		t.Error("no token")
	}
	now()
	if err := next(t, ended); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("beside the run, another one ends with %v", err)
	}
	locks.Lose("report")
	if err := next(t, ended); !errors.Is(err, locker.ErrLost) {
		t.Errorf("gocron hears %v", err)
	}
}

func TestATaskThatHasNoLockIsNotRun(t *testing.T) {
	t.Parallel()
	l := newLocker(t, lockertest.New())
	task := l.Task("report", func(context.Context, *locker.Lock) error {
		t.Error("it has run")
		return nil
	})
	for what, opts := range map[string][]gocron.SchedulerOption{
		"report":        nil,
		"another name":  {gocron.WithDistributedLocker(l)},
		"report, again": {gocron.WithDistributedLocker(newLocker(t, lockertest.New()))},
	} {
		now, ended := scheduler(t, task, what, opts...)
		now()
		if err := next(t, ended); err == nil || errors.Is(err, locker.ErrTaken) {
			t.Errorf("%s: the run has ended with %v", what, err)
		}
	}
}

// Method: the schedulers share a Locker, or have one each. In both, one holds while the other
// asks.
func TestTwoSchedulersOfAProcessDoNotRunAJobAtOnce(t *testing.T) {
	t.Parallel()
	locks := lockertest.New()
	one := newLocker(t, locks)
	for _, other := range []*Locker{one, newLocker(t, locks)} {
		running, goOn := make(chan struct{}), make(chan struct{})
		long := gocron.NewTask(func() { running <- struct{}{}; <-goOn })
		now, ended := scheduler(t, long, "report", gocron.WithDistributedLocker(one))
		nowToo, endedToo := scheduler(t, long, "report", gocron.WithDistributedLocker(other))
		now()
		next(t, running)
		nowToo()
		if err := next(t, endedToo); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("the other scheduler's run has ended with %v", err)
		}
		close(goOn)
		if err := next(t, ended); err != nil {
			t.Error(err)
		}
		locks.Free("report") // for the rest of the minimum hold
	}
}

func TestWhatAFunctionReturnsIsToldWithTheLossAndBoundToTheLock(t *testing.T) {
	locks := lockertest.New()
	sorry := errors.New("sorry")
	for name, c := range map[string]struct {
		lose, why bool
		fails     error
		want      []error
	}{
		"ends well":           {},
		"fails":               {fails: sorry, want: []error{sorry}},
		"is lost":             {lose: true, want: []error{locker.ErrLost}},
		"is lost and fails":   {lose: true, fails: sorry, want: []error{locker.ErrLost, sorry}},
		"is lost and says so": {lose: true, why: true, want: []error{locker.ErrLost}},
	} {
		lock, err := locks.TryLock(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		var bound context.Context
		err = under(t.Context(), lock, func(ctx context.Context, _ *locker.Lock) error {
			bound = ctx
			if c.lose {
				locks.Lose(name)
				<-ctx.Done()
			}
			if c.why {
				return context.Cause(ctx)
			}
			return c.fails
		})
		if bound.Err() == nil {
			t.Errorf("%s: its context goes on after the run", name)
		}
		if text := fmt.Sprint(err); strings.Contains(text, "%!") || strings.Count(text, fmt.Sprint(lock.Err())) > 1 {
			t.Errorf("%s: the error reads %q", name, text)
		}
		if len(c.want) == 0 && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range c.want {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		}
		_ = lock.Unlock(t.Context())
		if err := under(t.Context(), lock, func(context.Context, *locker.Lock) error { t.Error("called"); return nil }); !errors.Is(err, locker.ErrLost) && !errors.Is(err, locker.ErrUnlocked) {
			t.Errorf("without the lock: %v", err)
		}
	}
}

// newElector returns an Elector that runs a scheduler with a job until stop is called.
func newElector(t *testing.T, locks locker.Locker, fn func(ctx context.Context, term *locker.Lock) error) (e *Elector, stop func(), done <-chan error) {
	t.Helper()
	c, err := election.New(locks, "scheduler")
	if err != nil {
		t.Fatal(err)
	}
	e = NewElector(c)
	s, err := gocron.NewScheduler(gocron.WithDistributedElector(e))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.NewJob(gocron.DurationJob(time.Millisecond), e.Task(fn), gocron.WithName("report"), gocron.WithSingletonMode(gocron.LimitModeReschedule)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ends := make(chan error, 1)
	go func() { ends <- e.Run(ctx, s) }()
	return e, stop, ends
}

func wantCanceled(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, context.Canceled) || errors.Is(err, gocron.ErrStopJobsTimedOut) || strings.Contains(err.Error(), "shutdown") {
		t.Errorf("Run returns %v", err)
	}
}

// Goal: whoever stops leads until its last job has ended.
func TestASchedulerThatIsToldToStopResignsAfterItsLastJob(t *testing.T) {
	t.Parallel()
	locks := lockertest.New()
	terms := make(chan *locker.Lock)
	stays := func(ctx context.Context, term *locker.Lock) error {
		terms <- term
		<-ctx.Done() // as it is shut down
		select {
		case <-term.Context().Done():
			t.Error("it has resigned while the job goes on")
		case <-time.After(300 * time.Millisecond): // no event says that it does not
		}
		terms <- term
		return nil
	}
	_, stop, done := newElector(t, locks, stays)
	first := next(t, terms)
	e, stopNext, doneNext := newElector(t, locks.Another(), stays)
	if e.IsLeader(t.Context()) == nil || first.Token() == 0 {
		t.Errorf("two lead, the first under token %d", first.Token())
	}
	stop()
	select {
	case <-terms:
	case err := <-done:
		t.Fatalf("Run returns %v before the job has", err)
	case <-time.After(patience):
		t.Fatal("the job does not end")
	}
	wantCanceled(t, next(t, done))
	if second := next(t, terms); second.Token() <= first.Token() || first.Err() == nil {
		t.Errorf("token %d after %d", second.Token(), first.Token())
	}
	stopNext()
	next(t, terms)
	wantCanceled(t, next(t, doneNext))
}

func TestAJobHearsThatItsTermIsLost(t *testing.T) {
	t.Parallel()
	locks := lockertest.New()
	began, causes := make(chan struct{}, 1), make(chan error)
	e, stop, done := newElector(t, locks, func(ctx context.Context, _ *locker.Lock) error {
		select {
		case began <- struct{}{}:
			<-ctx.Done()
			causes <- context.Cause(ctx)
		default: // a later run
		}
		return nil
	})
	next(t, began)
	began <- struct{}{}
	locks.Lose("scheduler")
	if term := e.candidate.Term(); term != nil && term.Token() == 1 {
		t.Error("it leads without its term")
	}
	if cause := next(t, causes); !errors.Is(cause, locker.ErrLost) {
		t.Errorf("the context ends with %v", cause)
	}
	stop()
	wantCanceled(t, next(t, done))
}

func TestATaskOfOneWhoDoesNotLeadIsNotRun(t *testing.T) {
	t.Parallel()
	c, err := election.New(lockertest.New(), "scheduler")
	if err != nil {
		t.Fatal(err)
	}
	now, ended := scheduler(t, NewElector(c).Task(func(context.Context, *locker.Lock) error { t.Error("it has run"); return nil }), "report")
	now()
	if err := next(t, ended); err != errNoLeader {
		t.Errorf("the run has ended with %v", err)
	}
}

func TestRunEndsWithTheLockerAndShutsTheSchedulerDown(t *testing.T) {
	t.Parallel()
	locks := lockertest.New()
	c, err := election.New(locks, "scheduler")
	if err != nil {
		t.Fatal(err)
	}
	s, err := gocron.NewScheduler(gocron.WithDistributedElector(NewElector(c)))
	if err != nil {
		t.Fatal(err)
	}
	job, err := s.NewJob(gocron.DurationJob(time.Hour), gocron.NewTask(func() {}))
	if err != nil {
		t.Fatal(err)
	}
	_ = locks.Close()
	if err := NewElector(c).Run(t.Context(), s); !errors.Is(err, locker.ErrClosed) {
		t.Errorf("Run returns %v", err)
	}
	if err := job.RunNow(); err == nil {
		t.Error("the scheduler runs on")
	}
}

// Goal: a job that hangs does not keep its instance leading, and whoever called Run hears of
// it, and why Run has ended.
func TestAJobThatOutlastsTheStopTimeoutIsToldAndEndsTheTerm(t *testing.T) {
	t.Parallel()
	c, err := election.New(lockertest.New(), "scheduler")
	if err != nil {
		t.Fatal(err)
	}
	e := NewElector(c)
	s, err := gocron.NewScheduler(gocron.WithDistributedElector(e), gocron.WithStopTimeout(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	began, hangs := make(chan *locker.Lock, 1), make(chan struct{})
	defer close(hangs)
	_, err = s.NewJob(gocron.DurationJob(time.Millisecond), e.Task(func(_ context.Context, term *locker.Lock) error {
		began <- term
		<-hangs
		return nil
	}), gocron.WithSingletonMode(gocron.LimitModeReschedule))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	done, stopping := make(chan error, 1), errors.New("stopping")
	go func() { done <- e.Run(ctx, s) }()
	term := next(t, began)
	stop(stopping)
	if err := next(t, done); !errors.Is(err, stopping) || !strings.Contains(err.Error(), "shutdown: gocron: timed out") {
		t.Errorf("Run returns %v", err)
	}
	if term.Err() == nil {
		t.Error("the term goes on")
	}
}
