package lockertest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/lockertest"
)

func TestMessagesTakeAsLongAsTheLinkDelaysThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := lockertest.New()
		for _, delay := range []time.Duration{100 * time.Millisecond, 0} {
			a.Link().Delay(delay)
			began := time.Now()
			mustUnlock(t, mustLock(t, a))
			if took := time.Since(began); took != 4*delay { // two requests, two answers
				t.Errorf("Lock and Unlock took %v, with a delay of %v", took, delay)
			}
		}
	})
}

// The messages of both take a while, and one of them must not arrive.
func TestNothingArrivesOverALinkThatIsCut(t *testing.T) {
	for what, c := range map[string]struct {
		cut     func(*lockertest.Link)
		arrives bool
	}{
		"Cut": {(*lockertest.Link).Cut, false}, "CutReplies": {(*lockertest.Link).CutReplies, true}, "Stall": {(*lockertest.Link).Stall, false},
		"EndUnheard": {(*lockertest.Link).EndUnheard, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := lockertest.New()
			defer a.Close()
			a.Link().Delay(100 * time.Millisecond)
			c.cut(a.Link())
			if _, err := a.TryLock(t.Context(), "a", locker.WithMinValidity(29*time.Second)); !errors.Is(err, locker.ErrUnavailable) {
				t.Errorf("%s: TryLock: %v", what, err)
			}
			if info, err := a.Another().Inspect(t.Context(), "a"); err != nil || (info.Token > 0) != c.arrives {
				t.Errorf("%s: the store knows %+v, %v", what, info, err)
			}
			a.Link().Heal()
		})
	}
}

func TestWhatWasHeldBackArrivesWhenItIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, cut := range map[string]func(*lockertest.Link){
			"Cut": (*lockertest.Link).Cut, "CutReplies": (*lockertest.Link).CutReplies, "Stall": (*lockertest.Link).Stall,
		} {
			a := lockertest.New()
			cut(a.Link())
			next := waits(t, a)
			if len(next) > 0 {
				t.Errorf("%s: it was answered", what)
			}
			began := time.Now()
			a.Link().Deliver()
			lock := <-next
			if took := time.Since(began); took > 0 {
				t.Errorf("%s: the answer came %v after it was delivered", what, took)
			}
			mustUnlock(t, lock)
		}
	})
}

// The store has ended the connection, and the process has not heard of it.
func TestARequestOverAConnectionThatHasEndedIsNeverDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := lockertest.New()
		defer a.Close()
		a.Link().EndUnheard()
		ended := make(chan error, 1)
		go func() {
			_, err := a.Inspect(t.Context(), "a")
			ended <- err
		}()
		synctest.Wait()
		if requests, replies := a.Link().HeldBack(); requests != 1 || replies != 0 || len(ended) > 0 {
			t.Errorf("%d requests and %d replies are held back, and %d calls have ended", requests, replies, len(ended))
		}
		a.Link().CutReplies() // requests pass, over connections that have not ended
		another := make(chan error, 1)
		go func() {
			_, err := a.Inspect(t.Context(), "a")
			another <- err
		}()
		synctest.Wait()
		if requests, replies := a.Link().HeldBack(); requests != 2 || replies != 0 {
			t.Errorf("later %d requests and %d replies are held back", requests, replies)
		}
		a.Link().Deliver()
		if first, second := <-ended, <-another; first == nil || second == nil {
			t.Errorf("they were answered: %v, %v", first, second)
		}
		mustUnlock(t, mustLock(t, a)) // over the next connection
	})
}

func TestConnectionsThatComeAfterTheEndAreSilentToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := lockertest.New()
		defer a.Close()
		a.Link().EndUnheard()
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := a.Inspect(ctx, "a"); err == nil {
				t.Error("it was answered")
			}
			cancel()
		}
		a.Link().Heal()
	})
}

func TestOneMoreAnswerPasses(t *testing.T) {
	afterOne, nothing := (*lockertest.Link).CutRepliesAfterOne, func(*lockertest.Link) {}
	for what, c := range map[string]struct {
		first, second func(*lockertest.Link) // before the first question, and before the second
		come          int
	}{
		"that comes":         {nothing, afterOne, 2},
		"that was held back": {(*lockertest.Link).CutReplies, afterOne, 1},
		"and no second":      {afterOne, nothing, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := lockertest.New()
			defer a.Close()
			answers := make(chan error, 2)
			for _, cut := range []func(*lockertest.Link){c.first, c.second} {
				cut(a.Link())
				go func() {
					_, err := a.Inspect(t.Context(), "a")
					answers <- err
				}()
				synctest.Wait()
			}
			if requests, replies := a.Link().HeldBack(); len(answers) != c.come || requests != 0 || replies != 2-c.come {
				t.Errorf("%s: %d came, %d requests and %d replies are held back", what, len(answers), requests, replies)
			}
			a.Link().Deliver()
			for range 2 {
				if err := <-answers; err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

// The reply is on a connection that is gone, or whose time has not come.
func TestTheOneMoreAnswerIsOfTheConnectionThatWorks(t *testing.T) {
	for what, breaks := range map[string]func(*lockertest.Link){
		"EndUnheard": (*lockertest.Link).EndUnheard, "Stall": (*lockertest.Link).Stall,
	} {
		synctest.Test(t, func(t *testing.T) {
			a := lockertest.New()
			defer a.Close()
			a.Link().Delay(100 * time.Millisecond)
			answered := make(chan error, 1)
			go func() {
				_, err := a.Inspect(t.Context(), "a")
				answered <- err
			}()
			time.Sleep(50 * time.Millisecond) // the request is on its way
			breaks(a.Link())
			time.Sleep(100 * time.Millisecond)
			a.Link().CutRepliesAfterOne()
			synctest.Wait()
			if _, replies := a.Link().HeldBack(); replies != 1 || len(answered) > 0 {
				t.Errorf("%s: %d replies are held back, %d came", what, replies, len(answered))
			}
			a.Link().Heal()
			<-answered
		})
	}
}

func TestAStoreThatRefusesDoesNothingUntilItRefusesNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, full := lockertest.New(), errors.New("full")
		defer a.Close()
		held, err := a.TryLock(t.Context(), "held")
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			a.Link().Refuse(full)
			if err := held.Unlock(t.Context()); !errors.Is(err, full) || !errors.Is(err, locker.ErrUnavailable) {
				t.Errorf("Unlock in a store that refuses it: %v", err)
			}
			a.Link().Refuse(nil)
		}()
		a.Link().Refuse(full)
		if _, err := a.TryLock(t.Context(), "a"); !errors.Is(err, full) || !errors.Is(err, locker.ErrUnavailable) {
			t.Fatalf("TryLock of a store that refuses it: %v", err)
		}
		a.Link().Refuse(nil)
		mustUnlock(t, mustLock(t, a.Another()))
		mustUnlock(t, mustLock(t, a))
	})
}

// The word that the lock is free is on a connection that breaks.
func TestAWaiterWhoseConnectionBreaksAsksAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := lockertest.New()
		b := a.Another()
		held := mustLock(t, a)
		next := waits(t, b)
		b.Link().CutReplies()
		mustUnlock(t, held)
		synctest.Wait()
		b.Link().Heal()
		synctest.Wait()
		if len(next) == 0 {
			t.Error("it sleeps though the lock is free")
		}
		mustUnlock(t, <-next)
	})
}

// Who gives up a request that is not answered sends the next one over another connection.
func TestAConnectionThatStalledIsNotUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := lockertest.New()
		a.Link().Stall()
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.TryLock(hasty, "a"); !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("TryLock over a connection that stalls: %v", err)
		}
		gaveUp := time.Now()
		mustUnlock(t, mustLock(t, a))
		if took := time.Since(gaveUp); took > 0 {
			t.Errorf("the next one was answered after %v", took)
		}
	})
}

// The second request on the first connection is given up when another connection is open, which
// stalls as well by then.
func TestARequestThatIsGivenUpEndsItsOwnConnectionAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := lockertest.New()
		defer a.Close()
		try := func(name string, wait time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			_, err := a.Inspect(ctx, name)
			return err
		}
		a.Link().Stall()
		second := make(chan error, 1)
		go func() { second <- try("second", 2*time.Second) }()
		if err := try("first", time.Second); err == nil {
			t.Error("the first was answered")
		}
		a.Link().Stall()
		if err := <-second; err == nil {
			t.Error("the second was answered")
		}
		if err := try("third", time.Second); err == nil {
			t.Error("the third was answered over a connection that stalls")
		}
		a.Link().Heal()
	})
}

func TestARefusedAttemptHasAKnownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := lockertest.New()
		no := errors.New("the password is wrong")
		a.Link().Refuse(no)
		for verb, call := range map[string]func(context.Context, string, ...locker.Option) (*locker.Lock, error){"Lock": a.Lock, "TryLock": a.TryLock} {
			began := time.Now()
			_, err := call(t.Context(), "a")
			if !errors.Is(err, no) || !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrOutcomeUnknown) || time.Since(began) > 0 {
				t.Errorf("%s of a store that refuses, and does nothing, after %v: %v", verb, time.Since(began), err)
			}
		}
	})
}

// asked has a asked for a name, and returns where the end of the call comes.
func asked(ctx context.Context, a *lockertest.Locker, name string) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := a.Inspect(ctx, name)
		ended <- err
	}()
	synctest.Wait()
	return ended
}

// Goal: the last call decides what passes.
func TestCutRepliesAfterACutLetsTheRequestArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := lockertest.New()
		defer a.Close()
		a.Link().Cut()
		ended := asked(t.Context(), a, "a")
		a.Link().CutReplies()
		if requests, replies := a.Link().HeldBack(); requests != 0 || replies != 1 {
			t.Errorf("%d requests and %d replies are held back, want the reply alone", requests, replies)
		}
		a.Link().Deliver()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestTheEndOfAStallIsAlsoOfWhatIsOnItsWay(t *testing.T) {
	for what, end := range map[string]func(*lockertest.Link){"Deliver": (*lockertest.Link).Deliver, "Heal": (*lockertest.Link).Heal} {
		synctest.Test(t, func(t *testing.T) {
			a := lockertest.New()
			defer a.Close()
			a.Link().Delay(100 * time.Millisecond)
			ended := asked(t.Context(), a, "a")
			time.Sleep(50 * time.Millisecond)
			a.Link().Stall()
			end(a.Link())
			time.Sleep(300 * time.Millisecond)
			if requests, replies := a.Link().HeldBack(); requests+replies != 0 || len(ended) == 0 {
				t.Errorf("after %s %d requests and %d replies are held back, %d calls have ended", what, requests, replies, len(ended))
			}
			a.Link().Heal()
			<-ended
		})
	}
}

func TestEndUnheardEndsAConnectionThatAnotherCallHasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := lockertest.New()
		defer a.Close()
		a.Link().CutReplies()
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first, second := asked(hasty, a, "a"), asked(t.Context(), a, "b")
		<-first
		a.Link().EndUnheard()
		a.Link().Deliver()
		if err := <-second; err == nil {
			t.Error("it was answered over a connection that had ended")
		}
	})
}

// The refusal is the store's, and comes over the link.
func TestARefusalDoesNotPassALinkThatIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, full := lockertest.New(), errors.New("full")
		defer a.Close()
		a.Link().Refuse(full)
		a.Link().Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.TryLock(ctx, "a"); err == nil || errors.Is(err, full) {
			t.Errorf("through a cut it was answered: %v", err)
		}
		a.Link().Refuse(nil)
		a.Link().Heal()
	})
}
