package lockertest_test

import (
	"testing"

	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/lockertest"
)

func TestConformance(t *testing.T) {
	store := lockertest.New()
	conformance.Run(t, conformance.Harness{
		New: func(t testing.TB) conformance.Client {
			l := store.Another()
			t.Cleanup(func() { _ = l.Close() })
			n := l.Link()
			return conformance.Client{Locker: l, Cut: n.Cut, CutReplies: n.CutReplies, Stall: n.Stall, Heal: n.Heal, Deliver: n.Deliver}
		},
	})
}
