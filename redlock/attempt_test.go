package redlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/mailbox"
	"github.com/lockstile/locker/internal/redisnode"
	"github.com/lockstile/locker/internal/testserver"
)

// A request whose goroutine starts after the lock was given back must not be
// sent: nothing would give back what it is granted.
func TestNothingIsAskedOnceAPartIsOver(t *testing.T) {
	s, servers := threeNodes(t)
	parts := newAttempt(t, s).parts
	ends := map[int]func(){
		0: func() { _ = s.nodes[0].withdraw(t.Context(), &parts[0], 0) },
		1: func() { _ = s.nodes[1].release(&parts[1], 0) },
		2: func() { s.leaveQueue(2, &parts[2]) },
	}
	for i, end := range ends {
		end()
		if _, err := s.ask(&parts[i], new(instant), s.nodes[i], redisnode.Ask{}, nil); !errors.Is(err, errOver) {
			t.Errorf("part %d: %v", i, err)
		}
		// One that has a connection waits while what gives back is under way, and then finds this.
		if err := s.prepare(t.Context(), &parts[i], s.nodes[i], true, func(mailbox.Word) {}); !errors.Is(err, errOver) {
			t.Errorf("part %d, after it has waited: %v", i, err)
		}
		if servers[i].Do("EXISTS", "a") != "0" {
			t.Errorf("node %d has granted it", i)
		}
	}
}

// A second request for a part comes too late to be sent, and the first was granted.
func TestGrantIsGivenBackThoughALaterRequestWasNotSent(t *testing.T) {
	s, servers := threeNodes(t)
	a := newAttempt(t, s)
	if st, err := s.ask(&a.parts[0], new(instant), s.nodes[0], redisnode.Ask{}, nil); err != nil || st.First == 0 {
		t.Fatalf("%+v, %v", st, err)
	}
	a.end()
	if _, err := s.ask(&a.parts[0], new(instant), s.nodes[0], redisnode.Ask{}, nil); !errors.Is(err, errOver) {
		t.Error(err)
	}
	if err := s.nodes[0].release(&a.parts[0], 0); err != nil {
		t.Error(err)
	}
	if servers[0].Do("EXISTS", "a") != "0" {
		t.Error("the node still has it")
	}
}

// A node refuses to take its grant back, and then does not: what it was not heard to do
// it is asked for again, and after it was, nothing is left.
func TestWhatANodeDidNotTakeBackIsGivenBackAgain(t *testing.T) {
	s, servers := threeNodes(t)
	parts := newAttempt(t, s).parts
	for i, giveBack := range []func(){
		func() { _ = s.nodes[0].giveBack(&parts[0]) },
		func() { _ = s.nodes[1].release(&parts[1], 0) },
		func() { _ = s.nodes[2].withdraw(t.Context(), &parts[2], 0) },
	} {
		if st, err := s.ask(&parts[i], new(instant), s.nodes[i], redisnode.Ask{}, nil); err != nil || st.First == 0 {
			t.Fatalf("%+v, %v", st, err)
		}
		servers[i].Do("ACL", "SETUSER", "default", "-eval", "-evalsha")
		giveBack()
		servers[i].Do("ACL", "SETUSER", "default", "+eval", "+evalsha")
		if !parts[i].left() {
			t.Errorf("part %d: the node has it still, and nothing is left to give back", i)
		}
		giveBack()
		if servers[i].Do("EXISTS", "a") != "0" || parts[i].left() {
			t.Errorf("part %d: EXISTS is %s, left %v", i, servers[i].Do("EXISTS", "a"), parts[i].left())
		}
	}
}

// The node has us in its queue, and the answer to a later question got lost. It does not
// have the lock to give back, and still has the place.
func TestPlaceInAQueueOutlastsARelease(t *testing.T) {
	s, servers := threeNodes(t)
	servers[0].Do("SET", "a", "somebody's", "PX", "60000")
	n, part := s.nodes[0], &newAttempt(t, s).parts[0]
	if _, err := s.ask(part, new(instant), n, redisnode.Ask{Queue: true}, func(mailbox.Word) {}); err != nil {
		t.Fatal(err)
	}
	part.has.Store(unheard)
	if err := n.release(part, 0); asLost(err) == nil || !part.left() {
		t.Errorf("released: %v, left: %v", err, part.left())
	}
	if err := n.withdraw(t.Context(), part, 0); err != nil || servers[0].Do("ZCARD", "lockstile:q:{a}") != "0" {
		t.Errorf("swept: %v, waiting: %s", err, servers[0].Do("ZCARD", "lockstile:q:{a}"))
	}
	if part.end(); part.left() {
		t.Error("what is gone comes back")
	}
	if err := n.release(part, 0); asLost(err) == nil {
		t.Errorf("released again: %v", err)
	}
}

// The answer to a first question got lost, and the second says that somebody else has the lock.
// There is nothing that the node could renew or give back.
func TestNodeThatSaysTakenHasNothingOfOurs(t *testing.T) {
	s, servers := threeNodes(t)
	part := &newAttempt(t, s).parts[0]
	part.has.Store(unheard)
	servers[0].Do("SET", "a", "somebody's", "PX", "60000")
	if st, err := s.ask(part, new(instant), s.nodes[0], redisnode.Ask{}, nil); err != nil || st.First != 0 || part.mayHold() {
		t.Errorf("%+v, %v, may hold it: %v", st, err, part.mayHold())
	}
}

// Whichever call is the last of a part, its box is closed: while one is open the
// subscription is kept up for it.
func TestNobodyListensForAPartThatHasEnded(t *testing.T) {
	s, _ := threeNodes(t)
	a := newAttempt(t, s)
	for i, end := range []func(*node, *part) error{
		func(n *node, t *part) error { return n.release(t, 0) },
		func(n *node, t *part) error { return n.withdraw(context.Background(), t, 0) },
		func(n *node, t *part) error {
			if !n.giveBack(t) || a.left() {
				return errors.New("something is left")
			}
			s.End(a)
			return nil
		},
	} {
		n, part := s.nodes[i], &a.parts[i]
		if st, err := s.ask(part, new(instant), n, redisnode.Ask{Queue: true}, func(mailbox.Word) {}); err != nil || st.First == 0 || n.redis.Mail().Idle() {
			t.Fatalf("%+v, %v, idle: %v", st, err, n.redis.Mail().Idle())
		}
		if err := end(n, part); err != nil || !n.redis.Mail().Idle() {
			t.Errorf("part %d: %v, idle: %v", i, err, n.redis.Mail().Idle())
		}
	}
}

func TestCloseEndsTheSubscriptions(t *testing.T) {
	s, _ := threeNodes(t)
	if err := (&Locker{s.locks, s}).Close(); err != nil {
		t.Error(err)
	}
	for i, n := range s.nodes {
		if err := n.redis.Mail().Open(t.Context(), "a waiter", func(mailbox.Word) {}); err == nil {
			t.Errorf("it listens to node %d", i)
		}
	}
}

// A look has failed, and a wait asks all nodes again before one has answered the look.
// That answer says nothing of the request which is yet to be sent.
func TestNodeThatIsYetToBeAskedMayComeToHoldTheLock(t *testing.T) {
	s, servers := threeNodes(t)
	servers[0].Do("SET", "a", "somebody's", "PX", "60000")
	a, n := newAttempt(t, s), s.nodes[0]
	n.conns = make(chan struct{}, 1)
	n.conns <- struct{}{} // no connection is free for the second request
	second := s.newContest(a, false, nil)
	second.ask(0)
	with := &node{name: n.name, redis: n.redis, timeout: n.timeout, conns: make(chan struct{}, 1)} // the first one's connection
	with.known.Store(true)
	if st, err := s.ask(&a.parts[0], new(instant), with, redisnode.Ask{}, nil); err != nil || st.First != 0 {
		t.Fatalf("%+v, %v", st, err)
	}
	if !a.left() {
		t.Error("nothing is left of the attempt, though a request of it is yet to be sent")
	}
	<-n.conns
	<-second.answers
	if a.left() {
		t.Error("something is left of an attempt that was refused")
	}
}

func threeNodes(t *testing.T) (*store, []*testserver.RedisServer) {
	t.Helper()
	var clients []redis.UniversalClient
	var servers []*testserver.RedisServer
	for range 3 {
		s := testserver.Redis(t)
		servers = append(servers, s)
		clients = append(clients, redis.NewClient(&redis.Options{Addr: s.Addr()}))
	}
	l, err := New(clients, Options{DurableNodes: true, NodeTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.Close()
		for _, c := range clients {
			_ = c.Close()
		}
	})
	return l.store, servers
}

func newAttempt(t *testing.T, s *store) *attempt {
	t.Helper()
	req, err := driver.NewRequest(nil, "a")
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Begin(req)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
