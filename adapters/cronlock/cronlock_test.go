package cronlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/lockertest"
)

// journal is a logger that keeps what it is told.
type journal struct {
	mu    sync.Mutex
	infos []string
	errs  []error
}

func (j *journal) Info(msg string, about ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.infos = append(j.infos, fmt.Sprintln(append([]any{msg}, about...)...))
}

func (j *journal) Error(err error, _ string, _ ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.errs = append(j.errs, err)
}

// want checks what has been told since the last want: a number of skips, and errors.
func (j *journal) want(t *testing.T, skips int, errs ...error) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.infos) != skips || len(j.errs) != len(errs) {
		t.Errorf("told %q and %v, want %d skips and %v", j.infos, j.errs, skips, errs)
	}
	for _, info := range j.infos {
		if !strings.Contains(info, "report") {
			t.Errorf("%q does not name the job", info)
		}
	}
	for i, want := range errs[:min(len(errs), len(j.errs))] {
		if !errors.Is(j.errs[i], want) {
			t.Errorf("told %v, want %v", j.errs[i], want)
		}
	}
	j.infos, j.errs = nil, nil
}

// machine is one of those that share the job "report".
type machine struct {
	cron.Job
	journal
	locks *lockertest.Locker
	runs  int
}

// newMachine returns one whose wrapped job does what it is given, which may be nothing.
func newMachine(t *testing.T, locks *lockertest.Locker, does func(), opts ...locker.Option) *machine {
	t.Helper()
	m := &machine{locks: locks}
	wrap, err := NewWrapper(locks, "report", m, opts...)
	if err != nil {
		t.Fatal(err)
	}
	m.Job = wrap(cron.FuncJob(func() {
		m.runs++
		if does != nil {
			does()
		}
	}))
	return m
}

func TestAShortRunKeepsTheOthersOutForTheMinimumHold(t *testing.T) {
	for hold, opts := range map[time.Duration][]locker.Option{DefaultMinHold: nil, time.Minute: {locker.WithMinHold(time.Minute)}} {
		synctest.Test(t, func(t *testing.T) {
			locks := lockertest.New()
			a, b := newMachine(t, locks, nil, opts...), newMachine(t, locks.Another(), nil, opts...)
			a.Run()
			time.Sleep(hold - time.Millisecond)
			b.Run()
			a.Run() // its clock has stepped back
			a.want(t, 1)
			b.want(t, 1)
			time.Sleep(time.Millisecond)
			b.Run()
			b.want(t, 0)
			if a.runs != 1 || b.runs != 1 {
				t.Errorf("%d and %d runs", a.runs, b.runs)
			}
		})
	}
}

// Goal: a request that is under way for longer than the others are kept out does not run the
// job once more, and one that is not has all the time that there is.
func TestALockThatTakesTooLongIsNotTaken(t *testing.T) {
	for hold, opts := range map[time.Duration][]locker.Option{DefaultMinHold: nil, 8 * time.Second: {locker.WithMinHold(8 * time.Second)}} {
		synctest.Test(t, func(t *testing.T) {
			locks := lockertest.New()
			a, late := newMachine(t, locks, nil, opts...), newMachine(t, locks.Another(), nil, opts...)
			late.locks.Link().Delay(hold + time.Second)
			a.Run()
			began := time.Now()
			late.Run()
			if took := time.Since(began); took < hold/2 || took > hold*3/4 || late.runs > 0 {
				t.Errorf("with a minimum hold of %v it took %v, with %d runs", hold, took, late.runs)
			}
			late.want(t, 0, locker.ErrUnavailable)
			late.locks.Link().Delay(0)
			_ = late.locks.Close() // waits for clean-ups
		})
	}
}

func TestARunThatIsLongKeepsItsLockAndIsNotRunBesideItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		a, b := newMachine(t, locks, func() { time.Sleep(time.Hour) }), newMachine(t, locks.Another(), nil)
		go a.Run()
		time.Sleep(59 * time.Minute)
		a.Run()
		b.Run()
		a.want(t, 1)
		b.want(t, 1)
		time.Sleep(2 * time.Minute)
		b.Run()
		a.want(t, 0)
		b.want(t, 0)
		if a.runs != 1 || b.runs != 1 {
			t.Errorf("%d and %d runs", a.runs, b.runs)
		}
	})
}

// Goal: what the package says of a loss. Another machine may run the job, this one does not
// run it beside itself, and the logger hears of it.
func TestAWrappedJobWhoseLockIsLostRunsOnAndTheLoggerHearsOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		other := newMachine(t, locks.Another(), nil)
		var a *machine
		a = newMachine(t, locks, func() {
			locks.Lose("report")
			other.Run()
			time.Sleep(DefaultMinHold)
			if a.runs == 1 {
				a.Run()
			}
			a.want(t, 1)
		})
		a.Run()
		a.want(t, 0, locker.ErrLost)
		other.want(t, 0)
		if a.runs != 1 || other.runs != 1 {
			t.Errorf("%d and %d runs", a.runs, other.runs)
		}
	})
}

func TestAJobHasItsLockAndHearsOfItsLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, told := lockertest.New(), new(journal)
		type key struct{}
		stopping := errors.New("stopping")
		ctx, stop := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
		sorry := errors.New("sorry")
		var tokens []fencing.Token
		job, err := NewJob(ctx, locks, "report", func(ctx context.Context, lock *locker.Lock) error {
			tokens = append(tokens, lock.Token())
			time.Sleep(DefaultMinHold) // longer than the store may take to answer
			if ctx.Err() != nil || ctx.Value(key{}) != "value" {
				t.Errorf("the context has ended with %v, or has no value", ctx.Err())
			}
			switch len(tokens) {
			case 1:
				return sorry
			case 2:
				locks.Lose("report")
			default:
				stop(stopping)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}, told)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []error{sorry, locker.ErrLost, stopping} {
			job.Run()
			told.want(t, 0, want)
		}
		job.Run() // which begins after the end of ctx
		told.want(t, 1)
		if len(tokens) != 3 || tokens[0] >= tokens[1] || tokens[1] >= tokens[2] {
			t.Errorf("tokens %v", tokens)
		}
	})
}

// Goal: a skip may be silent, but not one that may have left a lock in the store.
func TestAProgramThatStopsDuringARequestHearsThatItsOutcomeIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, told := lockertest.New(), new(journal)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		job, err := NewJob(ctx, locks, "report", func(context.Context, *locker.Lock) error { t.Error("it has run"); return nil }, told)
		if err != nil {
			t.Fatal(err)
		}
		locks.Link().Delay(DefaultMinHold)
		job.Run()
		told.want(t, 0, locker.ErrOutcomeUnknown)
		locks.Link().Delay(0)
		_ = locks.Close() // waits for clean-ups
	})
}

func TestAPanicGoesOnAndTheLockIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		m := newMachine(t, locks, func() { panic("a defect") })
		for range 2 {
			func() {
				defer func() {
					if p := recover(); p != "a defect" {
						t.Errorf("the panic is %v", p)
					}
				}()
				m.Run()
			}()
			time.Sleep(DefaultMinHold)
		}
		m.want(t, 0)
	})
}

func TestAStoreThatIsAwayIsAnErrorAndNoRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, lockertest.New(), nil)
		m.locks.Link().Refuse(errors.New("no permission"))
		m.Run()
		m.locks.Link().Refuse(nil)
		_ = m.locks.Close() // waits for clean-ups
		m.Run()
		m.want(t, 0, locker.ErrUnavailable, locker.ErrClosed)
		if m.runs != 0 {
			t.Error("it has run")
		}
	})
}

func TestWhatDoesNotFitIsRefused(t *testing.T) {
	for what, make := range map[string]func() (any, error){
		"is empty":     func() (any, error) { return NewWrapper(lockertest.New(), "", cron.DiscardLogger) },
		"zero byte":    func() (any, error) { return NewJob(t.Context(), lockertest.New(), "a\x00b", nil, cron.DiscardLogger) },
		"logger":       func() (any, error) { return NewWrapper(lockertest.New(), "report", nil) },
		"WithWait":     func() (any, error) { return refused(locker.WithWait(time.Second)) },
		"WithGuard":    func() (any, error) { return refused(locker.WithGuard(noGuard{})) },
		"WithShared":   func() (any, error) { return refused(locker.WithShared()) },
		"WithSlots":    func() (any, error) { return refused(locker.WithSlots(2)) },
		"minimum hold": func() (any, error) { return refused(locker.WithMaxHold(time.Second)) },
	} {
		if _, err := make(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func refused(opt locker.Option) (cron.JobWrapper, error) {
	return NewWrapper(lockertest.New(), "report", cron.DiscardLogger, opt)
}

// noGuard is a guard that nobody asks.
type noGuard struct{}

func (noGuard) Check(context.Context, string, fencing.Token) error { return nil }

// drowsy is a Locker whose process is paused when the lock has been granted.
type drowsy struct {
	locker.Locker
	pause time.Duration
}

func (d drowsy) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	lock, err := d.Locker.TryLock(ctx, name, opts...)
	time.Sleep(d.pause)
	return lock, err
}

// The other machines count the minimum hold from the grant: after a pause of nearly all of it
// the next run would begin right behind this one. In real time, as driver.Now counts it.
func TestAPauseBetweenTheGrantAndTheRunSkipsTheRun(t *testing.T) {
	const hold = 200 * time.Millisecond
	var told journal
	wrap, err := NewWrapper(drowsy{lockertest.New(), hold * 3 / 4}, "report", &told, locker.WithMinHold(hold))
	if err != nil {
		t.Fatal(err)
	}
	wrap(cron.FuncJob(func() { t.Error("the job runs late") })).Run()
	if len(told.errs) != 1 || !strings.Contains(told.errs[0].Error(), "the process was paused") {
		t.Errorf("the logger was told %v", told.errs)
	}
}

// A user's default for all locks outranks the adapter's, and a default wait means nothing to a TryLock.
func TestTheDefaultsOfTheLockerCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		l := locker.With(locks, locker.WithMinHold(time.Minute), locker.WithWait(time.Second))
		job, err := NewJob(t.Context(), l, "report", func(context.Context, *locker.Lock) error { return nil }, cron.DiscardLogger)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		job.Run()
		lock, err := locks.Another().Lock(t.Context(), "report")
		if err != nil {
			t.Fatal(err)
		}
		if held := time.Since(began); held < time.Minute {
			t.Errorf("the lock was free after %v", held)
		}
		_ = lock.Unlock(t.Context())
	})
}
