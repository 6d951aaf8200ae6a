package testbed_test

import (
	"testing"

	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/testbed"
)

// sound is a network that does not break when it is told to.
type sound struct{ conformance.Network }

func (sound) Cut()        {}
func (sound) CutReplies() {}
func (sound) Stall()      {}

// Goal: nothing is called kept that was not tested. Method: a network that passes
// everything on, for every scenario in which something is late or lost.
func TestNoScenarioTakesANetworkThatWorksForABrokenOne(t *testing.T) {
	for _, c := range []struct{ subject, scenario string }{
		{"singlenode", "lost reply to a lock"},
		{"singlenode", "late lock"},
		{"singlenode", "lost reply to an unlock"},
		{"singlenode", "late unlock"},
		{"singlenode", "late renewal"},
		{"singlenode", "slow answer"},
		{"singlenode", "slow renewal"},
		{"singlenode", "lost notification"},
		{"singlenode", "waiter cut off"},
		{"postgres tx", "delayed write"},
	} {
		t.Run(c.scenario, func(t *testing.T) {
			t.Parallel()
			judged(t, withSoundNetwork(t, c.subject), c.scenario, matrix.NotPlayed)
		})
	}
}

// Goal: what is delivered before anybody else has the lock is not late. Method: a lock that
// never expires.
func TestAnUnlockThatNobodyGotTheLockBeforeIsNotLate(t *testing.T) {
	t.Parallel()
	judged(t, testbed.Specimen("no expiry"), "late unlock", matrix.NotPlayed)
}

func withSoundNetwork(t *testing.T, name string) matrix.Subject {
	t.Helper()
	sub := subject(t, name)
	start := sub.Start
	sub.Start = func(lab *matrix.Lab) (*matrix.System, error) {
		sys, err := start(lab)
		if err != nil {
			return nil, err
		}
		client := sys.Client
		sys.Client = func() (string, conformance.Network, error) {
			url, net, err := client()
			return url, sound{net}, err
		}
		return sys, nil
	}
	return sub
}

// oneRedis is a subject whose system is made of one server by the test.
func oneRedis(t *testing.T, make func(*matrix.Lab, *testserver.RedisServer) *matrix.System) matrix.Subject {
	sub := subject(t, "singlenode")
	sub.Start = func(lab *matrix.Lab) (*matrix.System, error) { return make(lab, testserver.Redis(lab)), nil }
	return sub
}

// Goal: an error of the set-up does not show that the lock is held. Method: C, which is
// to be kept out, is not allowed to ask. Before it come the worker that asks whether the store is there, A and B.
func TestAWorkerThatMayNotAskIsNotKeptOut(t *testing.T) {
	t.Parallel()
	broken := oneRedis(t, func(_ *matrix.Lab, srv *testserver.RedisServer) *matrix.System {
		srv.Do("ACL", "SETUSER", "nobody", "on", ">secret", "+@connection")
		workers := 0
		return &matrix.System{Client: func() (string, conformance.Network, error) {
			if workers++; workers == 4 {
				return "redis://nobody:secret@" + srv.Addr(), nil, nil
			}
			return "redis://" + srv.Addr(), nil, nil
		}}
	})
	judged(t, broken, "unlock by a former holder", matrix.NotPlayed)
}

// A store that is full refuses a lock whatever its replica has.
func TestAnotherRefusalIsNotTakenForThatOfALaggingReplica(t *testing.T) {
	t.Parallel()
	full := oneRedis(t, func(lab *matrix.Lab, srv *testserver.RedisServer) *matrix.System {
		limit := func(bytes string) func() error {
			return func() error { return lab.Try(func() { srv.Do("CONFIG", "SET", "maxmemory", bytes) }) }
		}
		return &matrix.System{
			Client:   func() (string, conformance.Network, error) { return "redis://" + srv.Addr(), nil, nil },
			Lag:      limit("1"),
			FailOver: limit("0"),
		}
	})
	judged(t, full, "failover", matrix.NotPlayed)
}
