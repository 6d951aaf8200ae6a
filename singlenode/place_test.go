package singlenode

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/lab/testserver"
)

// Goal: who waits keeps its place, though its connections break and its claim lapses after
// that. Method: the attempt asks and is queued, asks in vain, asks without queueing, is taken
// out of the queue as if it had been paused when its turn came, and asks again.
func TestRequestThatFailsCostsNoPlaceInTheQueue(t *testing.T) {
	srv := testserver.Redis(t)
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
	req, err := locker.NewRequest("a")
	if err != nil {
		t.Fatal(err)
	}
	a, err := l.store.Begin(req)
	if err != nil {
		t.Fatal(err)
	}
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
