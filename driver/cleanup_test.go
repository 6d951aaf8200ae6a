package driver

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var errNot = errors.New("not yet")

func TestPersistTriesUntilItIsConfirmedOrItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		l := &Locker[int]{closing: t.Context()}
		if !l.Persist(func(context.Context) error {
			switch tries++; tries {
			case 1, 2:
				return errNot
			case 3:
				panic("a hook of the client's")
			}
			return nil
		}) || tries != 4 {
			t.Errorf("not confirmed after %d tries", tries)
		}
		begin := time.Now()
		if l.Persist(func(ctx context.Context) error {
			asked := time.Now()
			<-ctx.Done()
			if took := time.Since(asked); took != time.Second {
				t.Errorf("a try had %v", took)
			}
			return ctx.Err()
		}) {
			t.Error("confirmed by a store that is silent")
		}
		if took := time.Since(begin); took < 10*time.Second || took > 12*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// Pauses that grow too soon leave a lock that could be free, and others are a storm.
func TestPersistPausesLongerEachTimeUpToASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pauses []time.Duration
		last := time.Now()
		l := &Locker[int]{closing: t.Context()}
		l.Persist(func(context.Context) error {
			pauses, last = append(pauses, time.Since(last)), time.Now()
			return errNot
		})
		want := []time.Duration{0, 10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000}
		for i := range want {
			want[i] *= time.Millisecond
		}
		if !slices.Equal(pauses, want) {
			t.Errorf("the pauses were %v, want %v", pauses, want)
		}
	})
}

// A server that refuses us for a moment, for it runs a long script, is asked again for as long as
// Close waits.
func TestPersistGoesOnWhileCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closing, end := context.WithCancel(t.Context())
		tries, closed := 0, time.Now()
		l := &Locker[int]{closing: closing}
		ok := l.Persist(func(ctx context.Context) error {
			if ctx.Err() != nil {
				t.Errorf("the context of try %d has ended", tries+1)
			}
			if tries++; tries == 2 {
				end()
				closed = time.Now()
			}
			return errNot
		})
		if took := time.Since(closed); ok || tries < 8 || took != releaseTime {
			t.Errorf("confirmed: %v, after %d tries, %v after Close", ok, tries, took)
		}
	})
}
