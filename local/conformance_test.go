package local_test

import (
	"testing"

	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/local"
)

func TestConformance(t *testing.T) {
	dir := t.TempDir()
	conformance.Run(t, conformance.Harness{
		New: func(t testing.TB) conformance.Client {
			l, err := local.New(dir, local.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
			return conformance.Client{Locker: l} // there is no network
		},
	})
}
