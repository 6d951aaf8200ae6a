package redisnode

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/mailbox"
	"github.com/lockstile/locker/internal/netproxy"
	"github.com/lockstile/locker/internal/testserver"
)

// clientWithoutPublish is client for a user, u, who may subscribe and not publish.
func clientWithoutPublish(t *testing.T, srv *testserver.RedisServer) *Node {
	t.Helper()
	srv.Do("ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-publish")
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "u", Password: "p"})
	n := New(rdb, 0)
	t.Cleanup(func() {
		n.mail.Close()
		_ = rdb.Close()
	})
	return n
}

// A user may subscribe and not publish: a release tells nobody, and its script cannot fail,
// for the lock is free by then. So its waiters look by themselves.
func TestWaitersLookByThemselvesWhereNobodyMayPublish(t *testing.T) {
	srv := testserver.Redis(t)
	n := clientWithoutPublish(t, srv)
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

// The waiter's user may not publish, and the users of all others may. A release by one of them
// reserves the lock for it, and tells it so: nobody takes it for dead because it looks by itself.
func TestAWaiterThatMayNotPublishKeepsItsPlaceBesideOthersThatMay(t *testing.T) {
	srv := testserver.Redis(t)
	loud, _ := client(t, srv.Addr())
	quiet := clientWithoutPublish(t, srv)
	holder, waiter := newAttempt(t, "a"), newAttempt(t, "a")
	mustGrant(t, loud, holder)
	box := mailbox.NewBox()
	if err := quiet.mail.Open(background(t), waiter.Value, box.Put); err != nil {
		t.Fatal(err)
	}
	s, err := quiet.Acquire(background(t), waiter, Ask{Queue: true})
	if err != nil || s.First != 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	mustRelease(t, loud, holder)
	if s, err := loud.Acquire(background(t), newAttempt(t, "a"), Ask{}); err != nil || s.First != 0 {
		t.Fatalf("somebody got in before the waiter: %+v, %v", s, err)
	}
	await(t, box, mailbox.Ask)
	if s, err := quiet.Acquire(background(t), waiter, Ask{Queue: true, Ticket: s.Ticket}); err != nil || s.First == 0 {
		t.Errorf("its turn has come: %+v, %v", s, err)
	}
}

// A user is given the right to publish while somebody waits. The next subscription finds that
// out, and the waiter sleeps until it is told. Then the right is taken away again.
func TestEachSubscriptionAsksWhetherScriptsMayPublish(t *testing.T) {
	srv := testserver.Redis(t)
	holder, _ := client(t, srv.Addr())
	mustGrant(t, holder, newShare(t, "a", locker.WithTTL(time.Hour)))
	n, waiter := clientWithoutPublish(t, srv), newAttempt(t, "a")
	mustQueue(t, n, n.mail, waiter)
	look := func() time.Duration {
		s, err := n.Acquire(background(t), waiter, Ask{Queue: true})
		if err != nil || s.First != 0 {
			t.Fatalf("%+v, %v", s, err)
		}
		return s.NextLook()
	}
	for _, step := range []struct {
		rule   string
		sleeps bool
	}{{"+publish", true}, {"-publish", false}} {
		srv.Do("ACL", "SETUSER", "u", step.rule)
		srv.Do("CLIENT", "KILL", "TYPE", "pubsub")
		srv.Await("the subscription to know of "+step.rule, func() bool { return look() > time.Minute == step.sleeps })
	}
}

// stallAsked stalls the network when a client asks whether scripts may publish.
type stallAsked struct {
	redis.Hook
	net *netproxy.Proxy
}

func (stallAsked) DialHook(next redis.DialHook) redis.DialHook { return next }

func (stallAsked) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h stallAsked) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "eval" {
			h.net.Stall()
		}
		return next(ctx, cmd)
	}
}

// The client reads without an end, and the connection on which it asks whether scripts may
// publish falls silent. Who wants to wait does not wait for that answer.
func TestTheQuestionWhetherScriptsMayPublishHasAnEnd(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	p, err := netproxy.Listen(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), ReadTimeout: -1, WriteTimeout: -1})
	n := New(rdb, 0)
	t.Cleanup(func() {
		p.Close() // ends the request
		n.mail.Close()
		_ = rdb.Close()
	})
	if err := rdb.Ping(background(t)).Err(); err != nil { // so that there is a connection to ask on
		t.Fatal(err)
	}
	rdb.AddHook(stallAsked{net: p})
	if err := n.mail.Open(background(t), "a waiter", mailbox.NewBox().Put); err != nil {
		t.Errorf("after 20 s: %v", err)
	}
}
