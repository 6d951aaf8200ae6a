package chores

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A chore that begins while somebody waits is waited for, too.
func TestWaitIsForChoresThatBeginMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Chores
		c.Wait() // for nothing
		var ended atomic.Int32
		c.Go(func() {
			time.Sleep(time.Second)
			c.Go(func() {
				time.Sleep(time.Second)
				ended.Add(1)
			})
			ended.Add(1)
		})
		done := make(chan struct{}, 2)
		for range 2 {
			go func() {
				c.Wait()
				done <- struct{}{}
			}()
		}
		<-done
		<-done
		if n := ended.Load(); n != 2 {
			t.Errorf("%d of 2 chores had ended", n)
		}
	})
}

var errNot = errors.New("not yet")

func TestPersistTriesUntilItIsConfirmedOrItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries, begin := 0, time.Now()
		if !Persist(t.Context(), func(context.Context) error {
			if tries++; tries < 4 {
				return errNot
			}
			return nil
		}) || tries != 4 {
			t.Errorf("not confirmed after %d tries", tries)
		}
		if Persist(t.Context(), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }) {
			t.Error("confirmed by a store that is silent")
		}
		if took := time.Since(begin); took < persistTime || took > persistTime+2*tryTime {
			t.Errorf("it took %v", took)
		}
	})
}

func TestPersistTriesOnceMoreAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closing, end := context.WithCancel(t.Context())
		tries := 0
		ok := Persist(closing, func(context.Context) error {
			if tries++; tries == 2 {
				end()
			}
			return errNot
		})
		if ok || tries != 3 {
			t.Errorf("confirmed: %v, after %d tries", ok, tries)
		}
	})
}
