package singlenode_test

import (
	"testing"

	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

func TestConformance(t *testing.T) {
	srv := testserver.Redis(t)
	conformance.Run(t, conformance.Harness{
		New: func(t testing.TB) conformance.Client {
			p := conformance.NewProxy(t, srv.Addr())
			return conformance.Through(newLocker(t, p.Addr(), singlenode.Options{}), p)
		},
	})
}
