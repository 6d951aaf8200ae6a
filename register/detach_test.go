package register_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/lockertest"
	"github.com/lockstile/locker/register/registertest"
)

func detach(t *testing.T, lk *locker.Lock) locker.Handle {
	t.Helper()
	h, err := lk.Detach(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func resume(t *testing.T, l locker.Locker, h locker.Handle, opts ...locker.Option) *locker.Lock {
	t.Helper()
	lk, err := locker.Resume(soon(t), l, h, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lk
}

// usedUp checks that nobody can resume a lock.
func usedUp(t *testing.T, l locker.Locker, h locker.Handle) {
	t.Helper()
	lk, err := locker.Resume(soon(t), l, h)
	if !errors.Is(err, locker.ErrLost) {
		t.Errorf("resumed: %v", err)
	}
	if lk != nil {
		unlock(t, lk)
	}
}

func TestLockGoesOnInAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(registertest.Memory)
		a, b, c := process(t, m, aged), process(t, m, aged), process(t, m, aged)
		held := lock(t, a, "a", locker.WithTTL(3*time.Second))
		waiter := make(chan *locker.Lock)
		go func() { waiter <- lock(t, b, "a") }()
		time.Sleep(time.Second)

		h := detach(t, held)
		if err := held.Err(); !errors.Is(err, locker.ErrUnlocked) || held.Context().Err() == nil {
			t.Errorf("it is still believed in: %v", err)
		}
		if _, err := held.Detach(soon(t)); !errors.Is(err, locker.ErrUnlocked) {
			t.Errorf("detached again: %v", err)
		}
		unlock(t, held)
		time.Sleep(2 * time.Second)

		going := resume(t, c, h)
		if going.Token() <= held.Token() {
			t.Errorf("token %d after token %d", going.Token(), held.Token())
		}
		usedUp(t, a, h)
		time.Sleep(10 * time.Second) // it is renewed
		if info, err := a.Inspect(soon(t), "a"); err != nil || info.Token != going.Token() || info.Waiters != 1 {
			t.Errorf("%+v, %v", info, err)
		}
		unlock(t, going)
		next := <-waiter
		if next.Token() <= going.Token() {
			t.Errorf("token %d after token %d", next.Token(), going.Token())
		}
		usedUp(t, a, h)
		unlock(t, next)
	})
}

func TestDetachedLockEndsWithItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(registertest.Memory)
		a, b := process(t, m, aged), process(t, m, aged)
		began := time.Now()
		h := detach(t, lock(t, a, "a", locker.WithTTL(time.Second)))
		next := lock(t, a, "a") // also of its own process
		if took := time.Since(began); took < time.Second || took > 2*time.Second {
			t.Errorf("the next one has it after %v", took)
		}
		usedUp(t, b, h)
		unlock(t, next)
		usedUp(t, b, h)
	})
}

func renewByHandle(t *testing.T, l locker.Locker, h locker.Handle, opts ...locker.Option) {
	t.Helper()
	if err := locker.RenewHandle(soon(t), l, h, opts...); err != nil {
		t.Fatal(err)
	}
}

// renewsNothing checks that a handle is good for no renewal.
func renewsNothing(t *testing.T, l locker.Locker, h locker.Handle) {
	t.Helper()
	err := locker.RenewHandle(soon(t), l, h, locker.WithTTL(time.Hour))
	if lost, ok := errors.AsType[*locker.LostError](err); !ok || lost.Name != "a" || lost.Reason != locker.ReasonTakenOver {
		t.Errorf("renewed: %v", err)
	}
}

func TestLockThatWasDetachedIsRenewedByItsHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(registertest.Memory)
		a, b := process(t, m, aged), process(t, m, aged)
		held := lock(t, a, "a", locker.WithTTL(3*time.Second), locker.WithHolder("the first step"))
		h := detach(t, held)
		waiter := make(chan *locker.Lock)
		go func() {
			next, err := b.Lock(t.Context(), "a") // it waits for longer than other calls here
			if err != nil {
				t.Error(err)
			}
			waiter <- next
		}()
		for range 10 {
			time.Sleep(2 * time.Second)
			renewByHandle(t, process(t, m, aged), h) // which need not live on
		}
		if info, err := b.Inspect(soon(t), "a"); err != nil || info.Token != held.Token() || info.Holder != "the first step" {
			t.Errorf("%+v, %v", info, err)
		}
		renewByHandle(t, b, h, locker.WithTTL(time.Minute))
		time.Sleep(50 * time.Second)
		renewByHandle(t, locker.With(b, locker.WithTTL(time.Second), locker.WithHolder("of all steps")), h) // the TTL is the handle's
		time.Sleep(2 * time.Second)
		unlock(t, resume(t, a, h))
		unlock(t, <-waiter)
	})
}

func TestHandleThatIsUsedUpRenewsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(registertest.Memory)
		a, b := process(t, m, aged), process(t, m, aged)
		h := detach(t, lock(t, a, "a"))
		other := detach(t, resume(t, a, h, locker.WithTTL(2*time.Second)))
		renewsNothing(t, b, h)
		began := time.Now()
		next := lock(t, b, "a")
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("somebody else has the lock after %v", took)
		}
		renewsNothing(t, a, h)
		renewsNothing(t, a, other) // which has ended
		unlock(t, next)
		renewsNothing(t, a, h)
		h = detach(t, lock(t, a, "a"))
		if broken, err := b.Break(soon(t), "a"); err != nil || !broken {
			t.Error(broken, err)
		}
		renewsNothing(t, b, h)
		time.Sleep(time.Hour)
		if n := b.Remembered(); n > 0 {
			t.Errorf("%d names are remembered for a handle", n)
		}
	})
}

func TestRenewalByAHandleThatIsNotAnsweredCanBeTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{Store: new(registertest.Memory)}
		a, b := process(t, s, aged), process(t, s, aged)
		h := detach(t, lock(t, a, "a"))
		for range 3 {
			s.swap(func(string, string, []byte) (string, error) { return "", errLost })
			if err := locker.RenewHandle(soon(t), b, h); !errors.Is(err, locker.ErrUnavailable) || !errors.Is(err, errLost) || errors.Is(err, locker.ErrLost) {
				t.Errorf("renewed: %v", err)
			}
			s.swap(nil)
			renewByHandle(t, b, h)
		}
		silent := lockertest.New()
		h = detach(t, lock(t, silent, "a"))
		silent.Link().CutReplies()
		began := time.Now()
		if err := locker.RenewHandle(context.Background(), silent, h); !errors.Is(err, locker.ErrUnavailable) || time.Since(began) > 6*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// A process that only renews has not locked anything, and so not found out what the store is like.
func TestStoreThatIgnoresConditionsRenewsNoHandle(t *testing.T) {
	m := new(registertest.Memory)
	h := detach(t, lock(t, process(t, m, aged), "a"))
	l := process(t, careless{m, func(string) bool { return true }}, aged)
	if err := locker.RenewHandle(soon(t), l, h); !errors.Is(err, locker.ErrRefused) || !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("renewed: %v", err)
	}
	l = process(t, careless{m, func(string) bool { return true }}, aged)
	if err := locker.UnlockHandle(soon(t), l, h); !errors.Is(err, locker.ErrRefused) || !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("unlocked: %v", err)
	}
}

func TestWhatDoesNotGoWithARenewalByAHandleIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, new(registertest.Memory), aged)
		h := detach(t, lock(t, l, "a"))
		for what, opt := range map[string]locker.Option{
			"shared": locker.WithShared(), "a slot": locker.WithSlots(2), "maximum hold": locker.WithMaxHold(time.Minute), "minimum hold": locker.WithMinHold(time.Second),
			"validity": locker.WithMinValidity(time.Second), "no renewal": locker.WithoutRenewal(), "holder": locker.WithHolder("me"), "wait": locker.WithWait(time.Second),
			"observer": locker.WithObserver(func(locker.Event) {}), "guard": locker.WithGuard(&fencing.Memory{}, "r"),
		} {
			if err := locker.RenewHandle(soon(t), l, h, opt); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

func TestWhatNobodyCanAskByAHandleIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, new(registertest.Memory), aged)
		h := detach(t, lock(t, l, "a"))
		renew := func(ctx context.Context, l locker.Locker, h locker.Handle) error {
			return locker.RenewHandle(ctx, l, h)
		}
		calls := []func(context.Context, locker.Locker, locker.Handle) error{renew, locker.UnlockHandle}
		for _, ask := range calls {
			if err := ask(soon(t), locker.WithCounter(l, numbers(1), 0), h); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("with a counter: %v", err)
			}
		}
		over, cancel := context.WithCancelCause(soon(t))
		cancel(errLost)
		if err := renew(over, l, h); !errors.Is(err, errLost) || errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("renewed in a context that has ended: %v", err)
		}
		if err := locker.UnlockHandle(over, l, h); err != nil {
			t.Errorf("unlocked in a context that has ended: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		for _, ask := range calls {
			if err := ask(soon(t), l, h); !errors.Is(err, locker.ErrClosed) {
				t.Errorf("of a Locker that is closed: %v", err)
			}
		}
	})
}

func TestDetachThatIsNotAnsweredLeavesTheLockHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{Store: new(registertest.Memory)}
		l := process(t, s, aged)
		held := lock(t, l, "a")
		s.swap(func(string, string, []byte) (string, error) { return "", errLost })
		if _, err := held.Detach(soon(t)); !errors.Is(err, locker.ErrUnavailable) || !errors.Is(err, errLost) {
			t.Errorf("detached: %v", err)
		}
		s.swap(nil)
		if err := held.Err(); err != nil {
			t.Error(err)
		}
		unlock(t, held)
	})
}

// The interleaving: the store resumes a lock, and its answer is lost; or the request is lost. Whoever asked does not know which, and must be able to
// go on. Two processes that try again with what the error says must not both succeed.
func TestResumeWhoseAnswerIsLostCanBeTriedAgain(t *testing.T) {
	for _, done := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{Store: new(registertest.Memory)}
			a, b, c := process(t, s, aged), process(t, s, aged), process(t, s, aged)
			held := lock(t, a, "a")
			first := detach(t, held)
			h := first
			for range 6 {
				s.swap(func(name, version string, record []byte) (string, error) {
					if done {
						if _, err := s.Store.Swap(t.Context(), name, version, record); err != nil {
							t.Error(err)
						}
					}
					return "", errLost
				})
				_, err := locker.Resume(soon(t), b, h)
				var failed *locker.ResumeError
				if !errors.As(err, &failed) || !errors.Is(err, locker.ErrOutcomeUnknown) || !errors.Is(err, errLost) {
					t.Fatalf("done %v: %v", done, err)
				}
				if strings.Contains(err.Error(), string(failed.Handle)) {
					t.Errorf("the error shows the secret: %v", err)
				}
				h = failed.Handle
				s.swap(nil)
				renewByHandle(t, c, h) // in either case
			}
			going := resume(t, c, h)
			if going.Token() <= held.Token() {
				t.Errorf("token %d after token %d", going.Token(), held.Token())
			}
			usedUp(t, b, h)
			usedUp(t, b, first)
			unlock(t, going)
		})
	}
}

// The interleaving: one goroutine of a process waits for a lock that another one resumes. The waiter is in front of the line, and has an answer to
// wait for.
func TestWaiterOfTheSameProcessGetsTheLockThatWasResumedBesideIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(registertest.Memory)
		l := process(t, m, aged)
		held := lock(t, l, "a", locker.WithTTL(3*time.Second))
		var waiters [2]chan *locker.Lock
		for i := range waiters {
			waiters[i] = make(chan *locker.Lock)
			go func() { waiters[i] <- lock(t, l, "a", locker.WithTTL(3*time.Second)) }()
			time.Sleep(time.Second)
		}
		h := detach(t, held)
		time.Sleep(time.Second)
		going := resume(t, l, h)
		time.Sleep(10 * time.Second)
		one := func() {
			t.Helper()
			time.Sleep(time.Second)
			if info, err := l.Inspect(soon(t), "a"); err != nil || info.Waiters != 1 {
				t.Errorf("of a process, %d wait in the store: %v", info.Waiters, err)
			}
		}
		one()
		if err := going.Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := l.TryLock(soon(t), "a"); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("tried: %v", err)
		}
		h = detach(t, going)
		going = resume(t, l, h)
		one()
		unlock(t, going)
		last := going.Token()
		for _, waiter := range waiters {
			next := <-waiter
			if next.Token() <= last {
				t.Errorf("token %d after token %d", next.Token(), last)
			}
			last = next.Token()
			unlock(t, next)
		}
	})
}

// The interleaving: the client sends the first request of an attempt twice, and the second one is on its way for long. Meanwhile the lock was detached, resumed and given
// back. The request must not find it free.
func TestFirstRequestThatComesAfterTheLockWasResumedIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{Store: new(registertest.Memory)}
		a, b := process(t, s, aged), process(t, s, aged)
		var late func() error
		s.swap(func(name, version string, record []byte) (string, error) {
			s.swap(nil)
			late = func() error { _, err := s.Store.Swap(t.Context(), name, version, record); return err }
			return s.Store.Swap(t.Context(), name, version, record)
		})
		unlock(t, resume(t, b, detach(t, lock(t, a, "a"))))
		if err := late(); err == nil {
			t.Error("it has the lock")
		}
	})
}

func TestHandleThatIsNoneOfThisBackendIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, other := process(t, new(registertest.Memory), aged), lockertest.New()
		h := detach(t, lock(t, other, "a"))
		for text, says := range map[string]string{
			"":                   "the handle is empty",
			"hunter2":            "this is no handle",
			"lockstile2-abc":     "another version",
			string(h[:len(h)-3]): "damaged",
			string(h) + "AAAA":   "damaged",
			"lockstile1-":        "damaged",
			string(h):            "a lock on lockertest, and this is register",
		} {
			_, err := locker.Resume(soon(t), l, locker.Handle(text))
			for _, err := range []error{err, locker.RenewHandle(soon(t), l, locker.Handle(text)), locker.UnlockHandle(soon(t), l, locker.Handle(text))} {
				if err == nil || !strings.Contains(err.Error(), says) || len(text) > 0 && strings.Contains(err.Error(), text) {
					t.Errorf("%q: %v", text, err)
				}
			}
		}
		unlock(t, resume(t, other, "\n"+h+"\r\n"))
	})
}

func TestHandleIsASecretAndNotTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, new(registertest.Memory), aged)
		name := strings.Repeat("\x01", locker.MaxName)
		h := detach(t, lock(t, l, name))
		if len(h) > 1024 {
			t.Errorf("it has %d bytes", len(h))
		}
		var logged bytes.Buffer
		slog.New(slog.NewJSONHandler(&logged, nil)).Info("detached", "handle", h)
		shown := fmt.Sprintf("%v %s %q %+v %#v %x %v %+v", h, h, h, h, h, h, []locker.Handle{h}, struct{ H locker.Handle }{h}) + logged.String()
		if strings.Contains(shown, string(h)) || strings.Contains(shown, fmt.Sprintf("%x", string(h))) || !strings.Contains(shown, "handle of lock") {
			t.Errorf("it is shown: %s", shown)
		}
		unlock(t, resume(t, l, h))
	})
}

func TestWhatCannotBeDetachedIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, new(registertest.Memory), aged)
		refused := func(what string, lk *locker.Lock, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := lk.Detach(soon(t)); !errors.Is(err, errors.ErrUnsupported) || lk.Err() != nil {
				t.Errorf("%s: %v, and the lock %v", what, err, lk.Err())
			}
			unlock(t, lk)
		}
		for what, opt := range map[string]locker.Option{"shared": locker.WithShared(), "a slot": locker.WithSlots(2), "maximum hold": locker.WithMaxHold(time.Minute)} {
			lk, err := l.Lock(soon(t), "a", opt)
			refused(what, lk, err)
			if _, err := locker.Resume(soon(t), l, detach(t, lock(t, l, "b")), opt); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("resumed as %s: %v", what, err)
			}
			_, _ = l.Break(soon(t), "b")
		}
		set, err := locker.LockAll(soon(t), l, []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		for _, lk := range set.Locks() {
			refused("one of a set", lk, nil)
		}
		counted := locker.WithCounter(l, numbers(1), 0)
		lk, err := counted.Lock(soon(t), "a")
		refused("with a counter", lk, err)
		if _, err := locker.Resume(soon(t), counted, detach(t, lock(t, l, "a"))); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("resumed with a counter: %v", err)
		}
	})
}

// numbers is a counter that does not count.
type numbers fencing.Token

func (n numbers) Next(context.Context, string) (fencing.Token, error) { return fencing.Token(n), nil }

// A function that is frozen while it holds a lock: when it goes on, it knows.
func TestDoWhoseLockIsDetachedReturnsWhatItsFunctionReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.With(process(t, new(registertest.Memory), aged), locker.WithTTL(2*time.Second))
		var h locker.Handle
		if err := locker.Do(soon(t), l, "a", func(ctx context.Context, lk *locker.Lock) error {
			h = detach(t, lk)
			if <-ctx.Done(); !errors.Is(context.Cause(ctx), locker.ErrUnlocked) {
				t.Errorf("the function's context: %v", context.Cause(ctx))
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		going := resume(t, l, h)
		if left := time.Until(going.Deadline()); left > 2*time.Second {
			t.Errorf("it believes for %v, and the TTL was 2s", left)
		}
		unlock(t, going)
	})
}
