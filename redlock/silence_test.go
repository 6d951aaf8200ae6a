package redlock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/redlock"
)

// A waiter that was told "taken" is refused by two of three nodes.
func TestRefusalByAMajorityEndsAWait(t *testing.T) {
	t.Parallel()
	servers := startNodes(t, 3)
	held := mustLockOn(t, newLocker(t, servers, patient), servers, locker.WithTTL(time.Minute))
	clients := make([]redis.UniversalClient, 3)
	for i, s := range servers {
		s.Do("ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all")
		clients[i] = redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "u", Password: "p"})
	}
	l := newLockerOn(t, clients, patient)
	got := make(chan error, 1)
	began := time.Now()
	go func() {
		_, err := l.Lock(patience(t), "a")
		got <- err
	}()
	eventually(t, "it waits", func() bool { return servers[0].Do("ZCARD", "lockstile:q:{a}") == "1" })
	for _, s := range servers[:2] {
		s.Do("ACL", "SETUSER", "u", "-evalsha", "-eval")
	}
	mustUnlock(t, held) // wakes it
	err := <-got
	if took := time.Since(began); took > 25*time.Second || errors.Is(err, locker.ErrTaken) || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("after %v: %v", took, err)
	}
}

// A waiter wins one of three nodes, which then is silent. It gives that back, and
// hears nothing, for as long as a node may take.
func TestGivingBackHeedsTheEndOfTheContext(t *testing.T) {
	t.Parallel()
	servers := startNodes(t, 3)
	for _, s := range servers[1:] {
		s.Do("SET", "a", "a stranger's", "PX", "60000")
	}
	clients := stubbornClients(servers)
	var paused atomic.Bool
	clients[0].(*redis.Client).AddHook(&onScript{act: func(n int32) {
		if n == 1 { // granted
			servers[0].Pause()
			paused.Store(true)
		}
	}})
	for _, c := range clients[1:] {
		c.(*redis.Client).AddHook(slow{by: 300 * time.Millisecond})
	}
	l := newLockerOn(t, clients, redlock.Options{DurableNodes: true, NodeTimeout: time.Minute})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	began := time.Now()
	_, err := l.Lock(ctx, "a")
	if took := time.Since(began); took > 25*time.Second {
		t.Errorf("paused: %v; Lock with a context of 2 s took %v: %v", paused.Load(), took, err)
	}
	servers[0].Resume()
}

// failing fails the scripts that it is told to, unsent.
type failing struct {
	passive
	n        atomic.Int32
	from, to int32
}

func (h *failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			if n := h.n.Add(1); h.from <= n && n <= h.to {
				err := errors.New("the network is down")
				cmd.SetErr(err)
				return err
			}
		}
		return next(ctx, cmd)
	}
}

// A waiter that was told "taken" meets a moment's silence, and asks again. It must
// still hear when its turn comes.
func TestWaiterHearsItsTurnAfterASilence(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]int32{"no silence": 0, "silence": 3} {
		t.Run(name, func(t *testing.T) {
			servers := startNodes(t, 3)
			held := mustLockOn(t, newLocker(t, servers, patient), servers, locker.WithTTL(time.Minute))
			clients := clientsOf(servers)
			for _, c := range clients[:2] {
				c.AddHook(&failing{from: 2, to: to})
			}
			l := newLockerOn(t, clients, patient)
			got := make(chan time.Time, 1)
			go func() {
				lock, err := l.Lock(patience(t), "a")
				at := time.Now()
				if err == nil {
					err = lock.Unlock(patience(t))
				}
				if err != nil {
					t.Error(err)
				}
				got <- at // only now: the clients end with the test
			}()
			for _, s := range servers {
				eventually(t, "it waits", func() bool { return s.Do("ZCARD", "lockstile:q:{a}") == "1" })
			}
			time.Sleep(200 * time.Millisecond)
			mustUnlock(t, held)
			free := time.Now()
			if took := (<-got).Sub(free); took > 25*time.Second {
				t.Errorf("it got the lock %v after the unlock", took)
			}
		})
	}
}
