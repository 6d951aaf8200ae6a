package redlock

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/redisnode"
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
	req, err := locker.NewRequest("a")
	terms := new(redisnode.Terms)
	if err == nil {
		err = terms.Init(req, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	c := l.newContest(&attempt{req: req, seats: l.newSeats(terms)}, false)
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
	c.rest()
	if unread.standing.Token == 0 {
		t.Fatalf("the scenario does not show what it should: %+v", unread)
	}
	if c.note(unread); c.votes[4].state == granted && servers[4].Do("EXISTS", "a") == "0" {
		t.Error("its grant counts, and it has been given back")
	}
}
