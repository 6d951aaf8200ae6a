package singlenode_test

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, harness(t, redis.Options{ContextTimeoutEnabled: true}))
}

// A client that heeds deadlines keeps those of its callers, however long it would read by itself. One that
// ignores them ends a call by its own timeout. And each clause has a server of its own: none may live on
// what its neighbours have left, such as scripts that the server knows already.
func TestEachClauseHoldsAloneWithAClientThatIsPatient(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make proof: the suite once more, with another client")
	}
	const long = 12 * time.Second // and no more: for so long a call that is cancelled may last while the server is silent
	for name, opts := range map[string]redis.Options{
		"heeds":   {ContextTimeoutEnabled: true, DialTimeout: long, ReadTimeout: long, WriteTimeout: long, PoolTimeout: long},
		"ignores": {ReadTimeout: 3 * time.Second}, // a call lasts for that, whatever its deadline; the clauses allow five seconds
	} {
		for _, c := range conformance.Clauses() {
			t.Run(name+"/"+c.Name, func(t *testing.T) { c.Run(t, harness(t, opts)) })
		}
	}
}

// harness returns a harness on one server. It starts when the first clause needs it: dozens
// that wait for their turn keep a machine busy.
func harness(t *testing.T, opts redis.Options) conformance.Harness {
	start := sync.OnceValue(func() *testserver.RedisServer { return testserver.Redis(t) })
	return conformance.Harness{
		New: func(t testing.TB) conformance.Process {
			p := conformance.NewProxy(t, start().Addr())
			opts := opts
			opts.Addr = p.Addr()
			return conformance.Process{Locker: newLockerOn(t, redis.NewClient(&opts), singlenode.Options{}), Network: p}
		},
	}
}
