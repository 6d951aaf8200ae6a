package redlock

import (
	"context"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/contract"
	"github.com/lockstile/locker/internal/redisnode"
)

// A waiter's request to node 2 stands behind all connections of the client. Another node
// refuses the waiter's value, so it takes a new one. The connections stay busy for longer
// than a clean-up waits for one, and then the request under the old value would be sent.
func TestNothingIsAskedUnderAnOldValue(t *testing.T) {
	s, servers := threeNodes(t)
	a := newAttempt(t, s)
	n := s.nodes[2]
	for range cap(n.conns) {
		n.conns <- struct{}{}
	}
	c := s.newContest(a, true, func() context.Context { return t.Context() })
	c.ask(2)
	old := a.parts[2].Value
	c.changeValue()
	time.Sleep(cleanUpTime + time.Second)
	for range cap(n.conns) {
		<-n.conns
	}
	time.Sleep(time.Second)
	if got := servers[2].Do("GET", "a"); got == old {
		t.Errorf("the node has granted the old value, for another %s ms; it is among the parts that are cleared away: %v",
			servers[2].Do("PTTL", "a"), a.parts[2].Value == old)
	}
	if !n.redis.Mail().Idle() {
		t.Error("the box of the old value is open")
	}
}

// A node has granted it, and refuses the next request of the same attempt.
func TestGrantIsGivenBackThoughALaterRequestWasRefused(t *testing.T) {
	s, servers := threeNodes(t)
	a := newAttempt(t, s)
	part := &a.parts[0]
	if st, err := s.ask(part, new(instant), s.nodes[0], redisnode.Ask{}, nil); err != nil || st.First == 0 {
		t.Fatalf("%+v, %v", st, err)
	}
	servers[0].Do("ACL", "SETUSER", "default", "-eval", "-evalsha")
	_, err := s.ask(part, new(instant), s.nodes[0], redisnode.Ask{}, nil)
	servers[0].Do("ACL", "SETUSER", "default", "+eval", "+evalsha")
	if err == nil {
		t.Fatal("not refused")
	}
	if !a.left() && servers[0].Do("EXISTS", "a") != "0" {
		t.Errorf("nothing is said to be left after %q, and the node has it", err)
	}
}

// Late answers give a majority while the contest rests, with two tokens: one node is
// being raised. A word comes, and all are asked. The caller's ctx ends, and nobody reads
// an answer any more.
func TestContestThatIsLeftWhileItRaisesANodeLeavesNoGoroutine(t *testing.T) {
	s, servers := threeNodes(t)
	a := newAttempt(t, s)
	for i := range a.parts { // late grants
		if st, err := s.ask(&a.parts[i], new(instant), s.nodes[i], redisnode.Ask{Offer: time.Now().UnixMicro() + int64(i)*50}, nil); err != nil || st.First == 0 {
			t.Fatalf("%+v, %v", st, err)
		}
	}
	c := s.newContest(a, true, func() context.Context { return t.Context() })
	c.resting = true
	c.note(answer{node: 0, standing: redisnode.Standing{First: 100}})
	c.note(answer{node: 1, standing: redisnode.Standing{First: 200}})
	c.votes[2] = vote{state: failed}
	for _, srv := range servers {
		srv.Pause()
	}
	if v := judge(c.votes, c.situation); v != short {
		t.Fatal(v)
	}
	c.raise()
	c.wake() // or a word
	for _, srv := range servers {
		srv.Resume()
	}
	for end := time.Now().Add(30 * time.Second); s.locks.UnderWay(contract.Key{}) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines are left, %d answers unread", s.locks.UnderWay(contract.Key{}), len(c.answers))
		}
	}
}

// A value was given up, its node is silent, and under the new one nothing was asked.
func TestWhatAFormerValueMayHaveLeftIsLeft(t *testing.T) {
	s, servers := threeNodes(t)
	a := newAttempt(t, s)
	if st, err := s.ask(&a.parts[0], new(instant), s.nodes[0], redisnode.Ask{}, nil); err != nil || st.First == 0 {
		t.Fatalf("%+v, %v", st, err)
	}
	servers[0].Pause()
	s.newContest(a, false, nil).changeValue()
	if !a.left() {
		t.Error("nothing is said to be left, and a node has the lock")
	}
	servers[0].Resume()
	for end := time.Now().Add(30 * time.Second); a.left(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it is not cleared away")
		}
	}
}
