package singlenode_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

// replicated returns a master and a replica that has caught up and confirms.
func replicated(t *testing.T) (master, replica *testserver.RedisServer) {
	t.Helper()
	master = testserver.Redis(t, "--repl-diskless-sync-delay", "0")
	replica = testserver.Redis(t)
	host, port, _ := strings.Cut(master.Addr(), ":")
	replica.Do("REPLICAOF", host, port)
	for deadline := time.Now().Add(30 * time.Second); ; {
		if strings.Contains(master.Do("INFO", "replication"), "state=online") && confirms(t, master) {
			return master, replica
		}
		if time.Now().After(deadline) {
			t.Fatal("the replica did not catch up")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// confirms reports whether a write is acknowledged by the replica.
func confirms(t *testing.T, master *testserver.RedisServer) bool {
	l := newLocker(t, master.Addr(), singlenode.Options{Replicas: 1})
	lock, err := l.TryLock(patience(t), "probe")
	if err != nil {
		return false
	}
	return lock.Unlock(patience(t)) == nil
}

func TestGrantOutlivesAFailoverWhenReplicasConfirmIt(t *testing.T) {
	master, replica := replicated(t)
	l := newLocker(t, master.Addr(), singlenode.Options{Replicas: 1})
	lock := mustLock(t, l, "a")
	if err := lock.Renew(patience(t)); err != nil {
		t.Fatal(err)
	}
	master.Kill()
	replica.Do("REPLICAOF", "NO", "ONE")
	after := newLocker(t, replica.Addr(), singlenode.Options{})
	if _, err := after.TryLock(patience(t), "a"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock after the failover: %v", err)
	}
}

// The lock exists on the master for a moment. It must be gone when the caller
// hears that it did not get it, unless the error says that this is not known: on a busy
// machine the master may take longer to confirm the removal than the call waits for that.
// Then it is removed all the same, long before its TTL ends, and the call is made again.
func TestGrantThatReplicasDoNotConfirmIsGivenBack(t *testing.T) {
	master, replica := replicated(t)
	l := newLocker(t, master.Addr(), singlenode.Options{Replicas: 1})
	replica.Pause()
	defer replica.Resume()
	for ctx, known := patience(t), false; !known; {
		if ctx.Err() != nil {
			t.Fatal("no call heard that the lock is gone")
		}
		_, err := l.TryLock(ctx, "a", locker.WithTTL(time.Hour))
		if !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "0 of 1 replicas") {
			t.Fatalf("TryLock without a replica: %v", err)
		}
		if known = !errors.Is(err, locker.ErrOutcomeUnknown); known && master.Do("EXISTS", "a") != "0" {
			t.Fatal("the lock is held all the same")
		}
		master.Await("the removal", func() bool { return master.Do("EXISTS", "a") == "0" })
	}
}

func TestRenewalThatReplicasDoNotConfirmDoesNotCount(t *testing.T) {
	master, replica := replicated(t)
	l := newLocker(t, master.Addr(), singlenode.Options{Replicas: 1})
	lock := mustLock(t, l, "a", locker.WithoutRenewal())
	many := []*locker.Lock{mustLock(t, l, "b", locker.WithTTL(3*time.Second)), mustLock(t, l, "c", locker.WithTTL(3*time.Second))}
	before := lock.Deadline()
	replica.Pause()
	defer replica.Resume()
	if err := lock.Renew(patience(t)); !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("Renew without a replica: %v", err)
	}
	if moved := lock.Deadline().Sub(before); moved > time.Second {
		t.Errorf("the deadline moved by %v", moved)
	}
	for _, lock := range many {
		// Renewed together in a pipeline, and in vain. Whether an answer came before the lock had
		// ended is the machine's affair.
		<-lock.Lost()
		var lost *locker.LostError
		if !errors.As(lock.Err(), &lost) || lost.Reason != locker.ReasonUnreachable && lost.Reason != locker.ReasonExpired {
			t.Errorf("%v", lock.Err())
		}
	}
}

func TestWaitersAreServedWhereReplicasConfirm(t *testing.T) {
	master, _ := replicated(t)
	opts := singlenode.Options{Replicas: 1}
	holder, l := newLocker(t, master.Addr(), opts), newLocker(t, master.Addr(), opts)
	held := mustLock(t, holder, "a")
	grants := waitIn(t, holder, "a", l)
	mustUnlock(t, held)
	mustUnlock(t, next(t, grants).lock)
}
