package redlock_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// panics is a hook that panics when the answer to a request has come.
type panics struct{}

func (panics) DialHook(next redis.DialHook) redis.DialHook { return next }

func (panics) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (panics) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := next(ctx, cmd); cmd.Name() != "evalsha" && cmd.Name() != "eval" {
			return err
		}
		panic("the hook")
	}
}

// Requests to nodes have goroutines of their own, where nobody can recover. A hook that
// panics at one node is a failure of that node.
func TestHookThatPanicsIsAFailureOfItsNode(t *testing.T) {
	t.Parallel()
	servers := startNodes(t, 3)
	for n, one := range clientsOf(servers) {
		clients := clientsOf(servers)
		one.AddHook(panics{})
		clients[n] = one
		mustUnlock(t, mustLock(t, newLockerOn(t, clients, patient), "a"))
	}
	all := clientsOf(servers)
	for _, c := range all {
		c.AddHook(panics{})
	}
	if _, err := newLockerOn(t, all, patient).TryLock(patience(t), "b"); err == nil || !strings.Contains(err.Error(), "panicked: the hook") {
		t.Errorf("TryLock in which all hooks have panicked: %v", err)
	}
}
