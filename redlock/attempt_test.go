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
	l, servers := threeNodes(t)
	seats := seatsFor(t, l)
	ends := map[int]func(){
		0: func() { l.sweep(0, &seats[0]) },
		1: func() { l.releaseOne(&seats[1], nil, 1, 0, make(chan result, 1)) },
		2: func() { l.leaveQueue(2, &seats[2]) },
	}
	for i, end := range ends {
		end()
		if _, err := l.ask(&seats[i], l.peers[i], 0, 0, nil); !errors.Is(err, errOver) {
			t.Errorf("seat %d: %v", i, err)
		}
		if err := l.raise(&seats[i], l.peers[i], 1); !errors.Is(err, errOver) {
			t.Errorf("seat %d: %v", i, err)
		}
		if servers[i].Do("EXISTS", "a") != "0" {
			t.Errorf("node %d has granted it", i)
		}
	}
}

// Two nodes have handed the lock to the heir, which has given it back already
// when the holder's release gets round to the third: nothing would give back what
// it leaves to the heir there.
func TestNothingIsHandedToAnHeirThatIsOver(t *testing.T) {
	l, servers := threeNodes(t)
	holder, heir := seatsFor(t, l), seatsFor(t, l)
	if _, err := l.ask(&holder[0], l.peers[0], time.Now().UnixMicro(), 0, nil); err != nil {
		t.Fatal(err)
	}
	l.sweep(0, &heir[0])
	results := make(chan result, 1)
	l.releaseOne(&holder[0], &heir[0], 0, time.Now().UnixMicro(), results)
	if r := <-results; r.err != nil || r.absent || r.token != 0 {
		t.Errorf("%+v", r)
	}
	if servers[0].Do("EXISTS", "a") != "0" {
		t.Error("the lock is held for nobody")
	}
}

func threeNodes(t *testing.T) (*Locker, []*testserver.RedisServer) {
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
	return l, servers
}

func seatsFor(t *testing.T, l *Locker) []seat {
	t.Helper()
	req, err := locker.NewRequest("a")
	if err != nil {
		t.Fatal(err)
	}
	var terms redisnode.Terms
	if err := terms.Init(req, ""); err != nil {
		t.Fatal(err)
	}
	return l.newSeats(&terms)
}
