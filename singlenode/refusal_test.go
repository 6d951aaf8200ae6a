package singlenode_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

// The user may run scripts and not WAIT: the grant is carried out, its confirmation
// refused. So is a renewal, which does not count.
func TestGrantWhoseWaitIsRefusedIsGivenBack(t *testing.T) {
	master, _ := replicated(t)
	master.Do("ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all")
	rdb := redis.NewClient(&redis.Options{Addr: master.Addr(), Username: "u", Password: "p"})
	l := newLockerOn(t, rdb, singlenode.Options{Replicas: 1})
	held := mustLock(t, l, "held", locker.WithTTL(time.Hour))
	master.Do("ACL", "SETUSER", "u", "-wait")
	_, err := l.TryLock(patience(t), "a", locker.WithTTL(time.Hour))
	if !errors.Is(err, locker.ErrUnavailable) && !errors.Is(err, locker.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("TryLock: %v", err)
	}
	until(t, "the grant to be given back", func() bool { return master.Do("EXISTS", "a") == "0" })
	if err := held.Renew(patience(t)); !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrLost) {
		t.Errorf("Renew: %v", err)
	}
	mustUnlock(t, held)
}

// A program that only renews a lock by its handle has to learn that asking again is of no use.
func TestRenewalThatIsRefusedSaysSo(t *testing.T) {
	srv := testserver.Redis(t)
	h, err := mustLock(t, newLocker(t, srv.Addr(), singlenode.Options{}), "a").Detach(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	srv.Do("ACL", "SETUSER", "u", "on", ">p", "~other:*", "&*", "+@all")
	l := newLockerOn(t, redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "u", Password: "p"}), singlenode.Options{})
	if err := locker.RenewHandle(patience(t), l, h); !errors.Is(err, locker.ErrRefused) || !errors.Is(err, locker.ErrUnavailable) {
		t.Error(err)
	}
}

// The user may not listen to the locks' channels. Nothing that Lock waits for will help.
func TestSubscriptionThatIsRefusedEndsTheWait(t *testing.T) {
	srv := testserver.Redis(t)
	srv.Do("ACL", "SETUSER", "u", "on", ">p", "~*", "resetchannels", "+@all")
	held := mustLock(t, newLocker(t, srv.Addr(), singlenode.Options{}), "a")
	defer mustUnlock(t, held)
	l := newLockerOn(t, redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "u", Password: "p"}), singlenode.Options{})
	began := time.Now()
	_, err := l.Lock(patience(t), "a") // for 30 s
	if took := time.Since(began); took > 20*time.Second || !strings.Contains(err.Error(), "NOPERM") || !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("Lock after %v: %v", took, err)
	}
}

// Unlock gives up after two seconds, which the tests of package driver ask exactly. Here the client's own timeouts
// must not hold it up.
func TestUnlockDoesNotWaitForWhatItsClientReads(t *testing.T) {
	for name, o := range map[string]redis.Options{
		"read 30 s":           {ReadTimeout: 30 * time.Second},
		"read -1":             {ReadTimeout: -1},
		"heeds, read 30 s":    {ContextTimeoutEnabled: true, ReadTimeout: 30 * time.Second},
		"heeds, read -1":      {ContextTimeoutEnabled: true, ReadTimeout: -1},
		"heeds, read -2":      {ContextTimeoutEnabled: true, ReadTimeout: -2}, // the client sets no deadline then
		"pool of 1":           {ReadTimeout: 30 * time.Second, PoolSize: 1},
		"pool of 1, no retry": {ReadTimeout: 30 * time.Second, PoolSize: 1, MaxRetries: -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := testserver.Redis(t)
			o.Addr = srv.Addr()
			l := newLockerOn(t, redis.NewClient(&o), singlenode.Options{})
			lock := mustLock(t, l, "a", locker.WithTTL(time.Hour))
			srv.Pause()
			defer srv.Resume()
			ended := make(chan error, 1)
			go func() { ended <- lock.Unlock(context.Background()) }()
			select {
			case <-ended:
			case <-time.After(20 * time.Second): // the client reads for 30 s, or for ever
				t.Error("Unlock waits for its client")
			}
		})
	}
}
