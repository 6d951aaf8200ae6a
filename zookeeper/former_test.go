package zookeeper

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// A waiter gives up a place of which it does not know whether it was made, and
// asks for another. When that is in vain, the first may still be there.
//
//	the request for a place arrives, and its reply is lost; the server hangs, and
//	cannot be reached, for as long as the waiter has patience
func TestPlaceThatWasGivenUpForAnotherIsNotForgotten(t *testing.T) {
	t.Parallel()
	srv := testserver.ZooKeeper(t, 1)[0]
	proxy := inFront(t, srv)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, l := connect(t, proxy.Addr(), 10*time.Second)
	_, watcher := connect(t, srv.Addr(), 30*time.Second)
	lock, err := l.Lock(ctx, "n") // makes what the next does not have to ask for
	if err == nil {
		err = lock.Unlock(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	proxy.CutReplies()
	result := make(chan error, 1)
	go func() {
		_, err := l.Lock(ctx, "n")
		result <- err
	}()
	for {
		places, _, err := watcher.first(ctx, DefaultBase+"/n")
		if places == 1 {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("the place is not made: %v", err)
		}
		time.Sleep(time.Millisecond)
	}
	srv.Pause()
	defer srv.Resume()
	proxy.Close()
	if err := <-result; !errors.Is(err, locker.ErrOutcomeUnknown) || !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("with its place still there: %v", err)
	}
}
