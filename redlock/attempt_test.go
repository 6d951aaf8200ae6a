package redlock

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/redisnode"
	"github.com/lockstile/locker/internal/testserver"
)

// A request whose goroutine starts after the lock was given back must not be
// sent: nothing would give back what it is granted.
func TestNothingIsAskedOnceASeatIsOver(t *testing.T) {
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
	defer l.Close()
	req, err := locker.NewRequest("a")
	if err != nil {
		t.Fatal(err)
	}
	lease, err := redisnode.NewLease(req, "")
	if err != nil {
		t.Fatal(err)
	}
	seats := l.newSeats(lease)
	ends := map[int]func(){
		0: func() { l.sweep(0, seats[0]) },
		1: func() { l.releaseOne(seats[1], nil, 1, 0, make(chan result, 1)) },
		2: func() { l.leaveQueue(2, seats[2]) },
	}
	for i, end := range ends {
		end()
		if _, err := l.ask(seats[i], l.peers[i], 0, 0, nil); !errors.Is(err, errOver) {
			t.Errorf("seat %d: %v", i, err)
		}
		if err := l.raise(seats[i], l.peers[i], 1); !errors.Is(err, errOver) {
			t.Errorf("seat %d: %v", i, err)
		}
		if servers[i].Do("EXISTS", "a") != "0" {
			t.Errorf("node %d has granted it", i)
		}
	}
}
