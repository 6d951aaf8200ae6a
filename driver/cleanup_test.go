package driver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var errNot = errors.New("not yet")

func TestPersistTriesUntilItIsConfirmedOrItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries, begin := 0, time.Now()
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
		if l.Persist(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }) {
			t.Error("confirmed by a store that is silent")
		}
		if took := time.Since(begin); took < persistTime || took > persistTime+2*tryTime {
			t.Errorf("it took %v", took)
		}
	})
}

func TestPersistTriesOnceMoreAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closing, end := context.WithCancel(t.Context())
		tries, closed := 0, time.Now()
		l := &Locker[int]{closing: closing}
		ok := l.Persist(func(context.Context) error {
			if tries++; tries == 2 {
				end()
				closed = time.Now()
			}
			return errNot
		})
		if took := time.Since(closed); ok || tries != 3 || took > 0 {
			t.Errorf("confirmed: %v, after %d tries, %v after Close", ok, tries, took)
		}
	})
}
