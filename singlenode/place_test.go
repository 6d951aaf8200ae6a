package singlenode

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/mailbox"
	"github.com/lockstile/locker/internal/testserver"
)

// Goal: who waits keeps its place, though its connections break and its claim lapses after
// that. Method: the attempt asks and is queued, asks in vain, asks without queueing, is taken
// out of the queue as if it had been paused when its turn came, and asks again.
func TestRequestThatFailsCostsNoPlaceInTheQueue(t *testing.T) {
	srv := testserver.Redis(t)
	l, a := attemptBehind(t, srv)
	if _, _, err := l.store.ask(t.Context(), a, true); err != nil {
		t.Fatal(err)
	}
	place := srv.Do("ZRANGE", "lockstile:q:{a}", "0", "-1", "WITHSCORES")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := l.store.ask(over, a, true); err == nil {
		t.Fatal("a request in a context that has ended was answered")
	}
	if _, _, err := l.store.ask(t.Context(), a, false); err != nil { // while its connection for words is opened again
		t.Fatal(err)
	}
	srv.Do("DEL", "lockstile:q:{a}")
	if _, _, err := l.store.ask(t.Context(), a, true); err != nil {
		t.Fatal(err)
	}
	if now := srv.Do("ZRANGE", "lockstile:q:{a}", "0", "-1", "WITHSCORES"); fmt.Sprint(now) != fmt.Sprint(place) {
		t.Errorf("it is back as %v, and was there as %v", now, place)
	}
}

// The driver adds up what calls have left: a later one that asks without queueing first, since
// the connection for words broke, does not undo it.
func TestWaiterThatGivesUpHasAPlaceLeft(t *testing.T) {
	srv := testserver.Redis(t)
	l, a := attemptBehind(t, srv)
	over, cancel := context.WithCancel(t.Context())
	if _, left, err := l.store.Acquire(t.Context(), a, func() context.Context {
		if srv.Do("ZCARD", "lockstile:q:{a}") == "1" {
			cancel()
		}
		return over
	}); err == nil || over.Err() == nil || left != driver.Unsure {
		t.Fatalf("it did not wait, or has a place in the queue and says that nothing is left (%v): %v", left, err)
	}
}

// Where nothing can be opened any more, nothing is open: the connection goes with its Mailbox.
func TestCloseEndsTheSubscription(t *testing.T) {
	l, _ := attemptBehind(t, testserver.Redis(t))
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := l.store.node.Mail().Open(t.Context(), "a waiter", func(mailbox.Word) {}); err == nil {
		t.Error("it listens")
	}
}

// attemptBehind returns an attempt at a lock that somebody has.
func attemptBehind(t *testing.T, srv *testserver.RedisServer) (*Locker, *attempt) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	l, err := New(rdb, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if _, err := l.TryLock(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	req, err := driver.NewRequest(nil, "a")
	if err != nil {
		t.Fatal(err)
	}
	a, err := l.store.Begin(req)
	if err != nil {
		t.Fatal(err)
	}
	return l, a
}
