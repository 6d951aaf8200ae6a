package mailbox

import (
	"testing"
	"testing/synctest"
	"time"
)

// A waiter is to look in 50 ms, and is told to stand by. It looks no later: the store takes it for
// dead half a second after that.
func TestWhoStandsByLooksNoLaterForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box := NewBox()
		time.AfterFunc(40*time.Millisecond, func() { box.Put(StandBy) })
		began := time.Now()
		if err := box.Sleep(t.Context(), 50*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 50*time.Millisecond+leeway {
			t.Errorf("it looks after %v", took)
		}
	})
}
