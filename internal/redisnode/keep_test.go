package redisnode

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/testserver"
)

func counterLeft(t *testing.T, srv *testserver.RedisServer, a *Attempt) time.Duration {
	t.Helper()
	ms, err := strconv.ParseInt(srv.Do("PTTL", a.Keys.text(lastKey)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(ms) * time.Millisecond
}

func TestCountersAreKeptForAMinuteToTenYears(t *testing.T) {
	const years = 10 * 365 * 24 * time.Hour
	for option, want := range map[time.Duration]time.Duration{
		0: time.Hour, time.Minute: time.Minute, years: years,
		-1: 0, time.Minute - 1: 0, years + 1: 0,
	} {
		if got, err := KeepFor(option); got != want || (err == nil) != (want > 0) {
			t.Errorf("with the option %v for %v, %v; want %v", option, got, err, want)
		}
	}
}

// A batch of renewals finds that the server has lost its scripts. It is the one that
// should have kept the counters.
func TestRenewalAfterAFlushKeepsTheCounter(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	ls := []*Attempt{newAttempt(t, "a"), newAttempt(t, "b")}
	for _, a := range ls {
		mustGrant(t, n, a)
		srv.Do("PEXPIRE", a.Keys.text(lastKey), strconv.FormatInt((a.TTL+2*time.Minute).Milliseconds(), 10)) // as if it were long ago
		a.kept.Store(int64(driver.Now().Add(-n.Keep)))
	}
	srv.Do("SCRIPT", "FLUSH")
	for _, err := range n.Renew(background(t), ls) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range n.Renew(background(t), ls) { // and the next ones
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range ls {
		if left := counterLeft(t, srv, a); left < a.TTL+n.Keep-time.Second {
			t.Errorf("%s: after the renewal its counter has %v, and is to be kept for %v after the lease", a.Keys.Lock, left, n.Keep)
		}
	}
}

// failOn fails one command: the so manieth.
type failOn struct{ n *int }

func (failOn) DialHook(next redis.DialHook) redis.DialHook { return next }
func (f failOn) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		*f.n--
		if *f.n == 0 {
			err := errors.New("the network is down")
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}
func (failOn) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// The renewal itself fails, or what follows it: then the lock is renewed.
func TestRenewalAfterOneThatFailedKeepsTheCounter(t *testing.T) {
	for _, nth := range []int{1, 2} {
		srv := testserver.Redis(t)
		n, _ := client(t, srv.Addr())
		fail := 0
		n.rdb.(*redis.Client).AddHook(failOn{&fail})
		a := newAttempt(t, "a")
		mustGrant(t, n, a)
		for range 2 { // now the server knows the scripts
			srv.Do("PEXPIRE", a.Keys.text(lastKey), strconv.FormatInt((a.TTL+2*time.Minute).Milliseconds(), 10))
			a.kept.Store(int64(driver.Now().Add(-n.Keep)))
			if err := n.Renew(background(t), []*Attempt{a})[0]; err != nil {
				t.Fatal(err)
			}
		}
		srv.Do("PEXPIRE", a.Keys.text(lastKey), strconv.FormatInt((a.TTL+2*time.Minute).Milliseconds(), 10))
		a.kept.Store(int64(driver.Now().Add(-n.Keep)))
		fail = nth
		if err := n.Renew(background(t), []*Attempt{a})[0]; (err == nil) != (nth == 2) {
			t.Fatalf("request %d fails: the renewal says %v", nth, err)
		}
		if err := n.Renew(background(t), []*Attempt{a})[0]; err != nil {
			t.Fatal(err)
		}
		if left := counterLeft(t, srv, a); left < a.TTL+n.Keep-time.Second {
			t.Errorf("after the renewal its counter has %v, and is to be kept for %v after the lease", left, n.Keep)
		}
	}
}

// The server says that the lock is not ours, and nothing more can be learned. It is lost.
func TestLockIsLostThoughNobodySaysWhy(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	fail := 0
	n.rdb.(*redis.Client).AddHook(failOn{&fail})
	for _, fail = range []int{0, 3} { // the second time, the server knows the scripts: the third request is what asks why
		a := newAttempt(t, "a")
		mustGrant(t, n, a)
		srv.Do("SET", "a", "somebody else's")
		var lost *locker.LostError
		if err := n.Renew(background(t), []*Attempt{a})[0]; !errors.As(err, &lost) || lost.Reason != locker.ReasonTakenOver {
			t.Errorf("%v", err)
		}
		srv.Do("DEL", "a")
	}
	if fail != 0 {
		t.Fatalf("nothing failed: %d", fail)
	}
}
