package driver_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/lockertest"
)

// A heartbeat renews inside the context of another lock, and that lock ends while the store
// has not answered yet, or has ended before:
//
//	Renew(b) in a's context    the request is under way
//	Unlock(a), or a is lost    the context ends, and its cause is a's *LostError
//	Renew(b)                   returns: the store has not said that b is lost
func TestTheEndOfOneLockIsNoLossOfAnotherThatIsRenewedInItsContext(t *testing.T) {
	ends := map[error]func(*testing.T, *lockertest.Locker, *locker.Lock){
		locker.ErrUnlocked: func(t *testing.T, _ *lockertest.Locker, a *locker.Lock) { mustUnlock(t, a) },
		locker.ErrLost:     func(_ *testing.T, l *lockertest.Locker, a *locker.Lock) { l.Lose(a.Name()) },
	}
	for why, end := range ends {
		for _, before := range []bool{true, false} {
			t.Run(why.Error(), func(t *testing.T) {
				play(t, func(t *testing.T, l *lockertest.Locker) {
					a, err := l.TryLock(t.Context(), "another")
					if err != nil {
						t.Fatal(err)
					}
					b := mustLock(t, l)
					within, cancel := a.Bind(t.Context())
					defer cancel()
					l.Link().Delay(100 * time.Millisecond)
					if before {
						end(t, l, a)
					}
					renewed := make(chan error, 1)
					go func() { renewed <- b.Renew(within) }()
					synctest.Wait()
					if !before {
						end(t, l, a)
					}
					if err := <-renewed; !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
						t.Errorf("Renew in a context that ended with another lock: %v", err)
					}
					if err := b.Err(); err != nil {
						t.Errorf("another lock has ended, and %v", err)
					}
					time.Sleep(3 * locker.DefaultTTL)
					l.Link().Delay(0)
					mustUnlock(t, b)
				})
			})
		}
	}
}

// The first goroutine of a group was told that a lock is taken, which ends the context of
// the others: one has asked a silent store for another lock, a third waits for its answer.
func TestTakenInTheCauseOfAContextIsNotTheStoresWord(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		ctx, cancel := context.WithCancelCause(t.Context())
		l.Link().Cut()
		front, behind, third := asking(ctx, l), asking(ctx, l), trying(t.Context(), l)
		synctest.Wait()
		cancel(locker.ErrTaken)
		time.Sleep(confirmTime)
		for _, w := range []<-chan outcome{front, behind} {
			if err := settled(t, w).err; !errors.Is(err, locker.ErrUnavailable) || !errors.Is(err, context.Canceled) {
				t.Errorf("nobody has said that the lock is taken: %v", err)
			}
		}
		pending(t, third)
		l.Link().Heal()
		time.Sleep(time.Minute)
		failed(t, third, locker.ErrUnavailable, locker.ErrTaken)
	})
}

// curious is a context with methods that ask a lock.
type curious struct {
	context.Context
	lock *locker.Lock
}

func (c curious) ask()                        { _, _ = c.lock.Err(), c.lock.Deadline() }
func (c curious) Err() error                  { c.ask(); return c.Context.Err() }
func (c curious) Done() <-chan struct{}       { c.ask(); return c.Context.Done() }
func (c curious) Deadline() (time.Time, bool) { c.ask(); return c.Context.Deadline() }
func (c curious) Value(key any) any           { c.ask(); return c.Context.Value(key) }

// Goal: no method of a user's context is called under the Locker's mutex, which Err of its
// locks needs. In real time: a bubble takes a mutex that is never unlocked for progress.
func TestTheMethodsOfAContextMayAskALock(t *testing.T) {
	l := lockertest.New()
	held, err := l.TryLock(t.Context(), "held")
	if err != nil {
		t.Fatal(err)
	}
	others, err := l.Another().TryLock(t.Context(), "taken")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		short := func(d time.Duration) context.Context {
			ctx, cancel := context.WithTimeout(context.Background(), d)
			context.AfterFunc(ctx, cancel)
			return curious{ctx, held}
		}
		if _, err := l.TryLock(short(time.Minute), "taken"); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("TryLock of a name that is taken: %v", err)
		}
		front := make(chan error, 1)
		go func() {
			_, err := l.Lock(short(50*time.Millisecond), "taken")
			front <- err
		}()
		for _, d := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond} {
			if _, err := l.Lock(short(d), "taken"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Lock of a name that is taken: %v", err)
			}
		}
		<-front
		l.Link().Cut()
		defer l.Link().Heal()
		_ = held.Renew(short(20 * time.Millisecond))
		if _, err := l.Lock(short(20*time.Millisecond), "silent"); !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("Lock on a silent store: %v", err)
		}
		if _, err := l.Inspect(short(20*time.Millisecond), "silent"); !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("Inspect on a silent store: %v", err)
		}
	}()
	select {
	case <-done:
		mustUnlock(t, held)
		mustUnlock(t, others)
	case <-time.After(30 * time.Second):
		t.Fatal("the Locker stands still while a context's method asks a lock")
	}
}

// An hour after the store fell silent nobody knows whether the lock is taken: its holder's
// lease is long over.
func TestTakenIsForgottenWhenTheStoreFallsSilent(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		held := mustLock(t, l.Another())
		patient := asking(t.Context(), l)
		synctest.Wait()
		l.Link().Cut()
		time.Sleep(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		behind, once := asking(ctx, l), trying(t.Context(), l)
		time.Sleep(time.Minute)
		failed(t, behind, locker.ErrUnavailable, locker.ErrTaken)
		failed(t, once, locker.ErrUnavailable, locker.ErrTaken)
		pending(t, patient)
		l.Link().Heal()
		time.Sleep(time.Second + time.Second/2) // it asks again, and is told so
		failed(t, trying(t.Context(), l), locker.ErrTaken)
		mustUnlock(t, held)
		time.Sleep(time.Minute)
		mustUnlock(t, granted(t, patient))
	})
}

// Others read. A writer's try is told that the lock is taken, and a reader's try, which came
// while that was asked, is another question.
func TestWhatAWriterWasToldIsNoAnswerForAReader(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		others := mustLock(t, l.Another(), locker.WithShared())
		l.Link().Delay(time.Second)
		writer := trying(t.Context(), l)
		synctest.Wait()
		waits, reader, second := asking(t.Context(), l, locker.WithShared()), trying(t.Context(), l, locker.WithShared()), trying(t.Context(), l)
		time.Sleep(2*time.Second + time.Millisecond)
		failed(t, writer, locker.ErrTaken)
		failed(t, second, locker.ErrTaken)
		time.Sleep(10 * time.Second)
		l.Link().Delay(0)
		mustUnlock(t, granted(t, waits))
		mustUnlock(t, granted(t, reader))
		mustUnlock(t, others)
	})
}

// Without renewal a lock ends with its TTL, unless its holder calls Renew, and not another
// reader of the process.
func TestReaderWithoutRenewalDoesNotLiveOnAnothersRenewals(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		kind := []locker.Option{locker.WithShared(), locker.WithoutRenewal()}
		renews, leaves := mustLock(t, l, kind...), mustLock(t, l, kind...)
		for range 50 {
			time.Sleep(locker.DefaultTTL / 2)
			if err := renews.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := leaves.Err(); !errors.Is(err, locker.ErrLost) {
			t.Errorf("25 TTLs after it was granted, a reader's lock without renewal says %v", err)
		}
		mustUnlock(t, renews)
	})
}
