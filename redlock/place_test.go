package redlock

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/internal/redisnode"
	"github.com/lockstile/locker/internal/testserver"
)

// Goal: who waits keeps its places in the queues through a contest that fails. Its places may
// have gone meanwhile, for a waiter of which a node does not hear when its turn comes is dropped:
// then it gets them back by their tickets.
func TestTicketsOutlastAContest(t *testing.T) {
	var clients []redis.UniversalClient
	for i := range 3 { // which are not asked
		rdb := redis.NewClient(&redis.Options{Addr: fmt.Sprint("127.0.0.1:", 1+i)})
		t.Cleanup(func() { _ = rdb.Close() })
		clients = append(clients, rdb)
	}
	l, err := New(clients, Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := newAttempt(t, l.store)
	first := l.store.newContest(a, true, nil)
	for i, ticket := range []int64{5, 6, 7} {
		first.note(answer{node: i, standing: redisnode.Standing{Ticket: ticket}})
	}
	l.store.newContest(a, false, nil).note(answer{node: 0}) // one look, which has no ticket
	for i, v := range l.store.newContest(a, true, nil).votes {
		if v.ticket != int64(5+i) {
			t.Errorf("node %d is asked with ticket %d, and gave %d", i, v.ticket, 5+i)
		}
	}
}

// A majority has granted the lock, and the last node has it for somebody else. It is waited for
// a moment longer, and not in its queue for as long as the lock is held.
func TestPlaceIsGivenUpWhereAMajorityHasGrantedTheLock(t *testing.T) {
	s, servers := threeNodes(t)
	for _, srv := range servers {
		srv.Do("SET", "a", "somebody's", "PX", "600000")
	}
	a := newAttempt(t, s)
	granted := make(chan error, 1)
	go func() {
		_, _, err := s.Acquire(t.Context(), a, t.Context)
		granted <- err
	}()
	waits := func(srv *testserver.RedisServer, want string) {
		t.Helper()
		srv.Await("its queue", func() bool { return srv.Do("ZCARD", "lockstile:q:{a}") == want })
	}
	for _, srv := range servers {
		waits(srv, "1")
	}
	servers[0].Do("DEL", "a")
	servers[1].Do("DEL", "a")
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
	waits(servers[2], "0")
}
