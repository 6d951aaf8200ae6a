package redisnode

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/mailbox"
	"github.com/lockstile/locker/internal/testserver"
)

// A user may subscribe and not publish: a release tells nobody, and its script cannot fail,
// for the lock is free by then. So its waiters look by themselves.
func TestWaitersLookByThemselvesWhereNobodyMayPublish(t *testing.T) {
	srv := testserver.Redis(t)
	srv.Do("ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-publish")
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "u", Password: "p"})
	n := New(rdb, 0)
	t.Cleanup(func() {
		n.mail.Close()
		_ = rdb.Close()
	})
	holder, waiter := newShare(t, "a", locker.WithTTL(time.Hour)), newShare(t, "a", locker.WithTTL(time.Hour))
	mustGrant(t, n, holder)
	box := mailbox.NewBox()
	if err := n.mail.Open(background(t), waiter.Value, box.Put); err != nil {
		t.Fatal(err)
	}
	s, err := n.Acquire(background(t), waiter, Ask{Queue: true})
	if err != nil || s.First != 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	if look := s.NextLook(); look > time.Second {
		t.Errorf("no word can come, and the waiter looks again in %v", look)
	}
	mustRelease(t, n, holder)
	if s, err := n.Acquire(background(t), waiter, Ask{Queue: true, Ticket: s.Ticket}); err != nil || s.First == 0 {
		t.Errorf("after the release: %+v, %v", s, err)
	}
}
