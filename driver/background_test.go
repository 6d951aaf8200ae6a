package driver

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitIsForWorkThatBeginsMeanwhileToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackground()
		b.wait() // for nothing
		var ended atomic.Int32
		b.run(func() {
			time.Sleep(time.Second)
			b.run(func() {
				time.Sleep(time.Second)
				ended.Add(1)
			})
			ended.Add(1)
		})
		done := make(chan struct{}, 2)
		for range 2 {
			go func() {
				b.wait()
				done <- struct{}{}
			}()
		}
		<-done
		<-done
		if n := ended.Load(); n != 2 {
			t.Errorf("%d of 2 had ended", n)
		}
	})
}
