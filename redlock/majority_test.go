package redlock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/mailbox"
	"github.com/lockstile/locker/internal/testserver"
)

// A node that an attempt has given back has no vote any more.
//
//	one node grants, three say taken, and the fifth has granted, but its answer is not
//	read yet; the attempt gives back what it has, and then the answer is read: by then
//	the fifth node may be somebody else's
func TestVoteOfANodeThatWasGivenBackIsNotCounted(t *testing.T) {
	servers := make([]*testserver.RedisServer, 5)
	var clients []redis.UniversalClient
	for i := range servers {
		servers[i] = testserver.Redis(t)
		c := redis.NewClient(&redis.Options{Addr: servers[i].Addr()})
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	l, err := New(clients, Options{DurableNodes: true, NodeTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // never fails
	c := l.store.newContest(newAttempt(t, l.store), false, nil)
	for _, s := range servers[1:4] {
		s.Do("SET", "a", "the last holder")
	}
	c.begin(true)
	var unread answer
	for range servers {
		if ans := <-c.answers; ans.node == 4 {
			unread = ans
		} else {
			c.note(ans)
		}
	}
	c.gathered = true
	c.rest(t.Context())
	if unread.standing.First == 0 {
		t.Fatalf("the scenario does not show what it should: %+v", unread)
	}
	if c.note(unread); c.votes[4].state == granted && servers[4].Do("EXISTS", "a") == "0" {
		t.Error("its grant counts, and it has been given back")
	}
}

// A node's grant to a value that the attempt has given up is about to be withdrawn.
func TestAnswerToAnOldValueIsNotRead(t *testing.T) {
	s, _ := threeNodes(t)
	c := s.newContest(newAttempt(t, s), false, nil)
	c.ask(0)
	old := c.answers
	c.changeValue()
	old <- <-old // it has come, and is not read yet
	select {
	case ans := <-c.answers:
		t.Errorf("read: %+v", ans)
	default:
	}
}

// A node says that the lock is taken, and then sends word that it is free. The word is read first:
// the answer is older, so the node is asked again.
func TestWordThatOvertakesAnAnswerIsNotForgotten(t *testing.T) {
	s, servers := threeNodes(t)
	servers[0].Do("SET", "a", "the last holder")
	c := s.newContest(newAttempt(t, s), true, func() context.Context { return t.Context() })
	c.ask(0)
	old := <-c.answers
	servers[0].Do("DEL", "a")
	c.read(word{0, mailbox.Ask})
	c.note(old)
	if c.votes[0].state != asking {
		t.Fatalf("nobody asks the node again: %+v", c.votes[0])
	}
	if c.note(<-c.answers); c.votes[0].state != granted {
		t.Errorf("the lock that was free was not granted: %+v", c.votes[0])
	}
}

// A node is down for an hour, and its waiters look from time to time. That ends no pause
// after a split vote: all waiters would ask at once again, and split the votes.
func TestNodeThatIsDownEndsNoPause(t *testing.T) {
	s, _ := threeNodes(t)
	c := s.newContest(newAttempt(t, s), true, func() context.Context { return t.Context() })
	c.resting, c.votes[0].state, c.votes[1].state = true, failed, waiting
	for i := range c.votes {
		c.read(word{i, mailbox.Look})
	}
	if !c.resting || count(c.votes, asking) > 0 {
		t.Errorf("it asks: %+v", c.votes)
	}
	c.resting = false
	for i := range c.votes {
		c.read(word{i, mailbox.Look})
	}
	if c.votes[1].state != asking || count(c.votes, asking) > 1 {
		t.Errorf("it does not ask the node at which it waits, or asks others: %+v", c.votes)
	}
	c.note(<-c.answers)
}

// Nobody has had a majority for a long time. The pause has doubled as often as it can, and
// has an end.
func TestPauseAfterManySplitVotesHasAnEnd(t *testing.T) {
	s, _ := threeNodes(t)
	c := s.newContest(grantedBy(t, s, 1), true, nil)
	c.votes[0].state, c.splits = granted, 1000
	c.rest(t.Context())
	select {
	case <-c.timer.C:
	case <-time.After(10 * time.Second):
		t.Error("it rests though a majority is worth asking")
	}
}

// One node is free, one is down and one has another holder for an hour. The free one alone is
// no reason to ask, and the one that is down may be back in a second.
func TestNodeThatFailedIsAskedAgainAfterASecond(t *testing.T) {
	now := time.Now()
	c := &contest{s: &store{quorum: 2}, votes: []vote{{state: idle}, {state: failed}, {state: waiting, look: now.Add(time.Hour)}}}
	if look := c.majorityLook(); look.Before(now.Add(time.Second)) || look.After(time.Now().Add(time.Second)) {
		t.Errorf("asked again after %v", look.Sub(now))
	}
}

// Of those who are worth asking at some time, a majority is when the second of three is.
func TestMajorityIsAskedWhenItIsWorthIt(t *testing.T) {
	now := time.Now()
	at := func(d time.Duration) vote { return vote{state: waiting, look: now.Add(d)} }
	c := &contest{s: &store{quorum: 2}, votes: []vote{at(2 * time.Hour), {state: young, look: now.Add(time.Hour)}, at(time.Minute)}}
	if look := c.majorityLook(); !look.Equal(now.Add(time.Hour)) {
		t.Errorf("asked after %v, want an hour", look.Sub(now))
	}
	c.votes[1], c.votes[2] = vote{state: idle}, vote{state: idle}
	if look := c.majorityLook(); look.After(time.Now()) {
		t.Errorf("two are free, and are asked after %v", look.Sub(now))
	}
}

// With a majority down a wait would be for the nodes, and not for the lock.
func TestLookIsFollowedByAWaitIfAMajorityHasAnswered(t *testing.T) {
	taken, down := NodeOutcome{Taken: true}, NodeOutcome{Err: errSlow}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&QuorumError{Need: 2, Nodes: []NodeOutcome{taken, taken, taken}}, true},
		{&QuorumError{Need: 2, Nodes: []NodeOutcome{taken, taken, down}}, true},
		{&QuorumError{Need: 2, Nodes: []NodeOutcome{taken, down, down}}, false},
		{&QuorumError{Need: 3, Nodes: []NodeOutcome{taken, taken, taken, down}}, true},
		{&QuorumError{Need: 3, Nodes: []NodeOutcome{taken, taken, down, down}}, false},
		{fmt.Errorf("redlock: %w", &QuorumError{Need: 2, Nodes: []NodeOutcome{taken, taken, taken}}), true},
		{locker.ErrClosed, false},
	} {
		if got := worthWaiting(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

func TestNodeHasAFiftiethOfTheLeaseForAnAnswer(t *testing.T) {
	for _, c := range []struct{ option, ttl, want, lag time.Duration }{
		{0, 100 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond},
		{0, 2 * time.Second, 40 * time.Millisecond, 40 * time.Millisecond},
		{0, 4 * time.Second, 80 * time.Millisecond, straggling},
		{0, time.Minute, 100 * time.Millisecond, straggling},
		{300 * time.Millisecond, time.Second, 300 * time.Millisecond, straggling},
		{time.Millisecond, time.Minute, time.Millisecond, time.Millisecond},
	} {
		n := &node{timeout: c.option}
		if got, lag := n.timeoutOf(c.ttl), n.lag(c.ttl); got != c.want || lag != c.lag {
			t.Errorf("a node with the option %v has %v, and is waited for for %v, with a lease of %v: want %v and %v", c.option, got, lag, c.ttl, c.want, c.lag)
		}
	}
}

// A node says for how long it will have no vote, by a clock that may step forward.
func TestNodeWithoutAVoteIsAskedAgainSoon(t *testing.T) {
	s, servers := threeNodes(t)
	rdb := redis.NewClient(&redis.Options{Addr: servers[0].Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	s.nodes[0] = newNode("young", rdb, Options{MaxTTL: time.Hour, NodeTimeout: 20 * time.Second})
	t.Cleanup(s.nodes[0].redis.Mail().Close)
	c := s.newContest(newAttempt(t, s), true, nil)
	c.ask(0)
	if c.note(<-c.answers); c.votes[0].state != young || time.Until(c.votes[0].look) > youngLook {
		t.Errorf("%+v: asked again after %v", c.votes[0], time.Until(c.votes[0].look))
	}
}

// judge and tally decide by the votes alone: of five nodes, three are a majority, and so
// they are of four.
func TestJudge(t *testing.T) {
	const g, q, r, a, w, x, y, f, i = granted, granted + 100, raising, asking, waiting, taken, young, failed, idle // q: with another token
	for _, test := range []struct {
		votes []state
		situation
		want verdict
	}{
		{votes: []state{g, g, g, a, a}, want: won},
		{votes: []state{g, g, q, a, a}, want: short},
		{votes: []state{g, g, r, a, a}, want: open},
		{votes: []state{g, g, g, f, f}, want: won},
		{votes: []state{g, g, a, f, f}, want: open},
		{votes: []state{x, x, x, a, a}, want: lost},
		{votes: []state{x, x, f, f, a}, want: lost},
		{votes: []state{g, g, x, x, x}, want: split},
		{votes: []state{g, g, x, x, x}, situation: situation{splits: mostLooks - 1}, want: lost},
		{votes: []state{g, g, f, f, f}, want: lost},
		{votes: []state{g, g, x, x, a}, want: late},
		{votes: []state{g, g, x, x, a}, situation: situation{gathered: true}, want: open},
		{votes: []state{g, g, w, w, a}, situation: situation{wait: true}, want: late},
		{votes: []state{g, g, w, w, a}, situation: situation{wait: true, gathered: true}, want: open},
		{votes: []state{g, g, w, w, w}, situation: situation{wait: true, gathered: true}, want: split},
		{votes: []state{w, w, w, w, w}, situation: situation{wait: true}, want: split},
		{votes: []state{w, w, f, f, f}, situation: situation{wait: true}, want: lost},
		{votes: []state{w, w, y, y, y}, situation: situation{wait: true}, want: split},
		{votes: []state{w, y, y, f, f}, situation: situation{wait: true}, want: split},
		{votes: []state{w, w, w, i, i}, situation: situation{wait: true, resting: true}, want: open},
		{votes: []state{g, g, g, i, i}, situation: situation{wait: true, resting: true}, want: won},
		{votes: []state{g, g, a, a}, want: open},
		{votes: []state{g, g, x, x}, want: split},
		{votes: []state{x, x, a, a}, want: lost},
		{votes: []state{g, g, g, a}, want: won},
	} {
		votes := make([]vote, len(test.votes))
		for k, st := range test.votes {
			votes[k] = vote{state: st, token: 1}
			if st == q {
				votes[k] = vote{state: granted, token: 2}
			}
		}
		if got := judge(votes, test.situation); got != test.want {
			t.Errorf("%v, %+v: %v, want %v", test.votes, test.situation, got, test.want)
		}
	}
}

// That somebody has the lock is known when others have so many nodes that no majority is left.
// What one node says, and others do not answer, is no more than silence.
func TestTakenIsWhatLeavesNoMajority(t *testing.T) {
	const g, a, w, x, f, y = granted, asking, waiting, taken, failed, young
	for _, test := range []struct {
		votes []state
		taken bool
	}{
		{[]state{x, f, f, f, f}, false},
		{[]state{x, x, f, f, f}, false},
		{[]state{x, w, a, a, g}, false},
		{[]state{w, y, y, y, y}, false},
		{[]state{x, x, x, f, f}, true},
		{[]state{x, w, x, a, a}, true},
		{[]state{x, f, f, f}, false},
		{[]state{x, x, f, f}, true}, // of four nodes, three are a majority
	} {
		votes := make([]vote, len(test.votes))
		for k, st := range test.votes {
			votes[k] = vote{state: st}
		}
		if got := saysTaken(votes); got != test.taken {
			t.Errorf("%v: taken %v, want %v", test.votes, got, test.taken)
		}
	}
}

func TestTally(t *testing.T) {
	ok, absent, wait, down := error(nil), errAbsent, errPending, errSlow
	gone, forced := &locker.LostError{Reason: locker.ReasonTakenOver}, &locker.LostError{Reason: locker.ReasonForced}
	for _, test := range []struct {
		answers []error
		want    decision
		reason  locker.Reason
	}{
		{[]error{ok, ok, ok, wait, wait}, yes, 0},
		{[]error{ok, ok, ok, gone, gone}, yes, 0},
		{[]error{ok, ok, wait, wait, wait}, undecided, 0},
		{[]error{ok, ok, wait, gone, down}, undecided, 0},
		{[]error{ok, ok, down, down, down}, unknown, 0},
		{[]error{ok, wait, down, down, absent}, unknown, 0},
		{[]error{ok, wait, gone, gone, down}, unknown, 0}, // the one that is down may have it
		{[]error{ok, ok, absent, down, down}, free, 0},
		{[]error{ok, ok, absent, absent, absent}, free, 0}, // nobody has said that it was lost
		{[]error{gone, gone, down, down, ok}, free, 0},
		{[]error{gone, ok, ok, down, down}, free, 0},
		{[]error{gone, gone, gone, wait, wait}, no, locker.ReasonTakenOver},
		{[]error{gone, gone, wait, wait, wait}, undecided, 0},
		{[]error{gone, absent, absent, ok, ok}, no, locker.ReasonTakenOver},
		{[]error{gone, forced, gone, down, ok}, no, locker.ReasonForced},
		{[]error{forced, gone, absent, down, wait}, no, locker.ReasonForced},
		{[]error{ok, ok, ok, down}, yes, 0}, // of four nodes, three are a majority
		{[]error{ok, ok, down, down}, unknown, 0},
		{[]error{ok, ok, absent, down}, free, 0},
		{[]error{ok, ok, gone, gone}, no, locker.ReasonTakenOver},
		{[]error{ok, down}, unknown, 0},
	} {
		if got, reason := tally(test.answers); got != test.want || reason != test.reason {
			t.Errorf("%v: %v because %v, want %v because %v", test.answers, got, reason, test.want, test.reason)
		}
	}
}
