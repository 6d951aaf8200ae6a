package local_test

import (
	"testing"

	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/local"
)

func TestConformance(t *testing.T) {
	dir := t.TempDir()
	conformance.Run(t, conformance.Harness{
		New: func(t testing.TB) conformance.Process {
			l, err := local.New(dir)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
			return conformance.Process{Locker: l} // there is no network
		},
	})
}
