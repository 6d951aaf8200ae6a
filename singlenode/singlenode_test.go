package singlenode_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/locktest"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

// newLocker stands for a process of its own.
func newLocker(t testing.TB, addr string, opts singlenode.Options) *singlenode.Locker {
	t.Helper()
	return newLockerOn(t, redis.NewClient(&redis.Options{Addr: addr}), opts)
}

func newLockerOn(t testing.TB, rdb redis.UniversalClient, opts singlenode.Options) *singlenode.Locker {
	t.Helper()
	l, err := singlenode.New(rdb, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.Close()
		_ = rdb.Close()
	})
	return l
}

var patience, mustLock = locktest.Soon, locktest.Lock

func mustUnlock(t testing.TB, lock *locker.Lock) {
	t.Helper()
	if err := lock.Unlock(patience(t)); err != nil {
		t.Fatal(err)
	}
}

// calls returns how often the server was sent cmd, by clients and in scripts.
func calls(t testing.TB, srv *testserver.RedisServer, cmd string) int {
	t.Helper()
	for line := range strings.Lines(srv.Do("INFO", "commandstats")) {
		var n int
		if _, err := fmt.Sscanf(line, "cmdstat_"+cmd+":calls=%d", &n); err == nil {
			return n
		}
	}
	return 0
}

func TestLockAndUnlockAreOneRoundTripEach(t *testing.T) {
	srv := testserver.Redis(t)
	l := newLocker(t, srv.Addr(), singlenode.Options{})
	mustUnlock(t, mustLock(t, l, "warm"))
	srv.Do("CONFIG", "RESETSTAT")
	for range 10 {
		mustUnlock(t, mustLock(t, l, "a"))
	}
	for cmd, want := range map[string]int{"evalsha": 10, "eval": 10, "script|load": 0, "subscribe": 0, "wait": 0} {
		if got := calls(t, srv, cmd); got != want {
			t.Errorf("10 locks and unlocks sent %s %d times, want %d", cmd, got, want)
		}
	}
}

// A million names, one after another, must not fill the server.
func TestEveryKeyLeftBehindExpires(t *testing.T) {
	srv := testserver.Redis(t)
	l, other := newLocker(t, srv.Addr(), singlenode.Options{}), newLocker(t, srv.Addr(), singlenode.Options{})
	held := mustLock(t, l, "a")
	ctx, cancel := context.WithCancel(patience(t))
	ended := make(chan error, 1)
	go func() {
		_, err := other.Lock(ctx, "a")
		ended <- err
	}()
	until(t, "it waits", func() bool {
		info, err := l.Inspect(patience(t), "a")
		return err == nil && info.Waiters == 1
	})
	cancel()
	if err := <-ended; !errors.Is(err, locker.ErrTaken) || !errors.Is(err, context.Canceled) {
		t.Fatalf("a wait that ended: %v", err)
	}
	mustUnlock(t, held)
	for key := range strings.Lines(srv.Do("KEYS", "*")) {
		key = strings.TrimSpace(key)
		if ttl := srv.Do("PTTL", key); ttl == "-1" {
			t.Errorf("%q stays for ever", key)
		}
	}
	if n := srv.Do("EXISTS", "a", "lockstile:q:{a}"); n != "0" {
		t.Errorf("%s keys of the lock and its queue are left", n)
	}
}

func TestOtherRedlockClientsExcludeUsAndWeThem(t *testing.T) {
	srv := testserver.Redis(t)
	l := newLocker(t, srv.Addr(), singlenode.Options{Prefix: "app:"})
	if got := srv.Do("SET", "app:a", "theirs", "NX", "PX", "60000"); got != "OK" {
		t.Fatal(got)
	}
	if _, err := l.TryLock(patience(t), "a"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock of somebody else's lock: %v", err)
	}
	if info, err := l.Inspect(patience(t), "a"); err != nil || !info.Held || info.Holder != "" || info.Token != 0 {
		t.Errorf("somebody else's lock is shown as %+v, %v", info, err)
	}
	srv.Do("DEL", "app:a")
	lock := mustLock(t, l, "a")
	if got := srv.Do("SET", "app:a", "theirs", "NX", "PX", "60000"); got != "" {
		t.Errorf("SET NX on our lock: %q", got)
	}
	mustUnlock(t, lock)
}

// The values of other clients are theirs to choose: raw random bytes, or nothing.
func TestLocksOfOtherClientsAreSeenAndCanBeBrokenWhateverTheirValue(t *testing.T) {
	srv := testserver.Redis(t)
	l := newLocker(t, srv.Addr(), singlenode.Options{})
	for _, value := range []string{"1", "", "?", "?uVx\x00\xff 123456789012345"} {
		srv.Do("SET", "a", value, "PX", "60000")
		if info, err := l.Inspect(patience(t), "a"); err != nil || !info.Held || info.TimeLeft == 0 {
			t.Errorf("%q: %+v, %v", value, info, err)
		}
		if broken, err := l.Break(patience(t), "a"); err != nil || !broken || srv.Do("EXISTS", "a") != "0" {
			t.Errorf("%q: broken %v, %v", value, broken, err)
		}
	}
}

func TestUnusableServersAreNamedAndNothingIsHeld(t *testing.T) {
	srv := testserver.Redis(t, "--requirepass", "s3cret")
	master := testserver.Redis(t)
	replica := testserver.Redis(t)
	host, port, _ := strings.Cut(master.Addr(), ":")
	replica.Do("REPLICAOF", host, port)
	taken := testserver.Redis(t)
	taken.Do("HSET", "a", "f", "v")
	gone := testserver.Redis(t)
	gone.Kill()
	for _, c := range []struct{ what, addr, password, want string }{
		{"wrong password", srv.Addr(), "wr0ng", "password"},
		{"no password", srv.Addr(), "", "USER:PASS@"},
		{"read-only replica", replica.Addr(), "", "master"},
		{"key of another type", taken.Addr(), "", "prefix"},
		{"no server", gone.Addr(), "", "refused"},
		{"closed client", master.Addr(), "", "closed"},
	} {
		rdb := redis.NewClient(&redis.Options{Addr: c.addr, Password: c.password, MaxRetries: -1})
		if c.what == "closed client" {
			_ = rdb.Close()
		}
		l := newLockerOn(t, rdb, singlenode.Options{})
		for verb, lock := range map[string]func(context.Context, string, ...locker.Option) (*locker.Lock, error){"Lock": l.Lock, "TryLock": l.TryLock} {
			_, err := lock(patience(t), "a")
			switch {
			case !errors.Is(err, locker.ErrUnavailable):
				t.Errorf("%s: %s: %v is not ErrUnavailable", c.what, verb, err)
			case !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `"a"`):
				t.Errorf("%s: %s: the error does not help: %v", c.what, verb, err)
			case strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "wr0ng"):
				t.Errorf("%s: %s: the error tells the password: %v", c.what, verb, err)
			case errors.Is(err, locker.ErrOutcomeUnknown):
				t.Errorf("%s: %s: the outcome is known: %v", c.what, verb, err)
			}
		}
	}
	if n := taken.Do("DBSIZE"); n != "1" {
		t.Errorf("a refused lock left keys: %s", n)
	}
}

func TestConstructorRefusesWhatCannotWork(t *testing.T) {
	if _, err := singlenode.New(nil, singlenode.Options{}); err == nil {
		t.Error("a nil client was accepted")
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	for want, client := range map[string]redis.UniversalClient{
		"*redis.Ring":                     ring,
		"struct { *redis.Ring }":          struct{ *redis.Ring }{ring},
		"struct { *redis.Client }":        struct{ *redis.Client }{rdb},
		"struct { *redis.ClusterClient }": struct{ *redis.ClusterClient }{cluster},
		"is nil":                          (*redis.ClusterClient)(nil),
	} {
		if _, err := singlenode.New(client, singlenode.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := singlenode.New(rdb, singlenode.Options{KeepCounter: time.Second}); err == nil || !strings.Contains(err.Error(), "KeepCounter") {
		t.Errorf("a counter that is kept for a second: %v", err)
	}
	if _, err := singlenode.New(rdb, singlenode.Options{Replicas: -1}); err == nil {
		t.Error("a negative number of replicas was accepted")
	}
}

// A failover can forget what no replica had to confirm, and the declaration says so.
func TestGuaranteesFollowTheOptions(t *testing.T) {
	const always = locker.PromptHolder | locker.SteadyClocks | locker.AgreedClocks | locker.DurableServer
	for replicas, leans := range map[int]locker.Assumptions{0: always | locker.DurableReplica, 1: always} {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		g := newLockerOn(t, rdb, singlenode.Options{Replicas: replicas}).Guarantees()
		if g.Exclusion != leans || g.Tokens != locker.ForwardClock {
			t.Errorf("with Replicas: %d exclusion assumes %v, and the order of tokens %v", replicas, g.Exclusion, g.Tokens)
		}
	}
}

// A name that is idle for less than that does not depend on the clock.
func TestCounterOfAnIdleNameIsKeptForAnHourUnlessToldOtherwise(t *testing.T) {
	srv := testserver.Redis(t)
	for option, want := range map[time.Duration]time.Duration{0: time.Hour, 5 * time.Hour: 5 * time.Hour, time.Minute: time.Minute} {
		name := option.String() // of programs with one name, the longest time counts
		mustUnlock(t, mustLock(t, newLocker(t, srv.Addr(), singlenode.Options{KeepCounter: option}), name))
		ms, err := strconv.Atoi(srv.Do("PTTL", "lockstile:t:{"+name+"}"))
		if left := time.Duration(ms) * time.Millisecond; err != nil || left < want || left > 2*want {
			t.Errorf("with %v the counter is kept for %v, %v", option, left, err)
		}
	}
}
