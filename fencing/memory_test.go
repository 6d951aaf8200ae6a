package fencing

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A slow write keeps those of its own resource waiting, and nobody else. Whoever has given up
// meanwhile does not write when the slow one is done.
//
//	Write(a) by 1     takes two seconds
//	Write(b)          at once
//	Write(a) by 2     its context ends after 200 ms: it returns then, and has not written
//	Write(a) by 3     after the first
func TestAWriteWaitsForItsOwnResourceAndNotForLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Memory
		began := time.Now()
		go func() {
			_ = m.Write(t.Context(), "a", 1, func() error { time.Sleep(2 * time.Second); return nil })
		}()
		synctest.Wait()
		if err := m.Check(t.Context(), "b", 1); err != nil || time.Since(began) > 0 {
			t.Errorf("a write to another resource waited for %v: %v", time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		for _, check := range []func() error{
			func() error { return m.Write(ctx, "a", 2, func() error { t.Error("written"); return nil }) },
			func() error { return m.Read(ctx, "a", 2, func() error { t.Error("read"); return nil }) },
		} {
			if err := check(); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a call whose context ended while it waited: %v", err)
			}
		}
		if d := time.Since(began); d != 200*time.Millisecond {
			t.Errorf("they returned after %v", d)
		}
		if err := m.Write(t.Context(), "a", 1, func() error { return nil }); err != nil {
			t.Errorf("the token of a write that was given up is remembered: %v", err)
		}
		if d := time.Since(began); d != 2*time.Second {
			t.Errorf("the next write came after %v", d)
		}
	})
}
