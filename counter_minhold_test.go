package locker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/lockertest"
)

// failing is a counter, and a guard, whose store is away.
type failing struct{ err error }

func (f failing) Next(context.Context, string) (fencing.Token, error)            { return 0, f.err }
func (f failing) Check(context.Context, string, fencing.Token) error             { return f.err }
func (f failing) CheckShared(context.Context, string, fencing.SharedToken) error { return f.err }

// Who got no token, or whose claim failed, has not worked: another machine may, at once.
func TestNothingOfAMinimumHoldStaysWhereTheSecondHalfFailed(t *testing.T) {
	away := failing{errors.New("connection refused")}
	for name, try := range map[string]func(locker.Locker) error{
		"a draw": func(l locker.Locker) error {
			_, err := locker.WithCounter(l, away, 0).TryLock(context.Background(), "a", locker.WithMinHold(time.Hour))
			return err
		},
		"a claim": func(l locker.Locker) error {
			work := func(context.Context, *locker.Lock) error { t.Error("called"); return nil }
			return locker.TryDo(context.Background(), l, "a", work, locker.WithMinHold(time.Hour), locker.WithGuard(away, "r"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := lockertest.New()
				other := l.Another()
				if err := try(l); !errors.Is(err, away.err) {
					t.Errorf("the error is %v", err)
				}
				lock, err := other.TryLock(t.Context(), "a")
				if err != nil {
					t.Fatalf("%s has failed, and nobody holds the lock: %v", name, err)
				}
				_ = lock.Unlock(t.Context())
			})
		})
	}
}

// panics is a guard whose client has a defect.
type panics struct{}

func (panics) Check(context.Context, string, fencing.Token) error { panic("a defect") }

// Goal: a claim that panics is a claim that failed. Nobody has worked under the lock, so
// nothing of the minimum hold stays. The caller recovers, as a web server does.
func TestNothingOfAMinimumHoldStaysWhereTheClaimPanicked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lockertest.New()
		other := l.Another()
		func() {
			defer func() {
				if recover() == nil {
					t.Error("Do hides the panic of the claim")
				}
			}()
			work := func(context.Context, *locker.Lock) error { t.Error("called"); return nil }
			_ = locker.TryDo(t.Context(), l, "a", work, locker.WithMinHold(time.Hour), locker.WithGuard(panics{}, "r"))
		}()
		lock, err := other.TryLock(t.Context(), "a")
		if err != nil {
			t.Fatalf("the claim has panicked, and nobody holds the lock: %v", err)
		}
		_ = lock.Unlock(t.Context())
	})
}

// A mutex is no reason for a bubble's clock to stand still, and a channel is none for it to
// run: the second Unlock waits for the first, which waits for the store.
func TestTwoUnlocksAtOnceWaitInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lockertest.New()
		lock, err := l.TryLock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		l.Link().Delay(time.Second / 4)
		results := make(chan error)
		for range 3 {
			go func() { results <- lock.Unlock(t.Context()) }()
		}
		began := time.Now()
		for range 3 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took != time.Second/2 {
			t.Errorf("it took %v", took)
		}
	})
}
