package peers_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/bench/peers"
)

// A lease that its user forgets to extend would look worse than it is.
func TestALeaseIsExtendedForAsLongAsItIsHeld(t *testing.T) {
	srv := testserver.Redis(t)
	for _, scheme := range []string{"redislock", "redsync"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			l, err := peers.Open(t.Context(), scheme+"+redis://"+srv.Addr())
			if err != nil {
				t.Fatal(err)
			}
			req := &driver.Request{Name: scheme, TTL: 5 * time.Second, Renew: true}
			lock, err := l.Lock(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-lock.Lost():
				t.Fatalf("lost: %v", lock.Err())
			case <-time.After(2 * req.TTL):
			}
			if _, err := l.TryLock(t.Context(), req); !errors.Is(err, locker.ErrTaken) {
				t.Errorf("while it is held another gets the error %v", err)
			}
			if err := lock.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
			again, err := l.TryLock(t.Context(), req)
			if err != nil {
				t.Fatalf("after the unlock: %v", err)
			}
			if err := again.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Whether a late Unlock harms the next holder is for the library to show: it is
// asked also by a holder that has lost.
func TestTheLibraryIsAskedToUnlockAlsoAfterALoss(t *testing.T) {
	srv := testserver.Redis(t)
	l, err := peers.Open(t.Context(), "redislock+redis://"+srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	lock, err := l.Lock(t.Context(), &driver.Request{Name: "late", TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-lock.Lost():
	case <-time.After(30 * time.Second):
		t.Fatal("it did not end with its lease")
	}
	asked := calls(srv)
	if err := lock.Unlock(t.Context()); !errors.Is(err, locker.ErrLost) {
		t.Errorf("unlocking a lock that is lost: %v", err)
	}
	if got := calls(srv); got == asked {
		t.Error("the server was not asked")
	}
}

// calls is how many scripts the server was asked for by their digest.
func calls(srv *testserver.RedisServer) string {
	_, stats, _ := strings.Cut(srv.Do("INFO", "commandstats"), "cmdstat_evalsha:calls=")
	n, _, _ := strings.Cut(stats, ",")
	return n
}
