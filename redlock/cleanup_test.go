package redlock

import (
	"context"
	"testing"

	"github.com/lockstile/locker/internal/redisnode"
	"github.com/lockstile/locker/internal/testserver"
)

// A majority of nodes decides: where it is known to have nothing left, nothing is left, also
// when the time is over. Where it is not, the caller must hear that something may be.
func TestNothingIsLeftWhereAMajorityHasNothingLeft(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	s := &store{quorum: 2}
	for _, test := range []struct {
		ctx     context.Context
		clean   int // nodes that have nothing left, as is known already
		results []bool
		want    bool
	}{
		{t.Context(), 0, []bool{true, true, false}, true},
		{t.Context(), 0, []bool{true, false, false}, false},
		{t.Context(), 0, []bool{false, false, false}, false},
		{over, 2, nil, true},
		{over, 1, nil, false},
	} {
		a := &attempt{parts: make([]part, 3), cleanUp: &cleanUp{results: make(chan bool, 3), clean: test.clean, ended: test.clean}}
		for _, r := range test.results {
			a.cleanUp.results <- r
		}
		if err := s.Withdraw(test.ctx, a); (err == nil) != test.want {
			t.Errorf("%d clean, then %v: %v", test.clean, test.results, err)
		}
	}
}

// A node has granted the lock, and is silent when it is given back. The withdrawal arrives later,
// and must not take away what the node grants in the next round. In the other case the node
// refuses the value, for it was withdrawn there.
func TestWaiterGoesOnWithAnotherValueWhereTheOldMayBeTakenAway(t *testing.T) {
	t.Parallel()
	for what, rest := range map[string]func(*contest, *testserver.RedisServer){
		"silence": func(c *contest, srv *testserver.RedisServer) {
			srv.Pause()
			defer srv.Resume()
			c.rest(t.Context())
		},
		"a refusal": func(c *contest, _ *testserver.RedisServer) {
			c.votes[0] = vote{state: failed, err: redisnode.ErrWithdrawn}
			c.rest(t.Context())
		},
	} {
		s, servers := threeNodes(t)
		a := newAttempt(t, s)
		c := s.newContest(a, true, t.Context)
		c.ask(0)
		if c.note(<-c.answers); c.votes[0].state != granted {
			t.Fatalf("%+v", c.votes)
		}
		old := a.parts[0].Value
		if rest(c, servers[0]); a.parts[0].Value == old {
			t.Errorf("after %s the old value is asked for again", what)
		}
	}
}
