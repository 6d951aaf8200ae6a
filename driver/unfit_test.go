package driver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
)

// saying is a store whose answers a test gives.
type saying struct {
	*backend
	acquire func(ctx context.Context, h *hold, wait Wait) (Grant, Left, error)
}

func (s *saying) Acquire(ctx context.Context, h *hold, wait Wait) (Grant, Left, error) {
	return s.acquire(ctx, h, wait)
}

// The servers allow no TTL as short as the first call's. Those behind it ask for another one.
func TestARefusalOfOneRequestIsNoAnswerForThoseBehind(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		s := &saying{backend: newBackend()}
		l := New("s", s, Options{Clock: ticking.now})
		unfit := errors.New("ttl 1s is under the limit of the servers, 2s")
		s.acquire = func(ctx context.Context, h *hold, wait Wait) (Grant, Left, error) {
			if wait == nil {
				time.Sleep(time.Second)
				return Grant{}, Nothing, Unfit(unfit)
			}
			return s.backend.Acquire(ctx, h, wait)
		}
		first, behind := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := l.TryLock(t.Context(), "a")
			first <- err
		}()
		synctest.Wait()
		go func() {
			lock, err := l.Lock(t.Context(), "a")
			if err == nil {
				err = lock.Unlock(t.Context())
			}
			behind <- err
		}()
		if err := <-first; !errors.Is(err, unfit) || !errors.Is(err, locker.ErrUnavailable) || !errors.Is(err, locker.ErrRefused) {
			t.Error(err)
		}
		if err := <-behind; err != nil {
			t.Errorf("a Lock with a TTL of its own: %v", err)
		}
	})
}

// The servers serve again, and have said that the lock is taken. Then they fall silent for an hour.
func TestWhatAServerSaidOfItsYouthIsForgotten(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		s, soon := &saying{backend: newBackend()}, errors.New("no vote for another 31 s: it was started not long ago")
		l := New("s", s, Options{Clock: ticking.now})
		first := true
		s.acquire = func(ctx context.Context, h *hold, wait Wait) (Grant, Left, error) {
			if first {
				first = false
				l.NotYet("a", h, soon)
				time.Sleep(time.Minute) // they are old enough
				ctx = wait()            // and say that it is taken
			}
			select { // silence
			case <-time.After(2 * time.Second):
				return Grant{}, Nothing, errors.New("silent")
			case <-ctx.Done():
				return Grant{}, Nothing, ctx.Err()
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := l.Lock(ctx, "a")
			done <- err
		}()
		time.Sleep(time.Hour)
		short, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		_, waited := l.Lock(short, "a")
		_, tried := l.TryLock(t.Context(), "a")
		if errors.Is(tried, soon) || errors.Is(waited, soon) {
			t.Errorf("an hour later: %v; %v", tried, waited)
		}
		cancel()
		if err := <-done; !errors.Is(err, locker.ErrTaken) {
			t.Error(err)
		}
	})
}

// A waiter is told "taken", its request breaks, and the next one is refused before it is sent.
func TestWhatAnEarlierCallHasLeftIsWithdrawn(t *testing.T) {
	for _, first := range []Left{Unsure, Nothing} {
		virtual(t, func(t *testing.T, _ *clock) {
			s, asked := &saying{backend: newBackend()}, 0
			l := New("s", s, Options{Clock: ticking.now})
			s.acquire = func(_ context.Context, _ *hold, wait Wait) (Grant, Left, error) {
				wait()
				if asked++; asked == 1 {
					return Grant{}, first, errors.New("no answer")
				}
				return Grant{}, Nothing, Refused(errors.New("no"))
			}
			_, err := l.Lock(t.Context(), "a")
			if !errors.Is(err, locker.ErrRefused) || asked != 2 {
				t.Errorf("after %d questions: %v", asked, err)
			}
			if withdrawn := s.releases() > 0; withdrawn != (first == Unsure) {
				t.Errorf("the first has left %v, and it was withdrawn: %v", first, withdrawn)
			}
		})
	}
}

// A client tells a store that the lock is taken, and is late with it: the reader has its lock, and
// nobody is in front any more.
func TestWordThatItIsTakenAfterTheGrantIsPassedOver(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		s, told := &saying{backend: newBackend()}, Wait(nil)
		l := New("s", s, Options{Clock: ticking.now})
		s.acquire = func(ctx context.Context, h *hold, wait Wait) (Grant, Left, error) {
			told = wait
			return s.backend.Acquire(ctx, h, wait)
		}
		first, err := l.Lock(t.Context(), "a", locker.WithShared())
		if err != nil {
			t.Fatal(err)
		}
		told()
		pass(time.Second)
		second, err := l.Lock(t.Context(), "a", locker.WithShared())
		if err != nil {
			t.Fatal(err)
		}
		unlock(t, first, second)
	})
}
