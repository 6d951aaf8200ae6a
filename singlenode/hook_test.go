package singlenode_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/redishook"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

// hooked returns a Locker whose client has the hook.
func hooked(t *testing.T, addr string, heeds bool, hook redis.Hook) *singlenode.Locker {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: heeds})
	rdb.AddHook(hook)
	return newLockerOn(t, rdb, singlenode.Options{})
}

// everyCall has two processes do all that a lock can, in contexts that with returns.
func everyCall(t *testing.T, one, two *singlenode.Locker, with func() context.Context) {
	t.Helper()
	held, err := one.Lock(with(), "a", locker.WithTTL(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := two.TryLock(with(), "a"); !errors.Is(err, locker.ErrTaken) {
		t.Fatalf("TryLock of a lock that is held: %v", err)
	}
	if err := held.Renew(with()); err != nil {
		t.Fatal(err)
	}
	grants := make(chan grant, 1)
	go func() {
		lock, err := two.Lock(with(), "a")
		grants <- grant{1, lock, err}
	}()
	until(t, "it waits", func() bool {
		info, err := one.Inspect(with(), "a")
		return err == nil && info.Waiters == 1
	})
	if err := held.Unlock(with()); err != nil {
		t.Fatal(err)
	}
	g := next(t, grants) // 20 s, where the lease has an hour
	if g.lock.Token() <= held.Token() {
		t.Errorf("token %d after %d", g.lock.Token(), held.Token())
	}
	if broken, err := one.Break(with(), "a"); err != nil || !broken {
		t.Errorf("Break: %v, %v", broken, err)
	}
	var many []*locker.Lock // renewed together
	for i := range 3 {
		lock, err := one.Lock(with(), fmt.Sprint("many", i), locker.WithTTL(12*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		many = append(many, lock)
	}
	for _, lock := range many {
		first := lock.Deadline()
		until(t, "its renewal", func() bool { return lock.Err() != nil || lock.Deadline().After(first.Add(100*time.Millisecond)) })
		if err := lock.Unlock(with()); errors.Is(err, context.DeadlineExceeded) {
			t.Log(err) // in two seconds no answer came: this test asks which requests go where
		} else if err != nil {
			t.Error(err)
		}
	}
}

// contexts are those that requests come in: with and without an end.
func contexts(t *testing.T) map[string]func() context.Context {
	return map[string]func() context.Context{
		"a context that can be cancelled": func() context.Context { return patience(t) },
		"one that cannot":                 context.Background,
	}
}

// Goal: no request goes past the hooks of the caller's client. Method: the server counts
// as many as the hook, but for those that have no answer.
func TestHookOfTheClientSeesEveryRequest(t *testing.T) {
	for how, with := range contexts(t) {
		for _, heeds := range []bool{false, true} {
			t.Run(fmt.Sprint(how, " heeded ", heeds), func(t *testing.T) {
				t.Parallel()
				srv := testserver.Redis(t)
				var hook redishook.Tenant
				everyCall(t, hooked(t, srv.Addr(), heeds, &hook), hooked(t, srv.Addr(), heeds, &hook), with)
				for _, cmd := range []string{"eval", "evalsha"} {
					until(t, "stragglers", func() bool { return hook.Count(cmd)-hook.Lost(cmd) <= calls(t, srv, cmd) })
					if served := calls(t, srv, cmd); served > hook.Count(cmd) || served == 0 {
						t.Errorf("the server was sent %d %s, and the hook saw %d", served, cmd, hook.Count(cmd))
					}
				}
			})
		}
	}
}

// Goal: who keeps tenants apart by a hook that puts a prefix before every key has locks
// that exclude each other, wake each other, and touch no other tenant's keys. Words go
// past all hooks, which go-redis has none for.
//
// The server knows no scripts at first: what it does not know is sent again, and its keys
// must not be rewritten twice.
func TestHookThatRewritesKeysKeepsTenantsApart(t *testing.T) {
	for how, with := range contexts(t) {
		for _, heeds := range []bool{false, true} {
			t.Run(fmt.Sprint(how, " heeded ", heeds), func(t *testing.T) {
				t.Parallel()
				srv := testserver.Redis(t)
				other := newLocker(t, srv.Addr(), singlenode.Options{})
				theirs := mustLock(t, other, "a")
				keys := srv.Do("KEYS", "*")
				srv.Do("SCRIPT", "FLUSH")
				hook := &redishook.Tenant{Prefix: "tenant:"}
				everyCall(t, hooked(t, srv.Addr(), heeds, hook), hooked(t, srv.Addr(), heeds, hook), with)
				for key := range strings.FieldsSeq(srv.Do("KEYS", "*")) {
					if rest, ours := strings.CutPrefix(key, "tenant:"); strings.HasPrefix(rest, "tenant:") || !ours && !strings.Contains(keys, key) {
						t.Errorf("the tenant's locks have made the key %q", key)
					}
				}
				if errs := hook.Errors(); errs != nil {
					t.Errorf("the hook was given %d keys that it could not rewrite: %v", len(errs), errs[0])
				}
				mustUnlock(t, theirs)
			})
		}
	}
}

// A Cluster's hooks are passed by where replicas must confirm, for WAIT has to follow on
// the same connection. One that rewrites keys would make another lock of what goes past it.
func TestHookThatRewritesKeysIsRefusedWhereReplicasOfAClusterConfirm(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make proof: a Cluster under faults")
	}
	masters := testserver.RedisCluster(t, 2)
	replicas := testserver.RedisClusterReplicas(t, masters)
	locked := func(prefix string, confirm int) error {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{masters[0].Addr()}})
		rdb.AddHook(&redishook.Tenant{Prefix: prefix})
		l := newLockerOn(t, rdb, singlenode.Options{Replicas: confirm})
		lock, err := l.TryLock(patience(t), "{a}")
		if err == nil {
			mustUnlock(t, lock)
		}
		return err
	}
	err := locked("tenant:", 1)
	if !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), `a hook of the client's makes "tenant:{a}" of the key "{a}"`) {
		t.Errorf("a hook that rewrites keys: %v", err)
	}
	for _, srv := range append(masters, replicas...) {
		if keys := srv.Do("KEYS", "*"); keys != "" {
			t.Errorf("a refused lock has left %s", keys)
		}
	}
	if err := locked("", 1); err != nil {
		t.Errorf("a hook that counts: %v", err)
	}
	if err := locked("tenant:", 0); err != nil {
		t.Errorf("a hook that rewrites keys, where nobody must confirm: %v", err)
	}
}
