package redlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/redlock"
)

// onSecond acts once the client has got an answer to a second script.
type onSecond struct {
	redis.Hook
	mu  sync.Mutex
	n   int
	act func()
}

func (*onSecond) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *onSecond) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "eval" { // the first of each script, for the server does not have it
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.n++; h.n == 2 {
				h.act()
			}
		}
		return err
	}
}

func (*onSecond) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// What an attempt or an unlock of somebody else has left on two nodes is about
// to go, and a third says nothing: nobody holds the lock, and TryLock must not
// say that somebody does.
func TestTryLockLooksAgainWhereNodesDisagree(t *testing.T) {
	servers := startNodes(t, 5)
	var clients []redis.UniversalClient
	for _, s := range servers {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: s.Addr()}))
	}
	clients[4].AddHook(&onSecond{act: func() { // it has granted, and was given back
		servers[0].Do("DEL", "a")
		servers[1].Do("DEL", "a")
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

// More locks at once than there are connections make this process slow, and no
// node silent.
func TestRequestsThatWaitForAConnectionAreNotTakenForSilence(t *testing.T) {
	servers := startNodes(t, 3)
	var clients []redis.UniversalClient
	for _, s := range servers {
		c := redis.NewClient(&redis.Options{Addr: s.Addr(), PoolSize: 1})
		c.AddHook(slow{by: 20 * time.Millisecond})
		clients = append(clients, c)
	}
	l := newLockerOn(t, clients, redlock.Options{DurableNodes: true, NodeTimeout: 500 * time.Millisecond})
	var all sync.WaitGroup
	for k := range 60 { // 1.2 s
		all.Go(func() {
			if _, err := l.TryLock(patience(t), string(rune('a'+k)), locker.WithoutRenewal()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
