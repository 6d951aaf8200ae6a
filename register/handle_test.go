package register_test

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/lockertest"
	"github.com/lockstile/locker/register"
	"github.com/lockstile/locker/register/registertest"
)

func processes(t *testing.T) (a, b, c *lockertest.Locker) {
	t.Helper()
	a = lockertest.New()
	b, c = a.Another(), a.Another()
	t.Cleanup(func() { _, _, _ = a.Close(), b.Close(), c.Close() })
	return a, b, c
}

// resumedUnheard has a process resume a lock without an answer, and returns the handle that the error has.
func resumedUnheard(t *testing.T, l locker.Locker, h locker.Handle, opts ...locker.Option) locker.Handle {
	t.Helper()
	_, err := locker.Resume(soon(t), l, h, opts...)
	failed, ok := errors.AsType[*locker.ResumeError](err)
	if !ok {
		t.Fatal(err)
	}
	return failed.Handle
}

func TestHandleOfManyResumesThatFailedStandsForTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{Store: new(registertest.Memory)}
		a, b := process(t, s, aged), process(t, s, aged)
		h := detach(t, lock(t, a, "a", locker.WithTTL(time.Hour)))
		s.swap(func(string, string, []byte) (string, error) { return "", errLost })
		for range 40 {
			h = resumedUnheard(t, b, h)
		}
		s.swap(nil)
		going, err := locker.Resume(soon(t), b, h)
		if err != nil {
			info, _ := a.Inspect(soon(t), "a")
			t.Fatalf("the lock is there (held %v, for another %v), and the handle for both cases says: %v", info.Held, info.TimeLeft.Round(time.Minute), err)
		}
		unlock(t, going)
	})
}

func TestRenewalUnderWayAtDetachDoesNotShortenWhatAHandleHasRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(registertest.Memory)
		s := &script{Store: m}
		a, b := process(t, s, aged), process(t, m, aged)
		held := lock(t, a, "a", locker.WithTTL(3*time.Second))
		began, goOn := make(chan struct{}), make(chan struct{})
		s.swap(func(name, version string, record []byte) (string, error) { // the renewal in the background
			s.swap(nil)
			close(began)
			<-goOn
			return m.Swap(t.Context(), name, version, record)
		})
		<-began
		h := detach(t, held)
		renewByHandle(t, b, h, locker.WithTTL(time.Hour))
		close(goOn)
		time.Sleep(10 * time.Second)
		if info, err := process(t, m, aged).Inspect(soon(t), "a"); err != nil || !info.Held || info.TimeLeft < 50*time.Minute {
			t.Errorf("ten seconds after a renewal for an hour that was confirmed: held %v, for another %v, %v", info.Held, info.TimeLeft, err)
		}
	})
}

func TestLateRenewalDoesNotShortenWhatAHandleHasRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := processes(t)
		h := detach(t, lock(t, a, "b", locker.WithTTL(30*time.Second)))
		c.Link().Cut()
		if err := locker.RenewHandle(soon(t), c, h); !errors.Is(err, locker.ErrUnavailable) {
			t.Fatal(err)
		}
		renewByHandle(t, b, h, locker.WithTTL(time.Hour)) // "It is always safe to ask again."
		c.Link().Deliver()
		time.Sleep(time.Minute)
		if info, err := b.Inspect(soon(t), "b"); err != nil || !info.Held {
			t.Errorf("a minute after a renewal for an hour that was confirmed: held %v, %v", info.Held, err)
		}
	})
}

func TestRenewalByAHandleWhoseAnswerComesAfterTheTTLIsNoSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := processes(t)
		h := detach(t, lock(t, a, "a", locker.WithTTL(2*time.Second)))
		b.Link().CutReplies()
		answer := make(chan error)
		go func() { answer <- locker.RenewHandle(soon(t), b, h) }()
		next := lock(t, c, "a", locker.WithTTL(time.Hour))
		b.Link().Deliver()
		if err := <-answer; err == nil {
			t.Errorf("RenewHandle says that the lock lasts for another TTL, while another process has it with token %d: %v", next.Token(), next.Err())
		}
		unlock(t, next)
	})
}

func TestResumeOfAProcessThatReadsFromACopyThatIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(registertest.Memory)
		s := &script{Store: m}
		a, c, d, e := process(t, m, aged), process(t, s, aged), process(t, s, aged), process(t, s, aged) // the last three have read nothing yet
		unlock(t, lock(t, a, "a"))
		old, err := m.Get(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		h := detach(t, lock(t, a, "a", locker.WithTTL(time.Hour)))
		behind := time.Now().Add(time.Second)
		s.get(func(name string) (register.Entry, error) {
			if time.Now().Before(behind) {
				return old, nil
			}
			return m.Get(context.Background(), name)
		})
		if err := locker.RenewHandle(soon(t), d, h); err != nil {
			t.Errorf("RenewHandle: %v", err)
		}
		behind = time.Now().Add(time.Second)
		going, err := locker.Resume(soon(t), c, h)
		if err != nil {
			info, _ := a.Inspect(soon(t), "a")
			t.Fatalf("Resume, while the lock is held (%v) for another %v: %v", info.Held, info.TimeLeft.Round(time.Minute), err)
		}
		h = detach(t, going)
		behind = time.Now().Add(time.Second)
		if err := locker.UnlockHandle(soon(t), e, h); err != nil {
			t.Errorf("UnlockHandle: %v", err)
		}
	})
}

// The interleaving: a Resume that was not answered is still on its way. The lock is unlocked by the handle that its error has, which stands for two
// attempts. The Resume arrives between the requests for the two.
func TestResumeThatArrivesDuringAnUnlockByItsHandleLeavesNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := processes(t)
		h := detach(t, lock(t, a, "a", locker.WithTTL(time.Hour)))
		c.Link().Cut()
		either := resumedUnheard(t, c, h)
		b.Link().CutReplies()
		answer := make(chan error)
		go func() { answer <- locker.UnlockHandle(soon(t), b, either) }()
		synctest.Wait()
		c.Link().Deliver()
		synctest.Wait()
		b.Link().Deliver()
		if err := <-answer; err != nil {
			t.Error(err)
		}
		if info, err := a.Inspect(soon(t), "a"); err != nil || info.Held {
			t.Errorf("%+v, %v", info, err)
		}
	})
}

// A waiter's request is on its way over a connection that stalls. It asks again, has the lock, detaches it, and another process renews it for an hour.
// Then the first request arrives: it is answered with the same grant, and starts the lease anew, with the first TTL.
func TestLateFirstRequestDoesNotShortenWhatAHandleHasRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := processes(t)
		lock(t, b, "a", locker.WithTTL(10*time.Second), locker.WithoutRenewal())
		got := make(chan *locker.Lock, 1)
		go func() {
			next, err := a.Lock(context.Background(), "a", locker.WithTTL(6*time.Second))
			if err != nil {
				t.Error(err)
			}
			got <- next
		}()
		time.Sleep(9 * time.Second)
		a.Link().Stall()
		held := <-got
		if requests, _ := a.Link().HeldBack(); requests == 0 {
			t.Fatal("nothing is on its way")
		}
		h := detach(t, held)
		renewByHandle(t, b, h, locker.WithTTL(time.Hour))
		a.Link().Deliver()
		time.Sleep(10 * time.Second)
		if info, err := b.Inspect(soon(t), "a"); err != nil || !info.Held {
			t.Errorf("ten seconds after a renewal for an hour that was confirmed: held %v, %v", info.Held, err)
		}
	})
}

// Each answer takes three seconds. The handle stands for two attempts, so UnlockHandle waits for two answers, one after the other.
func TestHandleOfAResumeErrorIsUnlockedOnASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := processes(t)
		h := detach(t, lock(t, a, "a", locker.WithTTL(time.Hour)))
		b.Link().CutReplies()
		either := resumedUnheard(t, b, h, locker.WithTTL(time.Hour))
		b.Link().Heal()
		b.Link().Delay(1500 * time.Millisecond)
		var err error
		for range 10 {
			if err = locker.UnlockHandle(context.Background(), b, either); err == nil {
				return
			}
		}
		t.Errorf("ten calls, and each request is answered after three seconds: %v", err)
	})
}

// The file system has replaced the file, and cannot sync the directory (ENOTSUP, which errors.Is takes for errors.ErrUnsupported). What register/file returns then,
// lockdir.SyncDir's error, is no refusal.
func TestResumeWhoseWriteEndsWithAnErrorOfTheSystemMayHaveHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(registertest.Memory)
		s := &script{Store: m}
		a, b := process(t, m, aged), process(t, s, aged)
		h := detach(t, lock(t, a, "a", locker.WithTTL(time.Hour)))
		s.swap(func(name, version string, record []byte) (string, error) {
			if _, err := m.Swap(context.Background(), name, version, record); err != nil {
				t.Error(err)
			}
			return "", &os.PathError{Op: "sync", Path: "dir", Err: syscall.ENOTSUP}
		})
		_, err := locker.Resume(soon(t), b, h)
		s.swap(nil)
		if failed, ok := errors.AsType[*locker.ResumeError](err); ok {
			h = failed.Handle
		}
		if err2 := locker.UnlockHandle(soon(t), a, h); err2 != nil {
			info, _ := a.Inspect(soon(t), "a")
			t.Errorf("Resume says %v (ErrUnavailable %v, ErrOutcomeUnknown %v), and its handle: %v; held %v for another %v",
				err, errors.Is(err, locker.ErrUnavailable), errors.Is(err, locker.ErrOutcomeUnknown), err2, info.Held, info.TimeLeft)
		}
	})
}

// A handle stands for three attempts. Two Resumes that were not answered, and the answers to the unlock, arrive in every order.
func TestUnlockByAHandleBesideLateResumesInEveryOrder(t *testing.T) {
	for order := range 6 {
		synctest.Test(t, func(t *testing.T) {
			a, b, c := processes(t)
			d := a.Another()
			defer d.Close()
			h := detach(t, lock(t, a, "a", locker.WithTTL(time.Hour)))
			b.Link().Cut()
			either := resumedUnheard(t, b, h)
			c.Link().Cut()
			all := resumedUnheard(t, c, either)
			d.Link().CutReplies()
			said := make(chan error)
			go func() { said <- locker.UnlockHandle(context.Background(), d, all) }()
			synctest.Wait()
			steps := []func(){b.Link().Deliver, c.Link().Deliver, d.Link().CutRepliesAfterOne}
			for _, i := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}[order] {
				steps[i]()
				synctest.Wait()
			}
			d.Link().Deliver()
			err := <-said
			if info, _ := a.Inspect(soon(t), "a"); err != nil || info.Held {
				t.Errorf("order %d: %v, held %v", order, err, info.Held)
			}
		})
	}
}
