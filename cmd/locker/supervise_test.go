package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/lockertest"
)

// Two locks need not end together: one may have been granted while the other was waited for, or the
// last renewal has reached one of them alone. The command must be asked to end before the first of
// them ends, whichever that is.
func TestCommandIsAskedToEndBeforeTheFirstOfItsLocksEnds(t *testing.T) {
	for later, first := range []int{1, 0} {
		synctest.Test(t, func(t *testing.T) {
			store := lockertest.New()
			set, err := locker.LockAll(t.Context(), store, []string{"a", "b"}, locker.WithTTL(12*time.Second), locker.WithoutRenewal())
			if err != nil {
				t.Fatal(err)
			}
			s := &supervisor{set: set}
			if next := s.look(); next != time.Second { // of the whole validity; a machine that was suspended is found out
				t.Errorf("the supervisor looks again in %v", next)
			}
			time.Sleep(5 * time.Second)
			if err := set.Locks()[later].Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
			grace := s.whole / 4
			time.Sleep(time.Until(set.Locks()[first].Deadline()) - grace - glance/2)
			if next := s.look(); next != glance/2 {
				t.Errorf("the supervisor looks again in %v, and the time of grace before the end of lock %d begins in %v", next, first, glance/2)
			}
			if err := set.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
