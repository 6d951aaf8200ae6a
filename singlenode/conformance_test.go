package singlenode_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/internal/lab/testserver"
	"github.com/lockstile/locker/singlenode"
)

func TestConformance(t *testing.T) {
	srv := testserver.Redis(t)
	conformance.Run(t, harness(srv.Addr(), redis.Options{}))
}

// The client gives up on a silent server after some seconds by itself. Nothing
// may lean on that: our callers' deadlines are shorter. And each clause has a server
// of its own: none may live on what its neighbours have left, such as scripts that
// the server knows already.
func TestEachClauseHoldsAloneWithAClientThatIsPatient(t *testing.T) {
	patient := redis.Options{DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, PoolTimeout: time.Minute}
	for _, c := range conformance.Clauses() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, harness(testserver.Redis(t).Addr(), patient)) })
	}
}

func harness(addr string, opts redis.Options) conformance.Harness {
	return conformance.Harness{
		New: func(t testing.TB) conformance.Client {
			p := conformance.NewProxy(t, addr)
			opts := opts
			opts.Addr = p.Addr()
			return conformance.Through(newLockerOn(t, redis.NewClient(&opts), singlenode.Options{}), p)
		},
	}
}
