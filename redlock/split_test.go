package redlock_test

import (
	"context"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/redlock"
)

// onScript acts after every script that the client's server has carried out, the
// first is 1, and before anybody has the answer.
type onScript struct {
	passive
	n    atomic.Int32
	act  func(n int32)
	lose int32 // the script whose answer is lost
}

func (h *onScript) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && strings.HasPrefix(cmd.Name(), "eval") {
			n := h.n.Add(1)
			h.act(n)
			if n == h.lose {
				err = io.EOF
				cmd.SetErr(err)
			}
		}
		return err
	}
}

// passive is the part of a hook that does nothing.
type passive struct{}

func (passive) DialHook(next redis.DialHook) redis.DialHook { return next }

func (passive) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func clientsOf(servers []*testserver.RedisServer) []redis.UniversalClient {
	clients := make([]redis.UniversalClient, len(servers))
	for i, s := range servers {
		clients[i] = redis.NewClient(&redis.Options{Addr: s.Addr()})
	}
	return clients
}

// What an attempt or an unlock of somebody else has left on two nodes is about
// to go, and a third says nothing: nobody holds the lock, and TryLock must not
// say that somebody does.
func TestTryLockLooksAgainWhereNodesDisagree(t *testing.T) {
	t.Parallel()
	servers := startNodes(t, 5)
	clients := clientsOf(servers)
	clients[4].AddHook(&onScript{act: func(n int32) {
		if n == 2 { // it has granted, and was given back
			servers[0].Do("DEL", "a")
			servers[1].Do("DEL", "a")
		}
	}})
	for _, s := range servers[:2] {
		s.Do("SET", "a", "somebody", "PX", "60000")
	}
	servers[2].Pause()
	l := newLockerOn(t, clients, patient)
	lock, err := l.TryLock(patience(t), "a")
	if err != nil {
		t.Fatal(err)
	}
	servers[2].Resume()
	mustUnlock(t, lock)
	free(t, "a", servers...)
}

// A waiter has one node of three, whose first answer was lost, so that it was asked
// twice. When that is given back the node refuses the value from then on, for the other
// request may arrive late. The waiter needs this node as soon as a second is free.
func TestWaiterGoesOnWithAnotherValueWhereANodeRefusesTheOld(t *testing.T) {
	t.Parallel()
	servers := startNodes(t, 3)
	for _, s := range servers[1:] {
		s.Do("SET", "a", "somebody", "PX", "600000")
	}
	clients := clientsOf(servers)
	first := &onScript{act: func(int32) {}, lose: 1}
	clients[0].AddHook(first)
	l := newLockerOn(t, clients, patient)
	got := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		lock, err := l.Lock(ctx, "a")
		if err == nil {
			err = lock.Unlock(ctx)
		}
		got <- err
	}()
	eventually(t, "it was given back, and asked again", func() bool { return servers[0].Do("KEYS", "lockstile:m:*") != "" && first.n.Load() >= 4 })
	servers[1].Do("DEL", "a")
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// A node that is asked in the first look and answers in the second began the
// lease in the first: validity counts from there.
func TestValidityCountsFromTheFirstLookWhereItsAnswerCounts(t *testing.T) {
	servers := startNodes(t, 5)
	for _, s := range servers[:3] {
		s.Do("SET", "a", "somebody", "PX", "60000")
	}
	clients := clientsOf(servers)
	l := newLockerOn(t, clients, patient)
	second := make(chan struct{}) // the second look is under way
	clients[0].AddHook(&onScript{act: func(n int32) {
		if n == 2 {
			close(second)
		}
	}})
	granted := make(chan struct{}) // by node 3, before three others have refused: else there is no second look
	clients[2].AddHook(&onScript{act: func(n int32) {
		if n == 1 {
			<-granted
			eventually(t, "all but this node and the last have answered", func() bool { return redlock.UnderWay(l) == 2 })
		}
	}})
	var between time.Time
	clients[3].AddHook(&onScript{act: func(n int32) {
		switch n {
		case 1:
			close(granted)
		case 2: // it was given back
			servers[0].Do("DEL", "a")
			between = time.Now()
		}
	}})
	clients[4].AddHook(&onScript{act: func(n int32) {
		if n == 1 {
			<-second
		}
	}})
	lock, err := l.TryLock(patience(t), "a", locker.WithoutRenewal())
	if err != nil {
		t.Fatal(err)
	}
	if end := between.Add(locker.DefaultTTL - driver.Drift(locker.DefaultTTL)); !lock.Deadline().Before(end) {
		t.Errorf("believed in until %v after the lease may have ended", lock.Deadline().Sub(end))
	}
	mustUnlock(t, lock)
}

// More locks at once than there are connections make this process slow, and no
// node silent.
func TestRequestsThatWaitForAConnectionAreNotTakenForSilence(t *testing.T) {
	t.Parallel()
	servers := startNodes(t, 3)
	var clients []redis.UniversalClient
	for _, s := range servers {
		c := redis.NewClient(&redis.Options{Addr: s.Addr(), PoolSize: 1})
		c.AddHook(slow{by: 100 * time.Millisecond})
		clients = append(clients, c)
	}
	l := newLockerOn(t, clients, redlock.Options{DurableNodes: true, NodeTimeout: 4 * time.Second})
	var all sync.WaitGroup
	for k := range 60 { // 6 s
		all.Go(func() {
			if _, err := l.TryLock(patience(t), string(rune('a'+k)), locker.WithoutRenewal()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
