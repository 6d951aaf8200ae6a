package matrix

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/proof/matrix/internal/judge"
)

// Goal: a store that is slow for a moment is asked again, and only a lock that was lost is a
// promise that was not kept.
func TestALockThatIsLostThoughNothingIsBrokenIsAFalseClaim(t *testing.T) {
	slow := report{Kind: kindRenewed, Err: "no answer", NoStore: true}
	for _, c := range []struct {
		name    string
		answers []report
		want    Verdict
	}{
		{"renewed", []report{{Kind: kindRenewed}}, Kept},
		{"slow, then renewed", []report{slow, slow, {Kind: kindRenewed}}, Kept},
		{"slow, then lost", []report{slow, {Kind: kindRenewed, Err: "lost", Lost: true}}, FalseClaim},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := attempts(t, time.Second, c.answers...)
			if err := try(func() { (workerLock{Worker: w, Token: 1}).mustRenew() }); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			if got := judge.Find(locker.Guarantees{}, 0, w.play.History); got.Verdict != c.want {
				t.Errorf("%s: %s (%s), not %s", c.name, got.Verdict, got.Why, c.want)
			}
		})
	}
}
