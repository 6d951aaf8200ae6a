package driver

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/contract"
)

const sessionTTL = 10 * time.Second

// open makes a session, on which all further attempts hang.
func (b *backend) open(t testing.TB) *session[*hold] {
	t.Helper()
	s, err := b.openSession()
	if err != nil {
		t.Fatal(err)
	}
	b.session = s
	return s
}

func (b *backend) openSession() (*session[*hold], error) {
	h := &hold{req: &Request{Name: "session"}}
	h.there.Store(true)
	s := newSession(b.l, false)
	return s, s.begin(sessionTTL, b.l.Now().Add(-b.took),
		func(ctx context.Context) error { return b.Renew(ctx, []*hold{h})[0] },
		func(ctx context.Context) error { return b.Withdraw(ctx, h) })
}

// counts is what its validity counts from.
func (s *session[H]) counts() Instant {
	s.locker.mu.Lock()
	defer s.locker.mu.Unlock()
	return s.since
}

// only answers renewals of name with err, and others with nil.
func only(name string, err error) func(context.Context, string) error {
	return func(_ context.Context, other string) error {
		if other == name {
			return err
		}
		return nil
	}
}

func TestLocksAreLostWithTheirSession(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		s := b.open(t)
		first, second := b.grant(t, "a"), b.grant(t, "b")
		b.session = nil
		other := b.grant(t, "c")
		gone := errors.New("no such lease")
		s.Lose(locker.ReasonSessionEnded, gone)
		for _, l := range []*locker.Lock{first, second} {
			if lost := wantReason(t, l, locker.ReasonSessionEnded); lost.Cause != gone {
				t.Errorf("the cause is %v", lost.Cause)
			}
		}
		if s.Context().Err() == nil || s.join() {
			t.Error("the session can be used after its end")
		}
		pass(0)
		if b.ended["a"] != 1 || b.ended["b"] != 1 {
			t.Errorf("End was called so often: %v", b.ended)
		}
		wantHeld(t, other)
		if l, err := b.l.TryLock(t.Context(), "a"); err != nil || l.Err() != nil {
			t.Errorf("the name is not free for the next: %v", err)
		}
	})
}

// Ten thousand locks may depend on a session, and the store be silent.
func TestLocksAreNotWithdrawnIfTheirSessionIs(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		s := b.open(t)
		b.grant(t, "a", locker.WithMaxHold(time.Hour)) // there is something left of it
		over := b.grant(t, "b", locker.WithMaxHold(time.Second))
		pass(2 * time.Second)
		wantReason(t, over, locker.ReasonMaxHold)
		s.Lose(locker.ReasonSessionEnded, nil)
		pass(0)
		if !slices.Equal(b.released, []string{"b", "session"}) || b.ended["a"] != 1 {
			t.Errorf("%q were withdrawn, and a ended %d times", b.released, b.ended["a"])
		}
	})
}

func TestStoreThatHasNoMoreOfASessionEndsItsLocks(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.open(t)
		l := b.grant(t, "a")
		b.answerRenewals(only("session", &locker.LostError{Reason: locker.ReasonSessionEnded}))
		pass(sessionTTL / renewalsPerTTL)
		wantReason(t, l, locker.ReasonSessionEnded)
	})
}

// That the key of a lock is still there says nothing of its session, which the store
// may end later.
func TestLocksEndWithASilentSessionThoughTheirKeysAreSeen(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		s := b.open(t)
		b.answerRenewals(only("session", errors.New("down")))
		pass(sessionTTL / 2)
		l := b.grant(t, "a")
		left := time.Until(l.Deadline())
		if left > sessionTTL/2 {
			t.Errorf("the lock is believed for %v, and its session ends %v from now", left, sessionTTL/2)
		}
		pass(left - time.Nanosecond)
		wantHeld(t, l)
		pass(time.Nanosecond)
		wantReason(t, l, locker.ReasonUnreachable)
		if s.Context().Err() == nil {
			t.Error("the session goes on")
		}
	})
}

func TestLocksOfASessionEndWhileTheMachineIsSuspended(t *testing.T) {
	virtual(t, func(t *testing.T, c *clock) {
		b := newBackend()
		other := b.open(t)
		b.open(t)
		l := b.grant(t, "a")
		c.jump(sessionTTL)
		if other.join() {
			t.Error("a session is believed in after its end")
		}
		wantReason(t, l, locker.ReasonExpired)
	})
}

func TestLockWantsItsValidityOfTheSession(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.open(t)
		b.answerRenewals(only("session", errors.New("down")))
		pass(sessionTTL / 2)
		if _, err := b.l.TryLock(t.Context(), "a", locker.WithMinValidity(sessionTTL/2)); !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("got %v, though the session has less validity left than is wanted", err)
		}
		b.grant(t, "a", locker.WithMinValidity(sessionTTL/4))
	})
}

// Whether there is a session already, and how old it is, is nothing that a caller knows.
func TestSessionIsRenewedForALockThatWantsMoreValidity(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.open(t)
		pass(sessionTTL / 4)
		b.grant(t, "a", locker.WithMinValidity(sessionTTL/2))
		if n := b.renewed(); n != 0 {
			t.Errorf("%d renewals for a lock that could do without", n)
		}
		b.answerRenewals(func(ctx context.Context, _ string) error {
			time.Sleep(sessionTTL / 20) // the store may take its time
			return ctx.Err()
		})
		l := b.grant(t, "b", locker.WithMinValidity(sessionTTL*9/10))
		if left := time.Until(l.Deadline()); left < sessionTTL*9/10 || b.renewed() != 1 {
			t.Errorf("%v are left after %d renewals", left, b.renewed())
		}
		if !b.session.Lasts() {
			t.Error("the session was ended with its renewal, while a lock depends on it")
		}
		b.took = sessionTTL / 2
		b.open(t) // its own renewal is due at once, and takes its time
		if _, err := b.l.TryLock(t.Context(), "c", locker.WithMinValidity(sessionTTL*9/10)); !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("the store was slow to open the session and to grant the lock: %v", err)
		}
		pass(sessionTTL / 20) // a renewal that was asked for before ends
	})
}

// The store grants the lock and then falls silent. The caller has set no end.
func TestLockIsRefusedInTimeWhoseSessionASilentStoreDoesNotRenew(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.open(t)
		pass(sessionTTL / 4)
		b.answerRenewals(silent)
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, ctx := range []context.Context{brief, context.Background()} {
			most := sessionTTL / renewalsPerTTL
			if ctx == brief {
				most = time.Second
			}
			began := time.Now()
			_, err := b.l.TryLock(ctx, "a", locker.WithMinValidity(sessionTTL*9/10))
			if took := time.Since(began); !errors.Is(err, locker.ErrUnavailable) || took > most {
				t.Errorf("%v after %v, want ErrUnavailable after %v", err, took, most)
			}
		}
		pass(sessionTTL)
	})
}

// Granted on the session, ended, heard of: the order in which a store may do it.
func TestLockIsLostWhoseSessionEndedOnItsWay(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		s := b.open(t)
		gone := errors.New("no such lease")
		b.onAcquire = func(context.Context) error { s.Lose(locker.ReasonSessionEnded, gone); return nil }
		if lost := wantReason(t, b.grant(t, "a"), locker.ReasonSessionEnded); lost.Cause != gone {
			t.Errorf("the cause is %v", lost.Cause)
		}
		pass(sessionTTL)
		b.session, b.onAcquire = nil, nil
		b.grant(t, "a")
	})
}

func TestSessionIsRenewedForItsWaiters(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		s := b.open(t)
		before := s.counts()
		pass(4*sessionTTL - time.Second) // nobody has used it so far
		if !s.join() {
			t.Fatal("a new session cannot be used")
		}
		pass(10 * idleTTLs * sessionTTL)
		if s.Context().Err() != nil || s.counts() == before {
			t.Error("the session of a waiter was not kept")
		}
		s.leave()
		pass(4*sessionTTL - time.Second)
		if s.Context().Err() != nil {
			t.Error("the next waiter must make a session of its own")
		}
		pass(time.Second + sessionTTL/renewalsPerTTL)
		if s.Context().Err() == nil || s.join() {
			t.Error("a session without users goes on")
		}
		if b.releases() != 1 {
			t.Errorf("it was withdrawn %d times", b.releases())
		}
	})
}

func TestCloseEndsSessionsThatNobodyUses(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		unused, used := b.open(t), b.open(t)
		used.join()
		l := b.grant(t, "a")
		if err := b.l.Close(); err != nil {
			t.Fatal(err)
		}
		if unused.Context().Err() == nil {
			t.Error("a session without users was left")
		}
		pass(2 * sessionTTL)
		wantHeld(t, l)
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		used.leave()
		if used.Context().Err() == nil {
			t.Error("a session was left when its last user had gone")
		}
		pass(0)
	})
}

func TestLockEndsBeforeItsSession(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		s := b.open(t)
		s.join()
		once := b.grant(t, "a", locker.WithoutRenewal(), locker.WithTTL(sessionTTL))
		short := b.grant(t, "b", locker.WithMaxHold(3*time.Second))
		pass(3 * time.Second)
		wantReason(t, short, locker.ReasonMaxHold)
		wantHeld(t, once)
		pass(sessionTTL)
		wantReason(t, once, locker.ReasonExpired)
		if s.Context().Err() != nil {
			t.Error("the session ended with its locks")
		}
	})
}

// The store keeps the lock for as long as the session lasts, whether it says so or not.
func TestLockLastsAsLongAsItsSessionThoughItsKeyIsNotSeen(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		s := b.open(t)
		s.join()
		l := b.grant(t, "a")
		b.answerRenewals(only("a", errors.New("down")))
		pass(5 * locker.DefaultTTL)
		wantHeld(t, l)
	})
}

func TestSessionForgetsLocksThatWereGivenBack(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		s := b.open(t)
		if err := b.grant(t, "a").Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(s.held); n > 0 {
			t.Errorf("it knows %d locks", n)
		}
	})
}

// A session may have been asked for long before the answer came.
func TestSessionCountsFromItsRequest(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.took = sessionTTL / 2
		b.answerRenewals(only("session", errors.New("down"))) // one is due at once
		b.open(t)
		b.took = 0
		if left := time.Until(b.grant(t, "a").Deadline()); left > sessionTTL/2 {
			t.Errorf("the lock is believed for %v", left)
		}
		b.took = sessionTTL * 8 / 10
		b.answerRenewals(nil)
		late := b.open(t)
		late.join()
		if pass(sessionTTL); late.Context().Err() != nil {
			t.Error("a session that was slow to come is not renewed in time")
		}
	})
}

func TestRenewByHandRenewsTheSessionToo(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.open(t)
		l := b.grant(t, "a")
		pass(3 * time.Second)
		before := l.Deadline()
		if err := l.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := l.Deadline().Sub(before); got != 3*time.Second {
			t.Errorf("the deadline is %v later after a renewal 3s later", got)
		}
		b.answerRenewals(only("session", errors.New("down")))
		if err := l.Renew(t.Context()); !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("a renewal of the key alone is called one: %v", err)
		}
	})
}

func TestLeaseIsNotPassedOnLongerThanItsSession(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.count = 64
		b.open(t)
		b.answerRenewals(only("session", errors.New("down")))
		pass(sessionTTL / 2)
		l := b.grant(t, "a")
		got := make(chan error)
		go func() {
			_, err := b.l.Lock(t.Context(), "a", locker.WithMinValidity(sessionTTL/2))
			got <- err
		}()
		pass(0)
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-got; !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("it was granted for longer than its session lasts: %v", err)
		}
	})
}

// A renewal of the session is under way. Close ends the session, which is withdrawn. Then
// the renewal is carried out.
func TestRenewalOfASessionThatWasEndedMeanwhileIsCleanedUp(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		s := b.open(t)
		answer := make(chan struct{})
		b.answerRenewals(func(context.Context, string) error { <-answer; return nil })
		pass(sessionTTL/renewalsPerTTL + time.Millisecond)
		_ = b.l.Close()
		if s.Context().Err() == nil {
			t.Fatal("the session goes on")
		}
		pass(0)
		close(answer)
		pass(time.Minute)
		if b.releases() != 2 {
			t.Errorf("the session was renewed in the store after it was withdrawn, once: %v", b.released)
		}
	})
}

// A lock depends on it, though no attempt has joined it.
func TestSessionOfALockIsNotUnused(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.open(t)
		l := b.grant(t, "a")
		pass((idleTTLs + 2) * sessionTTL)
		wantHeld(t, l)
	})
}

// A waiter waits until its session ends, and returns the cause.
func TestEndOfASessionIsNotTheLossOfALockThatNobodyHad(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		s := b.open(t)
		b.onAcquire = func(context.Context) error {
			s.join()
			<-s.Context().Done()
			return context.Cause(s.Context())
		}
		time.AfterFunc(time.Second, func() { s.Lose(locker.ReasonSessionEnded, nil) })
		_, err := b.l.TryLock(t.Context(), "a")
		if errors.Is(err, locker.ErrLost) || errors.Is(err, context.Canceled) {
			t.Errorf("a lock that was never held is called lost, or its caller impatient: %v", err)
		}
	})
}

// A TryLock stands behind a question whose grant is known to be lost when it is heard.
func TestTryLockIsNotToldTakenByAGrantThatIsLostBeforeItArrives(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		answer := make(chan struct{})
		b.onAcquire = func(context.Context) error { <-answer; return nil }
		go func() { _, _ = b.l.TryLock(t.Context(), "a") }()
		synctest.Wait()
		second := make(chan error, 1)
		go func() { _, err := b.l.TryLock(t.Context(), "a"); second <- err }()
		synctest.Wait()
		b.l.Lose("a", b.l.lines["a"].front.h, locker.ReasonForced, nil)
		close(answer)
		if err := <-second; err != nil {
			t.Errorf("nobody has it: %v", err)
		}
		synctest.Wait()
	})
}

// A waiter asks for a session; the Locker is closed; the session comes.
func TestSessionThatComesAfterCloseIsEnded(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		_ = b.l.Close()
		if _, err := b.openSession(); !errors.Is(err, locker.ErrClosed) {
			t.Errorf("got %v", err)
		}
		pass(0)
		if b.releases() != 1 {
			t.Errorf("it was withdrawn %d times", b.releases())
		}
	})
}

// Two Lockers of one backend have clocks, mutexes and timers of their own.
func TestGrantOnAnotherLockersSessionPanics(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b, other := newBackend(), newBackend()
		b.session = other.open(t)
		if got, want := panics(func() { b.grant(t, "a") }), "backend: the attempt hangs on another Locker's session"; got != want {
			t.Errorf("panic %v, want %q", got, want)
		}
		pass(sessionTTL)
	})
}

// down is a backend that removes nothing until it is up.
type down struct {
	*backend
	up atomic.Bool
}

func (d *down) Withdraw(ctx context.Context, h *hold) error {
	if !d.up.Load() {
		return errors.New("down")
	}
	return d.backend.Withdraw(ctx, h)
}

// What depends on a session is renewed with it, so the session's renewals are told, to each
// of its locks, and the looks at each lock are not.
func TestObserversAreToldOfTheRenewalsOfASession(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		var fails atomic.Value
		fails.Store("b")
		b.onRenew = func(ctx context.Context, name string) error {
			return only(fails.Load().(string), errors.New("no"))(ctx, name)
		}
		b.open(t)
		var of [2]struct{ failed, late atomic.Int32 }
		observe := func(i int) locker.Option {
			return locker.WithObserver(func(e locker.Event) {
				switch e.Type {
				case locker.EventNotRenewed:
					of[i].failed.Add(1)
					if e.Left <= 0 || e.Left+e.Took > sessionTTL {
						t.Errorf("%v after the last renewal, %v are left", e.Took, e.Left)
					}
				case locker.EventRenewedLate:
					of[i].late.Add(1)
				}
			})
		}
		b.grant(t, "a", observe(0))
		b.grant(t, "b", observe(1), locker.WithTTL(time.Second))
		pass(time.Second)
		if a, b := of[0].failed.Load(), of[1].failed.Load(); a != 0 || b != 0 {
			t.Errorf("told of looks: %d and %d", a, b)
		}
		fails.Store("session")
		pass(7 * time.Second)
		fails.Store("nothing")
		pass(2 * time.Second)
		if a, b := of[0].failed.Load(), of[1].failed.Load(); a == 0 || a != b {
			t.Errorf("told of %d and %d failed renewals of the session", a, b)
		}
		if a, b := of[0].late.Load(), of[1].late.Load(); a != 1 || b != 1 {
			t.Errorf("told of %d and %d late renewals of the session", a, b)
		}
	})
}

// As before, but a Lock comes to the front, whose question the store does not answer.
func TestTryLockBehindALostGrantHearsWhatTheNextInFrontHears(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		answers := make(chan error)
		b.onAcquire = func(context.Context) error { return <-answers }
		try := func(lock func(context.Context, string, ...locker.Option) (*locker.Lock, error)) <-chan error {
			got := make(chan error, 1)
			go func() { _, err := lock(t.Context(), "a"); got <- err }()
			synctest.Wait()
			return got
		}
		try(b.l.TryLock)
		second, third := try(b.l.Lock), try(b.l.TryLock)
		b.l.Lose("a", b.l.lines["a"].front.h, locker.ReasonForced, nil)
		answers <- nil
		synctest.Wait()
		answers <- errors.New("down")
		for who, got := range map[string]<-chan error{"Lock": second, "TryLock": third} {
			if err := <-got; !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrTaken) {
				t.Errorf("%s: %v, and nobody has the lock", who, err)
			}
		}
	})
}

// What hangs on a session that goes on does not end by itself.
func TestWhatIsLeftOnASessionIsRemovedHoweverLongTheStoreIsAway(t *testing.T) {
	for _, closed := range []bool{false, true} {
		virtual(t, func(t *testing.T, _ *clock) {
			d := &down{backend: newBackend()}
			d.l = New("down", d, Options{Clock: ticking.now})
			d.open(t)
			other := d.grant(t, "b")
			short := d.grant(t, "a", locker.WithMaxHold(time.Second))
			h := locker.HeldOf(contract.Key{}, short).(*turn[*hold]).lease.h
			pass(time.Minute)
			wantReason(t, short, locker.ReasonMaxHold)
			if closed {
				_ = d.l.Close()
			}
			d.up.Store(!closed)
			pass(2 * time.Second)
			if n := d.l.UnderWay(contract.Key{}); n > 0 || h.there.Load() != closed || d.ended["a"] != 1 {
				t.Errorf("closed %v: %d clean-ups under way, left %v, ended %d times", closed, n, h.there.Load(), d.ended["a"])
			}
			unlock(t, other)
			_ = d.l.Close()
			pass(time.Minute)
		})
	}
}

// The last user of a session gives its lock back, and the store does not keep it for the rest of its minimum
// hold: all that keeps it is the session.
func TestSessionIsKeptForALockThatIsToBeKept(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.keeps = true
		s := b.open(t)
		l := b.grant(t, "a", locker.WithMinHold(time.Minute))
		b.onRelease = func(context.Context, string) error { return errors.New("down") }
		_ = l.Unlock(t.Context())
		_ = b.l.Close()
		pass(50 * time.Second)
		if s.Context().Err() != nil {
			t.Error("it has ended, and the lock with it")
		}
		pass(time.Minute)
		if s.Context().Err() == nil {
			t.Error("it goes on")
		}
	})
}

// opened is what a test's backend knows of a session.
type opened struct {
	Session
	n int
}

// pool returns a Pool whose sessions are numbered from 1. They take a second to open.
func (b *backend) pool(fails func(n int) error) *Pool[*hold, string, *opened] {
	n := 0
	return NewPool(b.l, Sessions[string, *opened]{
		Open: func(_ string, own Session) (*opened, time.Duration, Instant, error) {
			n++
			s, since := &opened{own, n}, b.l.Now()
			time.Sleep(time.Second)
			return s, sessionTTL, since, fails(s.n)
		},
		Renew: func(context.Context, *opened) error { return nil },
		End:   func(context.Context, *opened) error { return nil },
	})
}

// One caller is impatient, and its request is everybody's.
func TestCallersShareASessionThatIsOpenedForAll(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		p := b.pool(func(int) error { return nil })
		brief, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if _, err := p.Join(brief, new(Request), "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an impatient caller: %v", err)
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				req := new(Request)
				if s, err := p.Join(t.Context(), req, "k"); err != nil || s.n != 1 {
					t.Errorf("%+v, %v", s, err)
				}
				req.leave()
			})
		}
		all.Wait()
		if s, err := p.Join(t.Context(), new(Request), "another key"); err != nil || s.n != 2 {
			t.Errorf("%+v, %v", s, err)
		}
		pass(2 * idleTTLs * sessionTTL)
		if s, err := p.Join(t.Context(), new(Request), "k"); err != nil || s.n != 3 {
			t.Errorf("after the first has ended, for nobody used it: %+v, %v", s, err)
		}
	})
}

func TestSessionThatCannotBeOpenedIsAskedForAgain(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		no := errors.New("no")
		p := b.pool(func(n int) error {
			switch n {
			case 1:
				return no
			case 2:
				panic("a hook of the client's")
			}
			return nil
		})
		if _, err := p.Join(t.Context(), new(Request), "k"); !errors.Is(err, no) {
			t.Error(err)
		}
		var panicked *PanicError
		if _, err := p.Join(t.Context(), new(Request), "k"); !errors.As(err, &panicked) {
			t.Error(err)
		}
		if s, err := p.Join(t.Context(), new(Request), "k"); err != nil || s.n != 3 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// The store opens sessions and ends them before their answers arrive.
func TestSessionsThatEndBeforeTheyAreUsed(t *testing.T) {
	for _, bad := range []int{2, 3} {
		virtual(t, func(t *testing.T, _ *clock) {
			b := newBackend()
			p := b.pool(nil)
			lost, ended := 0, 0
			p.how.End = func(context.Context, *opened) error { ended++; return nil }
			p.how.Open = func(_ string, own Session) (*opened, time.Duration, Instant, error) {
				if lost < bad {
					lost++
					own.Lose(locker.ReasonSessionEnded, nil)
					time.Sleep(time.Second) // there is nothing to remove yet, and nobody looks for it now
				}
				return &opened{own, lost}, sessionTTL, b.l.Now(), nil
			}
			s, err := p.Join(t.Context(), new(Request), "k")
			if (err != nil) != (bad == mostSessions) || err == nil && s.Context().Err() != nil {
				t.Errorf("after %d that have ended: %+v, %v", bad, s, err)
			}
			if synctest.Wait(); ended != bad {
				t.Errorf("of %d sessions that have ended while they were opened %d are removed", bad, ended)
			}
		})
	}
}

// What has joined a session stays on it; the next gets another.
func TestSessionThatIsRetiredGetsNoNewUsers(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		p := b.pool(func(int) error { return nil })
		first, err := p.Join(t.Context(), new(Request), "k")
		if err != nil {
			t.Fatal(err)
		}
		p.Retire("k", first.Session)
		p.Retire("k", first.Session)
		second, err := p.Join(t.Context(), new(Request), "k")
		if err != nil || second == first || !first.Lasts() {
			t.Errorf("%+v, %v", second, err)
		}
		p.Retire("k", first.Session)
		if third, err := p.Join(t.Context(), new(Request), "k"); err != nil || third != second {
			t.Errorf("%+v, %v", third, err)
		}
	})
}

func TestRenewalOfASessionInWhichAHookPanicsHasFailed(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.open(t)
		l := b.grant(t, "a")
		b.answerRenewals(func(_ context.Context, name string) error {
			if name == "session" {
				panic("a hook of the client's")
			}
			return nil
		})
		pass(sessionTTL)
		wantReason(t, l, locker.ReasonUnreachable)
	})
}

// The store is away for longer than a clean-up goes on, and back before the minimum hold has ended.
func TestWhatIsKeptOnASessionIsNotWithdrawnBeforeItsMinimumHoldHasEnded(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.keeps = true
		b.open(t)
		l := b.grant(t, "a", locker.WithMinHold(time.Minute))
		granted := time.Now()
		b.onRelease = func(context.Context, string) error {
			if time.Since(granted) < 30*time.Second {
				return errors.New("down")
			}
			return nil
		}
		_ = l.Unlock(t.Context())
		pass(2 * time.Minute)
		for i, name := range b.released {
			if name == "a" && b.kept[i] <= 0 {
				t.Fatalf("it was withdrawn, after these: %v", b.kept[:i])
			}
		}
		if n := b.l.UnderWay(contract.Key{}); n > 0 || b.ended["a"] != 1 {
			t.Errorf("%d clean-ups under way, ended %d times", n, b.ended["a"])
		}
		_ = b.l.Close()
		pass(time.Minute)
	})
}

// The zk client of a session that has ended goes on, and what the session has in the store with
// it.
func TestSessionOfAClientThatGoesOnIsEndedHoweverLongTheStoreIsAway(t *testing.T) {
	for _, closed := range []bool{false, true} {
		virtual(t, func(t *testing.T, _ *clock) {
			b := newBackend()
			var up, there atomic.Bool
			there.Store(true)
			p := NewPool(b.l, Sessions[string, *opened]{
				Outlived: true,
				Open: func(_ string, own Session) (*opened, time.Duration, Instant, error) {
					return &opened{own, 1}, sessionTTL, b.l.Now(), nil
				},
				Renew: func(context.Context, *opened) error { return errors.New("down") },
				End: func(context.Context, *opened) error {
					if !up.Load() {
						return errors.New("down")
					}
					there.Store(false)
					return nil
				},
			})
			s, err := p.Join(t.Context(), new(Request), "k")
			if err != nil {
				t.Fatal(err)
			}
			pass(time.Minute)
			if s.Lasts() {
				t.Fatal("it lasts, though no renewal has worked")
			}
			if closed {
				_ = b.l.Close()
			}
			up.Store(!closed)
			pass(2 * time.Second)
			if n := b.l.UnderWay(contract.Key{}); n > 0 || there.Load() != closed {
				t.Errorf("closed %v: %d clean-ups under way, left %v", closed, n, there.Load())
			}
		})
	}
}

// rejoining is a store whose attempts wait in a queue, go on to another session when theirs has
// ended, and never get the lock. What they have in the queue outlives their sessions.
type rejoining struct {
	down
	sessions *Pool[*hold, string, *opened]
}

func (r *rejoining) Acquire(ctx context.Context, h *hold, wait Wait) (Grant, Left, error) {
	for {
		s, err := r.sessions.Join(ctx, h.req, "k")
		if err != nil {
			return Grant{}, Unsure, err
		}
		h.there.Store(true)
		ctx = wait()
		select {
		case <-s.Context().Done():
		case <-ctx.Done():
			return Grant{}, Unsure, context.Cause(ctx)
		}
	}
}

// A waiter has a place in a queue. The store is away, so its session ends, and it gets no other.
func TestPlaceOfAWaiterThatGetsNoOtherSessionIsRemovedHoweverLongTheStoreIsAway(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		r := &rejoining{down: down{backend: newBackend()}}
		r.l = New("rejoining", r, Options{Clock: ticking.now})
		r.sessions = r.pool(func(n int) error {
			if n > 1 && !r.up.Load() {
				return errors.New("down")
			}
			return nil
		})
		r.sessions.how.Outlived = true
		r.sessions.how.Renew = func(context.Context, *opened) error { return errors.New("down") }
		ctx, cancel := context.WithTimeout(t.Context(), 2*sessionTTL)
		defer cancel()
		got := make(chan error, 1)
		go func() { _, err := r.l.Lock(ctx, "a"); got <- err }()
		pass(sessionTTL / 2)
		r.l.mu.Lock()
		h := r.l.lines["a"].front.h
		r.l.mu.Unlock()
		if err := <-got; !errors.Is(err, locker.ErrOutcomeUnknown) {
			t.Error(err)
		}
		pass(time.Minute)
		r.up.Store(true)
		pass(2 * time.Second)
		if n := r.l.UnderWay(contract.Key{}); n > 0 || h.there.Load() || r.ended["a"] != 1 {
			t.Errorf("%d clean-ups under way, left %v, ended %d times", n, h.there.Load(), r.ended["a"])
		}
		_ = r.l.Close()
		pass(time.Minute)
	})
}
