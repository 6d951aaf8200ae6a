package etcd_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// One call asks for a TTL that the servers do not allow. A call behind it asks for another one.
func TestTheRefusalOfAnothersTTLIsNoAnswer(t *testing.T) {
	l := newLocker(t, testserver.Etcd(t, 1).Endpoints()...)
	for range 5 { // which of the two comes first is up to the machine
		first := make(chan error, 1)
		go func() {
			_, err := l.TryLock(t.Context(), "a", locker.WithTTL(time.Second))
			first <- err
		}()
		time.Sleep(time.Millisecond)
		lock, err := l.Lock(t.Context(), "a")
		if err != nil {
			t.Fatalf("a Lock with a TTL of its own: %v", err)
		}
		if err := <-first; err == nil || !strings.Contains(err.Error(), "ttl") {
			t.Logf("the first came second: %v", err)
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
