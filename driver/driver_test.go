package driver_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/lockertest"
)

// play runs f in a bubble with a Locker on a store of its own.
func play(t *testing.T, f func(t *testing.T, l *lockertest.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := lockertest.New()
		defer time.Sleep(time.Minute) // clean-ups and answers that are under way
		defer l.Close()
		f(t, l)
	})
}

func mustLock(t *testing.T, l locker.Locker, opts ...locker.Option) *locker.Lock {
	t.Helper()
	lock, err := l.Lock(t.Context(), "a", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func mustUnlock(t *testing.T, lock *locker.Lock) {
	t.Helper()
	if err := lock.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// outcome is what a call of Lock or TryLock in a goroutine of its own came to.
type outcome struct {
	lock *locker.Lock
	err  error
}

// asking calls Lock in a goroutine, and returns when that waits.
func asking(ctx context.Context, l locker.Locker, opts ...locker.Option) <-chan outcome {
	got := make(chan outcome, 1)
	go func() {
		lock, err := l.Lock(ctx, "a", opts...)
		got <- outcome{lock, err}
	}()
	synctest.Wait()
	return got
}

// trying is asking for TryLock.
func trying(ctx context.Context, l locker.Locker, opts ...locker.Option) <-chan outcome {
	got := make(chan outcome, 1)
	go func() {
		lock, err := l.TryLock(ctx, "a", opts...)
		got <- outcome{lock, err}
	}()
	synctest.Wait()
	return got
}

// settled returns an outcome that must be there.
func settled(t *testing.T, got <-chan outcome) outcome {
	t.Helper()
	synctest.Wait()
	select {
	case o := <-got:
		return o
	default:
		t.Fatal("the call has not returned")
		return outcome{}
	}
}

func granted(t *testing.T, got <-chan outcome) *locker.Lock {
	t.Helper()
	o := settled(t, got)
	if o.err != nil {
		t.Fatal(o.err)
	}
	return o.lock
}

func pending(t *testing.T, got <-chan outcome) {
	t.Helper()
	synctest.Wait()
	select {
	case o := <-got:
		t.Fatalf("the call has returned: %v", o.err)
	default:
	}
}

// failed requires an error that is the first of these and none of the others.
func failed(t *testing.T, got <-chan outcome, want error, not ...error) {
	t.Helper()
	err := settled(t, got).err
	if !errors.Is(err, want) {
		t.Errorf("the error is %v, want %v", err, want)
	}
	for _, n := range not {
		if errors.Is(err, n) {
			t.Errorf("the error %v says %q, which is not so", err, n)
		}
	}
}

// Goal: goroutines of a process pass its lease on in order, without a request.
func TestTurnsCostNoRequest(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		held := mustLock(t, l)
		var waiting []<-chan outcome
		for range 63 {
			waiting = append(waiting, asking(t.Context(), l))
		}
		before := l.Link().Requests()
		for _, w := range waiting {
			mustUnlock(t, held)
			next := granted(t, w)
			if next.Token() != held.Token()+1 || driver.LeaseOf(next) != driver.LeaseOf(held) {
				t.Fatalf("token %d of lease %d after %d of %d", next.Token(), driver.LeaseOf(next), held.Token(), driver.LeaseOf(held))
			}
			held = next
		}
		if n := l.Link().Requests() - before; n != 0 {
			t.Errorf("%d requests for 63 turns", n)
		}
		mustUnlock(t, held)
		if n := l.Link().Requests() - before; n != 1 {
			t.Errorf("%d requests to give a lease back", n)
		}
	})
}

// A grant has 64 tokens, so the 65th goroutine has to ask.
func TestLeaseWhoseTokensAreUsedUpGoesBackToTheStore(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		first := mustLock(t, l)
		held := first
		for range 64 {
			w := asking(t.Context(), l)
			mustUnlock(t, held)
			last := held.Token()
			if held = granted(t, w); held.Token() <= last {
				t.Fatalf("token %d after %d", held.Token(), last)
			}
		}
		if driver.LeaseOf(held) == driver.LeaseOf(first) {
			t.Error("a lease had 65 turns")
		}
		mustUnlock(t, held)
	})
}

// The store may be slow to grant, and a renewal is no grant.
func TestLeaseIsPassedOnFor25msFromTheArrivalOfItsGrant(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		l.Link().Delay(time.Second)
		arrives := asking(t.Context(), l)
		time.Sleep(1500 * time.Millisecond) // the answer is on its way
		l.Link().Delay(0)
		time.Sleep(500 * time.Millisecond)
		held, w := granted(t, arrives), asking(t.Context(), l)
		time.Sleep(24 * time.Millisecond)
		mustUnlock(t, held)
		next := granted(t, w)
		if driver.LeaseOf(next) != driver.LeaseOf(held) {
			t.Error("24 ms after its grant arrived the lease was not passed on")
		}
		if err := next.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		w = asking(t.Context(), l)
		time.Sleep(time.Millisecond)
		mustUnlock(t, next)
		last := granted(t, w)
		if driver.LeaseOf(last) == driver.LeaseOf(held) {
			t.Error("25 ms after its grant arrived the lease was passed on, for it was renewed since")
		}
		mustUnlock(t, last)
	})
}

// Goal: a process that waits in the store is served 25 ms after the grant, at the end
// of the turn under way, and all its waiters before the first process's next.
func TestOtherProcessIsServedWithin25msAndATurn(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		held := mustLock(t, l)
		other := asking(t.Context(), l.Another())
		for range 3 {
			w := asking(t.Context(), l)
			time.Sleep(8 * time.Millisecond)
			mustUnlock(t, held)
			pending(t, other)
			held = granted(t, w)
		}
		mine := asking(t.Context(), l)
		time.Sleep(time.Millisecond) // 25 now
		mustUnlock(t, held)
		pending(t, mine)
		mustUnlock(t, granted(t, other))
		mustUnlock(t, granted(t, mine))
	})
}

func TestLockWithOtherOptionsGoesThroughTheStore(t *testing.T) {
	for name, opt := range map[string]locker.Option{
		"TTL":          locker.WithTTL(time.Minute),
		"holder":       locker.WithHolder("somebody"),
		"renewal":      locker.WithoutRenewal(),
		"min validity": locker.WithMinValidity(29695 * time.Millisecond), // of 29,698
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, l *lockertest.Locker) {
				held := mustLock(t, l)
				time.Sleep(10 * time.Millisecond)
				w := asking(t.Context(), l, opt)
				mustUnlock(t, held)
				next := granted(t, w)
				if driver.LeaseOf(next) == driver.LeaseOf(held) {
					t.Error("it got a lease that is not what it wants")
				}
				mustUnlock(t, next)
			})
		})
	}
}

// counter draws tokens for WithCounter.
type counter struct{ fencing.Memory }

// A turn on a lease that is over, unknown to its process, would draw a token above
// its successor's.
func TestCountedLocksAreNotPassedOn(t *testing.T) {
	for _, who := range []string{"both", "the holder", "the next"} {
		t.Run(who, func(t *testing.T) {
			play(t, func(t *testing.T, l *lockertest.Locker) {
				first, second := locker.WithCounter(l, &counter{}, 0), locker.WithCounter(l, &counter{}, 0)
				switch who {
				case "the holder":
					second = l
				case "the next":
					first = l
				}
				held := mustLock(t, first)
				w := asking(t.Context(), second)
				before := l.Link().Requests()
				mustUnlock(t, held)
				mustUnlock(t, granted(t, w))
				if n := l.Link().Requests() - before; n != 3 { // release, acquire, release
					t.Errorf("%d requests for a hand-over and a release", n)
				}
			})
		})
	}
}

// MaxHold counts from the turn's own beginning.
func TestMaxHoldIsATurnsOwn(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		held := mustLock(t, l)
		w := asking(t.Context(), l, locker.WithMaxHold(time.Second))
		time.Sleep(20 * time.Millisecond)
		mustUnlock(t, held)
		next := granted(t, w)
		third := asking(t.Context(), l)
		time.Sleep(999 * time.Millisecond)
		if err := next.Err(); err != nil {
			t.Fatal(err)
		}
		pending(t, third)
		time.Sleep(time.Millisecond)
		if lost := new(locker.LostError); !errors.As(next.Err(), &lost) || lost.Reason != locker.ReasonMaxHold {
			t.Errorf("after its maximum hold: %v", next.Err())
		}
		mustUnlock(t, granted(t, third))
	})
}

// A renewal that is under way when the turn changes counts for the next one.
func TestRenewalBelongsToTheLease(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		held := mustLock(t, l, locker.WithTTL(100*time.Millisecond))
		w := asking(t.Context(), l, locker.WithTTL(100*time.Millisecond))
		l.Link().Delay(10 * time.Millisecond)
		time.Sleep(15 * time.Millisecond)
		renewed := make(chan error, 1)
		go func() { renewed <- held.Renew(t.Context()) }()
		synctest.Wait()
		mustUnlock(t, held)
		next := granted(t, w)
		before := next.Deadline()
		time.Sleep(20 * time.Millisecond)
		if err := <-renewed; !errors.Is(err, locker.ErrUnlocked) {
			t.Errorf("the renewal of a lock that was unlocked: %v", err)
		}
		if got := next.Deadline(); !got.Equal(before.Add(15 * time.Millisecond)) {
			t.Errorf("the deadline moved by %v, the renewal was sent 15 ms after the grant", got.Sub(before))
		}
		l.Link().Delay(0)
		mustUnlock(t, next)
	})
}

// A loss that only the store knows is found by the next renewal, or by the guard: a
// turn on a dead lease has a token below its successor's.
func TestTurnOnADeadLeaseHasATokenBelowItsSuccessors(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		other := l.Another()
		held := mustLock(t, l)
		w := asking(t.Context(), l)
		if broken, err := other.Break(t.Context(), "a"); !broken || err != nil {
			t.Fatal(broken, err)
		}
		successor := mustLock(t, other)
		mustUnlock(t, held)
		late := granted(t, w)
		if late.Token() >= successor.Token() {
			t.Errorf("token %d of a dead lease, its successor has %d", late.Token(), successor.Token())
		}
		if err := late.Renew(t.Context()); !errors.Is(err, locker.ErrLost) {
			t.Errorf("renewal of a dead lease: %v", err)
		}
		mustUnlock(t, successor)
	})
}

func TestLossEndsTheTurnUnderWayAndTheNextAsksTheStore(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		held := mustLock(t, l)
		w := asking(t.Context(), l)
		if !l.Lose("a") {
			t.Fatal("nobody held it")
		}
		next := granted(t, w)
		if held.Err() == nil || next.Err() != nil {
			t.Errorf("the lock that was lost: %v; the next: %v", held.Err(), next.Err())
		}
		if driver.LeaseOf(next) == driver.LeaseOf(held) {
			t.Error("a lost lease was passed on")
		}
		mustUnlock(t, next)
	})
}

// STALE_ANSWER of proof/spec/turns.pml: an answer comes when its lease is over, and another one there.
func TestAnswerAboutALeaseThatIsOverEndsNoLaterTurn(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		held := mustLock(t, l)
		w := asking(t.Context(), l)
		l.Link().Stall()
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // less than the client's patience
		defer cancel()
		renewed := make(chan error, 1)
		go func() { renewed <- held.Renew(ctx) }()
		synctest.Wait()
		if !l.Lose("a") {
			t.Fatal("nobody held it")
		}
		l.Link().Deliver() // the renewal arrives, and finds nothing
		next := granted(t, w)
		if err := <-renewed; !errors.Is(err, locker.ErrLost) {
			t.Errorf("the renewal of a lock that was lost: %v", err)
		}
		if err := next.Err(); err != nil {
			t.Errorf("the answer about the lease before has ended this turn: %v", err)
		}
		mustUnlock(t, next)
	})
}

// PASS_RELEASED of proof/spec/turns.pml: whoever comes while a lease goes back has no turn with it.
func TestLeaseThatGoesBackIsNotPassedOn(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		held := mustLock(t, l)
		other := asking(t.Context(), l.Another())
		l.Link().CutReplies()
		unlocked := make(chan error, 1)
		go func() { unlocked <- held.Unlock(context.WithoutCancel(t.Context())) }()
		synctest.Wait()
		next := asking(t.Context(), l)
		pending(t, next)
		others := granted(t, other)
		l.Link().Deliver()
		if err := <-unlocked; err != nil {
			t.Error(err)
		}
		pending(t, next)
		mustUnlock(t, others)
		mustUnlock(t, granted(t, next))
	})
}

func TestWhoGivesUpInTheLineIsPassedOver(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		held := mustLock(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		first, second := asking(ctx, l), asking(t.Context(), l)
		cancel()
		failed(t, first, locker.ErrTaken, locker.ErrUnavailable)
		mustUnlock(t, held)
		mustUnlock(t, granted(t, second))
	})
}

// Silence is never called taken.
func TestLockOnASilentStoreIsUnavailable(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		l.Link().Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got, behind := asking(ctx, l), asking(ctx, l)
		time.Sleep(time.Second)
		failed(t, behind, locker.ErrUnavailable, locker.ErrTaken)
		time.Sleep(time.Second) // of the clean-up, which cannot be confirmed
		failed(t, got, locker.ErrOutcomeUnknown, locker.ErrTaken)
		l.Link().Heal()
		time.Sleep(10 * time.Second)
	})
}

// 64 goroutines do not dial one after another.
func TestFirstContactThatTheStoreFailsFailsForAllWhoStandBehindIt(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		l.Link().CutReplies()
		first := asking(t.Context(), l)
		var behind []<-chan outcome
		for range 64 {
			behind = append(behind, asking(t.Context(), l))
		}
		once := trying(t.Context(), l)
		before := l.Link().Requests()
		l.Link().Heal() // breaks the connection
		for _, w := range behind {
			failed(t, w, locker.ErrUnavailable, locker.ErrTaken, locker.ErrOutcomeUnknown)
		}
		failed(t, once, locker.ErrUnavailable, locker.ErrTaken, locker.ErrOutcomeUnknown)
		failed(t, first, locker.ErrUnavailable, locker.ErrTaken, locker.ErrOutcomeUnknown)
		if n := l.Link().Requests() - before; n != 1 {
			t.Errorf("%d requests to clear away what one call has left", n)
		}
	})
}

// Where only the caller's own patience ended a contact, the next one makes it.
func TestWhoIsBehindACallThatGaveUpAsksTheStore(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		l.Link().Cut()
		ctx, cancel := context.WithCancel(t.Context())
		first, behind := asking(ctx, l), asking(t.Context(), l)
		once := trying(t.Context(), l)
		cancel()
		time.Sleep(confirmTime)
		failed(t, first, locker.ErrOutcomeUnknown, locker.ErrTaken)
		pending(t, behind)
		pending(t, once)
		l.Link().Deliver()
		time.Sleep(2 * time.Second)
		lock := granted(t, behind)
		failed(t, once, locker.ErrTaken)
		mustUnlock(t, lock)
	})
}

const confirmTime = 250 * time.Millisecond

func TestTryLockBehindAQuestionWaitsForTheAnswer(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		l.Link().Delay(time.Second)
		first, once := asking(t.Context(), l), trying(t.Context(), l)
		pending(t, once)
		time.Sleep(2 * time.Second)
		failed(t, once, locker.ErrTaken, locker.ErrUnavailable)
		lock := granted(t, first)
		failed(t, trying(t.Context(), l), locker.ErrTaken)
		l.Link().Delay(0)
		mustUnlock(t, lock)
	})
}

// Goal: the answer to one TryLock is for all that wait for it, and ends no Lock.
func TestTakenForATryLockIsKnowledgeForThoseBehindIt(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		other := l.Another()
		held := mustLock(t, other)
		l.Link().Delay(time.Second)
		before := l.Link().Requests()
		first, second := trying(t.Context(), l), trying(t.Context(), l)
		w := asking(t.Context(), l)
		time.Sleep(2 * time.Second)
		failed(t, first, locker.ErrTaken)
		failed(t, second, locker.ErrTaken)
		if n := l.Link().Requests() - before; n != 2 { // the TryLock's, and the Lock's
			t.Errorf("%d requests", n)
		}
		pending(t, w)
		mustUnlock(t, held)
		time.Sleep(10 * time.Second)
		l.Link().Delay(0)
		mustUnlock(t, granted(t, w))
	})
}

// Goal: that the lock was taken before it was ours says nothing of it now.
func TestWhatTheStoreSaidEndsWithTheLease(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		others := mustLock(t, l.Another())
		w := asking(t.Context(), l)
		mustUnlock(t, others)
		held := granted(t, w)
		next := asking(t.Context(), l, locker.WithTTL(5*time.Second)) // it goes through the store
		l.Link().Delay(100 * time.Millisecond)
		mustUnlock(t, held)
		l.Link().Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		once := trying(ctx, l)
		pending(t, once)
		time.Sleep(time.Second + confirmTime)
		failed(t, once, locker.ErrUnavailable, locker.ErrTaken)
		l.Link().Deliver()
		l.Link().Delay(0)
		time.Sleep(time.Minute)
		mustUnlock(t, granted(t, next))
	})
}

func TestCauseIsSaidOnce(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		held := mustLock(t, l.Another())
		for _, silent := range []bool{false, true} {
			ctx, cancel := context.WithCancelCause(t.Context())
			if silent {
				l.Link().Cut()
			}
			front, behind := asking(ctx, l), asking(ctx, l)
			why := errors.New("the caller's own reason")
			cancel(why)
			synctest.Wait()
			time.Sleep(confirmTime)
			for _, w := range []<-chan outcome{front, behind} {
				err := settled(t, w).err
				if n := strings.Count(err.Error(), context.Canceled.Error()); n != 1 || !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
					t.Errorf("silent: %v, and the error says the cause %d times: %v", silent, n, err)
				}
			}
			l.Link().Heal()
		}
		mustUnlock(t, held)
	})
}

// Goal: a waiter that was told "taken" waits through the silence of a store.
func TestWaiterThatWasToldWaitsThroughSilence(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		other := l.Another()
		held := mustLock(t, other)
		w := asking(t.Context(), l)
		for range 3 {
			l.Link().Cut()
			time.Sleep(time.Minute)
			pending(t, w)
			l.Link().Heal() // whatever it asked is lost with its connection
		}
		mustUnlock(t, held)
		time.Sleep(time.Minute)
		mustUnlock(t, granted(t, w))
	})
}

func TestRefusalEndsAWait(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		held := mustLock(t, l.Another(), locker.WithTTL(time.Minute))
		first, behind := asking(t.Context(), l), asking(t.Context(), l)
		no := errors.New("the password is wrong")
		l.Link().Refuse(no)
		time.Sleep(2 * time.Minute) // until it looks by itself
		for _, w := range []<-chan outcome{behind, first} {
			if err := settled(t, w).err; !errors.Is(err, locker.ErrUnavailable) || !errors.Is(err, no) || errors.Is(err, locker.ErrTaken) {
				t.Errorf("the store has said %q: %v", no, err)
			}
		}
		l.Link().Refuse(nil)
		time.Sleep(20 * time.Second)
		mustUnlock(t, held)
	})
}

func TestCloseEndsWaitingAndLeavesHeldLocks(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		other := l.Another()
		held, foreign := mustLock(t, l), asking(t.Context(), other)
		w := asking(t.Context(), l)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		failed(t, w, locker.ErrClosed)
		if _, err := l.Lock(t.Context(), "b"); !errors.Is(err, locker.ErrClosed) {
			t.Errorf("Lock after Close: %v", err)
		}
		time.Sleep(time.Hour)
		mustUnlock(t, held) // which was renewed
		if err := other.Close(); err != nil {
			t.Error(err)
		}
		if o := settled(t, foreign); o.err == nil {
			mustUnlock(t, o.lock)
		}
	})
}

// While a lock is given back nobody holds it, and the store has not said who does.
//
//	a goroutine stands in line; the store falls silent; the holder unlocks; another
//	goroutine and a TryLock come; the contexts of all end
func TestCallsEndWithTheirContextsWhileAnotherUnlocksAtASilentStore(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		held := mustLock(t, l)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		before := asking(ctx, l, locker.WithHolder("another"))
		l.Link().Cut()
		unlocked := make(chan error, 1)
		go func() { unlocked <- held.Unlock(t.Context()) }()
		synctest.Wait()
		after, once := asking(ctx, l), trying(ctx, l)
		time.Sleep(300 * time.Millisecond)
		failed(t, before, locker.ErrTaken, locker.ErrUnavailable)
		failed(t, after, locker.ErrUnavailable, locker.ErrTaken)
		failed(t, once, locker.ErrUnavailable, locker.ErrTaken)
		select {
		case err := <-unlocked:
			t.Errorf("Unlock has returned before them: %v", err)
		default:
		}
		l.Link().Heal()
		time.Sleep(10 * time.Second)
	})
}

// A release that is not answered is made up for, and the next goroutine goes on.
func TestUnlockThatIsNotAnsweredIsCleanedUp(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		held := mustLock(t, l)
		l.Link().Cut()
		got := make(chan error, 1)
		go func() { got <- held.Unlock(t.Context()) }()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if err := <-got; !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrLost) {
			t.Errorf("Unlock on a silent store: %v", err)
		}
		l.Link().Heal()
		time.Sleep(2 * time.Second)
		lock, err := l.Another().TryLock(t.Context(), "a") // long before the lease would have ended
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, lock)
	})
}

// An answer that comes so late that less validity is left than is wanted is no lock,
// and what was granted is given back.
func TestGrantThatComesTooLateIsGivenBack(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		l.Link().Delay(time.Second)
		w, behind := asking(t.Context(), l, locker.WithMinValidity(28*time.Second)), asking(t.Context(), l)
		time.Sleep(1500 * time.Millisecond)
		l.Link().Delay(0) // for what is sent now: the answer is on its way
		time.Sleep(500 * time.Millisecond)
		failed(t, w, locker.ErrUnavailable, locker.ErrTaken, locker.ErrOutcomeUnknown)
		mustUnlock(t, granted(t, behind)) // whose request it was not
	})
}

// The holder is told that it has lost, and then its renewal is answered after all.
func TestLockThatWasLostIsNotHeldAgainByALateRenewal(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		held := mustLock(t, l, locker.WithTTL(time.Second))
		time.Sleep(500 * time.Millisecond)
		l.Link().CutReplies()
		renewed := make(chan error, 1)
		go func() { renewed <- held.Renew(context.WithoutCancel(t.Context())) }()
		<-held.Lost()
		l.Link().Deliver()
		if err := <-renewed; !errors.Is(err, locker.ErrLost) {
			t.Errorf("a renewal that was answered after the loss: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
		lock, err := l.Another().TryLock(t.Context(), "a")
		if err != nil {
			t.Fatalf("what the late renewal left in the store: %v", err)
		}
		mustUnlock(t, lock)
	})
}

// A waiter's grant is not heard. The store takes the lock from it. Its connection breaks, it
// asks again and is granted the lock, which is free.
func TestLossOfAnUnheardGrantDoesNotEndTheNextOne(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		mustLock(t, l.Another(), locker.WithTTL(10*time.Second), locker.WithoutRenewal())
		w := asking(t.Context(), l)
		time.Sleep(time.Second + time.Millisecond/2) // so that Lose never meets a request of the waiter, which the loss might be about
		l.Link().CutReplies()
		for !l.Lose("a") { // the waiter looks by itself
			time.Sleep(10 * time.Millisecond)
		}
		l.Link().Heal()
		time.Sleep(10 * time.Second)
		mustUnlock(t, granted(t, w))
	})
}

// Goal: a number of slots that does not go with what its own process waits for is an error at
// once, and does not wait behind it.
func TestAnotherNumberOfSlotsThanItsProcessWaitsForIsAMismatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lockertest.New()
		for range 2 {
			held, err := l.Another().TryLock(t.Context(), "a", locker.WithSlots(2))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = held.Unlock(context.Background()) }()
		}
		ctx, stop := context.WithCancel(t.Context())
		waits := asking(ctx, l, locker.WithSlots(2))
		began := time.Now()
		if _, err := l.Lock(t.Context(), "a", locker.WithSlots(3), locker.WithWait(time.Minute)); !errors.Is(err, locker.ErrMismatch) || time.Since(began) > 0 {
			t.Errorf("Lock with another number of slots: %v", err)
		}
		stop()
		if x := settled(t, waits); !errors.Is(x.err, locker.ErrTaken) {
			t.Errorf("the one that waits: %v", x.err)
		}
	})
}
