package election_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/election"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/lockertest"
)

// Goal: an option for each wait is none for the candidacy.
func TestACandidateWhoseWaitIsOverStandsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		locks.Take("leader")
		a := start(t, locks, nil, locker.WithWait(time.Second))
		time.Sleep(time.Minute)
		locks.Free("leader")
		within(t, 10*time.Second, "it leads", a.IsLeader)
		end(t, a)
	})
}

// losing is a guard that takes so long over its first claim that the lock is lost.
type losing struct {
	fencing.Memory
	locks *lockertest.Locker
	lost  atomic.Bool
}

func (l *losing) Check(ctx context.Context, resource string, token fencing.Token) error {
	if l.lost.CompareAndSwap(false, true) {
		l.locks.Lose("leader")
	}
	return l.Memory.Check(ctx, resource, token)
}

// away is a guard whose store refuses its first connections.
type away struct {
	fencing.Memory
	left atomic.Int32
}

func (a *away) Check(ctx context.Context, resource string, token fencing.Token) error {
	if a.left.Add(-1) >= 0 {
		return errors.New("connection refused")
	}
	return a.Memory.Check(ctx, resource, token)
}

func TestACandidateWhoseGuardIsAwayStandsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := new(away)
		guard.left.Store(3)
		a := start(t, lockertest.New(), nil, locker.WithGuard(guard, "leader"))
		within(t, time.Minute, "it leads", a.IsLeader)
		end(t, a)
	})
}

var errNoTable = errors.New("the table of fences is missing")

// refusing is a guard that nobody has set up: it refuses until somebody does.
type refusing struct{}

func (refusing) Check(context.Context, string, fencing.Token) error { return errNoTable }

// Goal: a candidate that never leads, because its guard refuses, does not say so to nobody. Method:
// it stands for a minute, and observers are told of each claim that fails.
func TestObserversHearWhyATermDoesNotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, lockertest.New(), nil, locker.WithGuard(refusing{}, "leader"))
		o := observe(t, a.Candidate, 0)
		time.Sleep(time.Minute)
		end(t, a)
		heard := 0
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, x := range o.all {
			if x.err == nil {
				continue
			}
			heard++
			if !errors.Is(x.err, errNoTable) || x.leader != (election.Leader{}) {
				t.Errorf("an observer hears of the leader %v: %v", x.leader, x.err)
			}
		}
		if heard < 10 {
			t.Errorf("the guard has refused a term every few seconds for a minute, and an observer heard of it %d times: %v", heard, o.all)
		}
	})
}

// Goal: a service that stops, and has never led, hears why: also where it stops while the candidate pauses, as it mostly does then.
func TestRunSaysWhyItsLastAttemptFailed(t *testing.T) {
	for why, candidacy := range map[error]func(locks *lockertest.Locker) []locker.Option{
		locker.ErrUnavailable: func(locks *lockertest.Locker) []locker.Option { locks.Link().Cut(); return nil },
		errNoTable: func(*lockertest.Locker) []locker.Option {
			return []locker.Option{locker.WithGuard(refusing{}, "leader")}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			locks := lockertest.New()
			a := start(t, locks, nil, candidacy(locks)...)
			time.Sleep(time.Minute)
			synctest.Wait() // it pauses
			a.stop(errStopped)
			if err := <-a.done; !errors.Is(err, errStopped) || !errors.Is(err, why) {
				t.Errorf("Run returns %v, and its last attempt met %v", err, why)
			}
			locks.Link().Heal()
			_ = locks.Close() // waits for clean-ups
		})
	}
}

// hanging is a guard that does not answer before its context ends.
type hanging struct{}

func (hanging) Check(ctx context.Context, _ string, _ fencing.Token) error {
	<-ctx.Done()
	return ctx.Err()
}

// Goal: Run returns why its context ended also if that happens while the resources are claimed. A
// guard's client returns the context's error, without its cause.
func TestRunReturnsTheCauseOfAContextThatEndsDuringTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, lockertest.New(), nil, locker.WithGuard(hanging{}, "leader"))
		synctest.Wait() // it claims
		end(t, a)
	})
}

func TestACandidateThatLosesItsTermBeforeItBeginsStandsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		guard := &losing{locks: locks}
		a := start(t, locks, nil, locker.WithGuard(guard, "leader"))
		within(t, 10*time.Second, "it leads", func() bool { return guard.lost.Load() && a.IsLeader() })
		end(t, a)
	})
}

func TestRunEndsAtOnceBetweenTwoTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		a := start(t, locks, nil)
		within(t, 10*time.Second, "it leads", a.IsLeader)
		locks.Lose("leader")
		synctest.Wait() // Run pauses
		began := time.Now()
		end(t, a)
		if took := time.Since(began); took > 0 {
			t.Errorf("Run went on for %v", took)
		}
	})
}

// Standing again would find the same until somebody who has made a mistake mends it.
func TestANameThatIsHeldInAnotherWayEndsTheCandidacy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		slot, err := locks.Another().TryLock(t.Context(), "leader", locker.WithSlots(2))
		if err != nil {
			t.Fatal(err)
		}
		a := start(t, locks, nil)
		within(t, 10*time.Second, "Run has returned", func() bool { return len(a.done) > 0 })
		if err := <-a.done; !errors.Is(err, locker.ErrMismatch) {
			t.Errorf("Run returns %v", err)
		}
		if err := errors.Join(slot.Unlock(t.Context()), locks.Close()); err != nil {
			t.Error(err)
		}
	})
}
