package redisnode

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/mailbox"
	"github.com/lockstile/locker/internal/testserver"
)

// client stands for a process of its own.
func client(t *testing.T, addr string) (*Node, *mailbox.Mailbox) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	n := New(rdb, 0)
	t.Cleanup(func() {
		n.mail.Close()
		_ = rdb.Close()
	})
	return n, n.mail
}

func newAttempt(t *testing.T, name string) *Attempt {
	t.Helper()
	req, err := driver.NewRequest(nil, name, locker.WithHolder("the test"))
	if err != nil {
		t.Fatal(err)
	}
	a := &Attempt{Terms: new(Terms)}
	if err := a.Init(req, ""); err != nil {
		t.Fatal(err)
	}
	return a
}

func background(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func mustGrant(t *testing.T, n *Node, a *Attempt) Standing {
	t.Helper()
	s, err := n.Acquire(background(t), a, Ask{})
	if err != nil || s.First == 0 {
		t.Fatalf("not granted: %+v, %v", s, err)
	}
	return s
}

func mustQueue(t *testing.T, n *Node, m *mailbox.Mailbox, a *Attempt) mailbox.Box {
	t.Helper()
	box := mailbox.NewBox()
	if err := m.Open(background(t), a.Value, box.Put); err != nil {
		t.Fatal(err)
	}
	if s, err := n.Acquire(background(t), a, Ask{Queue: true}); err != nil || s.First != 0 {
		t.Fatalf("not queued: %+v, %v", s, err)
	}
	return box
}

func await(t *testing.T, box mailbox.Box, want mailbox.Word) {
	t.Helper()
	select {
	case got := <-box:
		if got != want {
			t.Fatalf("word %d, want %d", got, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("no word %d", want)
	}
}

// A grant whose reply was lost is asked for again: same grant, same token, also when it
// was renewed meanwhile, and a lease that starts anew, because validity may be counted
// from the second request.
func TestGrantSentAgainIsTheSameGrant(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	a := newAttempt(t, "a")
	first := mustGrant(t, n, a)
	a.kept.Store(int64(driver.Now().Add(-n.Keep)))
	if err := n.Renew(background(t), []*Attempt{a})[0]; err != nil {
		t.Fatal(err)
	}
	srv.Do("PEXPIRE", "a", "5000")
	if second := mustGrant(t, n, a); second.First != first.First {
		t.Errorf("token %d, then %d for the same grant", first.First, second.First)
	}
	if left, _ := n.Look(background(t), a.Keys); left.TimeLeft < 20*time.Second {
		t.Errorf("the lease was not started anew: %v left", left.TimeLeft)
	}
	srv.Do("DEL", "lockstile:t:{a}")
	if third := mustGrant(t, n, a); third.First < first.First+Tokens {
		t.Errorf("token %d after the counter was lost, not greater than %d", third.First, first.First)
	}
}

// What refuses the one does not refuse the other.
func TestNewValueHasAMarkOfItsOwn(t *testing.T) {
	a := newAttempt(t, "a")
	fresh := a.WithNewValue()
	if fresh.Value == a.Value || fresh.Keys.text(ownKey) != a.Keys.markOf(fresh.Value) || fresh.Keys.Lock != "a" {
		t.Errorf("%q with the mark %q, after %q", fresh.Value, fresh.Keys.text(ownKey), a.Value)
	}
}

// The request times out, the clean-up overtakes it on another connection, then
// the request arrives.
func TestRequestThatArrivesAfterItsWithdrawalIsRefused(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	a := newAttempt(t, "a")
	a.unsure.Store(true)
	if err := n.Withdraw(background(t), a); err != nil {
		t.Fatal(err)
	}
	if s, err := n.Acquire(background(t), a, Ask{Queue: true}); !errors.Is(err, ErrWithdrawn) {
		t.Fatalf("late request: %+v, %v", s, err)
	}
	if n := srv.Do("EXISTS", "a", "lockstile:q:{a}"); n != "0" {
		t.Errorf("it left %s keys behind", n)
	}
}

// A lock that was granted after repeated tries is unlocked; then the first try
// arrives.
func TestFirstTryThatArrivesAfterUnlockIsRefused(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	a := newAttempt(t, "a")
	mustGrant(t, n, a)
	a.unsure.Store(true) // as after a try whose reply was lost
	if err := n.Release(background(t), a, 0); err != nil {
		t.Fatal(err)
	}
	if s, err := n.Acquire(background(t), a, Ask{}); !errors.Is(err, ErrWithdrawn) {
		t.Fatalf("late request: %+v, %v", s, err)
	}
}

// A request has no answer and is still on its way. The next one is answered, which says nothing
// of the first: that arrives after the unlock.
func TestAnswerToASecondRequestIsNoneToTheFirst(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	a := newAttempt(t, "a")
	a.unsure.Store(true) // as after a request whose answer was lost
	mustGrant(t, n, a)
	if err := n.Release(background(t), a, 0); err != nil {
		t.Fatal(err)
	}
	if s, err := n.Acquire(background(t), a, Ask{}); !errors.Is(err, ErrWithdrawn) {
		t.Errorf("late request: %+v, %v", s, err)
	}
}

// The last of the queue, who is to look if the claim lapses, is dead: the first is told.
func TestFirstStandsByWhereTheLastOfTheQueueIsDead(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	for _, last := range []string{"dead:nobody", "garbage"} {
		holder, next, first := newAttempt(t, last), newAttempt(t, last), newAttempt(t, last)
		mustGrant(t, n, holder)
		mustQueue(t, n, m, next)
		box := mustQueue(t, n, m, first)
		srv.Do("ZADD", holder.Keys.text(queueKey), "9000000000000000", last)
		if err := n.Release(background(t), holder, 0); err != nil {
			t.Fatal(err)
		}
		await(t, box, mailbox.StandBy)
	}
}

// In a Cluster a server counts only its own listeners: a waiter that none of them is may
// listen to another server. It is not taken for dead, and the first stands by, too.
func TestWaiterOfAClusterIsNotTakenForDeadWhereNobodyListens(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	n.counts = 0
	for _, elsewhere := range []bool{true, false} {
		name := fmt.Sprint(elsewhere)
		holder, next, first, last := newAttempt(t, name), newAttempt(t, name), newAttempt(t, name), newAttempt(t, name)
		mustGrant(t, n, holder)
		if elsewhere {
			srv.Do("ZADD", holder.Keys.text(queueKey), "1", next.Value+":another server's")
		} else {
			mustQueue(t, n, m, next)
		}
		boxes := []mailbox.Box{mustQueue(t, n, m, first), mustQueue(t, n, m, last)}
		if err := n.Release(background(t), holder, 0); err != nil {
			t.Fatal(err)
		}
		if got := srv.Do("GET", name); got != "?"+next.Value {
			t.Errorf("it is reserved for %s, want %s", got, next.Value)
		}
		for _, box := range boxes {
			await(t, box, mailbox.StandBy)
		}
	}
}

// The holder may not publish. Its release works, and the waiter finds out by itself.
func TestReleaseByAUserWhoMayNotPublishPassesTheLockOn(t *testing.T) {
	srv := testserver.Redis(t)
	srv.Do("ACL", "SETUSER", "u", "on", ">p", "~*", "resetchannels", "+@all")
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "u", Password: "p"})
	defer rdb.Close()
	mute := New(rdb, 0)
	n, m := client(t, srv.Addr())
	holder, waiter := newAttempt(t, "a"), newAttempt(t, "a")
	mustGrant(t, mute, holder)
	mustQueue(t, n, m, waiter)
	if err := mute.Release(background(t), holder, 0); err != nil {
		t.Error(err)
	}
	mustGrant(t, n, waiter)
}

// A waiter gives up when its turn has come: the next one gets the lock.
func TestTurnOfAWaiterWhoWithdrawsIsPassedOn(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	n2, m2 := client(t, srv.Addr())
	holder, goner, next := newAttempt(t, "a"), newAttempt(t, "a"), newAttempt(t, "a")
	mustGrant(t, n, holder)
	first, second := mustQueue(t, n, m, goner), mustQueue(t, n2, m2, next)
	if err := n.Release(background(t), holder, 0); err != nil {
		t.Fatal(err)
	}
	await(t, first, mailbox.Ask)
	await(t, second, mailbox.StandBy)
	if err := n.Withdraw(background(t), goner); err != nil {
		t.Fatal(err)
	}
	await(t, second, mailbox.Ask)
	mustGrant(t, n2, next)
}

// While the key is reserved it is taken for everybody but the waiter, and it is
// not held.
func TestReservedLockIsTakenAndNotHeld(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	holder, waiter, other := newAttempt(t, "a"), newAttempt(t, "a"), newAttempt(t, "a")
	held := mustGrant(t, n, holder)
	box := mustQueue(t, n, m, waiter)
	if err := n.Release(background(t), holder, 0); err != nil {
		t.Fatal(err)
	}
	await(t, box, mailbox.Ask)
	if info, err := n.Look(background(t), holder.Keys); err != nil || info.Held {
		t.Errorf("a reserved lock is shown as held: %+v, %v", info, err)
	}
	if s, err := n.Acquire(background(t), other, Ask{}); err != nil || s.First != 0 {
		t.Errorf("a reserved lock was granted to a stranger: %+v, %v", s, err)
	}
	for _, err := range n.Renew(background(t), []*Attempt{waiter}) {
		if !errors.Is(err, locker.ErrLost) {
			t.Errorf("a reservation was renewed: %v", err)
		}
	}
	if s := mustGrant(t, n, waiter); s.First < held.First+Tokens {
		t.Errorf("token %d after %d", s.First, held.First)
	}
}

func TestReleaseAndRenewalOfAStrangerTouchNothing(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	holder, stranger := newAttempt(t, "a"), newAttempt(t, "a")
	mustGrant(t, n, holder)
	srv.Do("PEXPIRE", "a", "5000")
	var lost *locker.LostError
	if err := n.Release(background(t), stranger, 0); !errors.As(err, &lost) || lost.Reason != locker.ReasonTakenOver {
		t.Errorf("a stranger's release: %v", err)
	}
	if err := n.Renew(background(t), []*Attempt{stranger})[0]; !errors.As(err, &lost) {
		t.Errorf("a stranger's renewal: %v", err)
	}
	if err := n.Withdraw(background(t), stranger); err != nil {
		t.Fatal(err)
	}
	info, err := n.Look(background(t), holder.Keys)
	if err != nil || !info.Held || info.TimeLeft > 5*time.Second {
		t.Errorf("the holder's lock was touched: %+v, %v", info, err)
	}
}

func TestBrokenHolderIsToldThatItWasForced(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	a := newAttempt(t, "a")
	mustGrant(t, n, a)
	if broken, err := n.Break(background(t), a.Keys, Numbered(0)); err != nil || !broken {
		t.Fatalf("break: %v, %v", broken, err)
	}
	var lost *locker.LostError
	if err := n.Renew(background(t), []*Attempt{a})[0]; !errors.As(err, &lost) || lost.Reason != locker.ReasonForced {
		t.Errorf("renewal after a break: %v", err)
	}
	a.unsure.Store(true)
	for range 2 { // its answer may be lost
		if err := n.Release(background(t), a, 0); !errors.As(err, &lost) || lost.Reason != locker.ReasonForced {
			t.Errorf("release after a break: %v", err)
		}
	}
	if broken, err := n.Break(background(t), a.Keys, Numbered(0)); err != nil || broken {
		t.Errorf("break of a free lock: %v, %v", broken, err)
	}
}

// The first answer to a release is lost, so it is sent again.
func TestReleaseOfABrokenLockThatIsSentAgainSaysThatItWasForced(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	a := newAttempt(t, "a")
	mustGrant(t, n, a)
	if broken, err := n.Break(background(t), a.Keys, Numbered(0)); err != nil || !broken {
		t.Fatalf("break: %v, %v", broken, err)
	}
	n.rdb.(*redis.Client).AddHook(&afterScript{act: func() {}})
	var lost *locker.LostError
	if err := n.Release(background(t), a, 0); !errors.As(err, &lost) || lost.Reason != locker.ReasonForced {
		t.Errorf("release after a break: %v", err)
	}
}

// A mark is for requests that may be late. Where all were answered it would only fill
// the server.
func TestReleaseWithoutALateRequestLeavesNoMark(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	a := newAttempt(t, "a")
	mustGrant(t, n, a)
	if err := n.Release(background(t), a, 0); err != nil {
		t.Fatal(err)
	}
	if left := srv.Do("KEYS", "*"); left != a.Keys.text(lastKey) {
		t.Errorf("left behind: %q, want the counter alone", left)
	}
}

func TestBrokenLockIsPassedOn(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	holder, waiter := newAttempt(t, "a"), newAttempt(t, "a")
	mustGrant(t, n, holder)
	box := mustQueue(t, n, m, waiter)
	if broken, err := n.Break(background(t), holder.Keys, Numbered(0)); err != nil || !broken {
		t.Fatalf("break: %v, %v", broken, err)
	}
	await(t, box, mailbox.Ask)
	mustGrant(t, n, waiter)
}

func TestScriptsAreLoadedAgainAfterAFlush(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	attempts := []*Attempt{newAttempt(t, "a"), newAttempt(t, "b"), newAttempt(t, "c")}
	for _, a := range attempts {
		mustGrant(t, n, a)
		srv.Do("SCRIPT", "FLUSH")
	}
	for i, err := range n.Renew(background(t), attempts) {
		if err != nil {
			t.Errorf("renewal %d: %v", i, err)
		}
	}
}

func TestGarbageInTheQueueIsPassedOver(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	holder, waiter := newAttempt(t, "a"), newAttempt(t, "a")
	mustGrant(t, n, holder)
	srv.Do("ZADD", "lockstile:q:{a}", "1", "garbage", "2", "dead:nobody")
	box := mustQueue(t, n, m, waiter)
	if err := n.Release(background(t), holder, 0); err != nil {
		t.Fatal(err)
	}
	await(t, box, mailbox.Ask)
}

func TestReservedNamesAreRefused(t *testing.T) {
	if _, err := NewKeys("lockstile:q:{a}"); err == nil {
		t.Error("a lock on the bookkeeping of another was accepted")
	}
}

// The holder died and its lease ended; a newcomer asks before any waiter's timer
// has fired.
func TestNewcomerDoesNotOvertakeWaitersOfALockThatExpired(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	dead, waiter, newcomer := newAttempt(t, "a"), newAttempt(t, "a"), newAttempt(t, "a")
	mustGrant(t, n, dead)
	box := mustQueue(t, n, m, waiter)
	srv.Do("DEL", "a")
	if s, err := n.Acquire(background(t), newcomer, Ask{}); err != nil || s.First != 0 {
		t.Errorf("a newcomer was served first: %+v, %v", s, err)
	}
	await(t, box, mailbox.Ask)
	mustGrant(t, n, waiter)
}

// Its own subscription may be broken just then: nobody listens for it.
func TestFirstInTheQueueIsGrantedAFreeLockThoughNobodyListensForIt(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	n2, m2 := client(t, srv.Addr())
	dead, first, second := newAttempt(t, "a"), newAttempt(t, "a"), newAttempt(t, "a")
	mustGrant(t, n, dead)
	if s, err := n.Acquire(background(t), first, Ask{Queue: true}); err != nil || s.First != 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	mustQueue(t, n2, m2, second)
	srv.Do("DEL", "a")
	if s, err := n.Acquire(background(t), first, Ask{Queue: true}); err != nil || s.First == 0 {
		t.Errorf("the first of the queue: %+v, %v", s, err)
	}
}

// The waiters before it are paused, and the last of the queue, which is told to stand by,
// may be paused as well. The one that has noticed a lapsed claim notices the next.
func TestWaiterThatPassesALapsedClaimOnIsNextToLook(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	waiter := newAttempt(t, "a")
	sub := n.rdb.Subscribe(background(t), channel("paused"))
	defer sub.Close()
	if _, err := sub.Receive(background(t)); err != nil {
		t.Fatal(err)
	}
	for _, score := range []string{"1", "2", "3"} {
		srv.Do("ZADD", "lockstile:q:{a}", score, score+":paused")
	}
	if err := m.Open(background(t), waiter.Value, func(mailbox.Word) {}); err != nil {
		t.Fatal(err)
	}
	s, err := n.Acquire(background(t), waiter, Ask{Queue: true})
	if err != nil || s.First != 0 || s.Ahead != 0 || s.Left > mailbox.ClaimTime {
		t.Errorf("it passed the lock on and looks again with %d before it and %v left, %v", s.Ahead, s.Left, err)
	}
	if again, err := n.Acquire(background(t), waiter, Ask{Queue: true, Ticket: s.Ticket}); err != nil || again.Ahead != 2 {
		t.Errorf("it has %d before it, want 2: %v", again.Ahead, err)
	}
}

// Nobody releases the lock of a dead holder, so nobody drops the waiters that died in
// its queue. A newcomer must not wait a claim time for each.
func TestDeadWaitersInFrontCostAFewClaimTimes(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	waiter := newAttempt(t, "a")
	mustGrant(t, n, newAttempt(t, "a"))
	for k := range 100 {
		srv.Do("ZADD", "lockstile:q:{a}", strconv.Itoa(k), strconv.Itoa(k)+":nobody")
	}
	if err := m.Open(background(t), waiter.Value, func(mailbox.Word) {}); err != nil {
		t.Fatal(err)
	}
	s, err := n.Acquire(background(t), waiter, Ask{Queue: true})
	if look := s.NextLook() - s.Left; err != nil || s.Ahead != 100 || look > 4*mailbox.ClaimTime {
		t.Errorf("it looks %v after the end of the lease, with %d before it: %v", look, s.Ahead, err)
	}
	srv.Do("DEL", "a")
	mustGrant(t, n, waiter)
}

func TestWaiterLooksAClaimTimeLaterForEachBeforeIt(t *testing.T) {
	for ahead := range mostAhead + 1 {
		s := Standing{Left: time.Minute, Ahead: ahead}
		if got, want := s.NextLook(), time.Minute+time.Duration(ahead)*mailbox.ClaimTime; got != want {
			t.Errorf("behind %d others it looks after %v, want %v", ahead, got, want)
		}
	}
}

func TestGrantedWaiterLeavesNoPlaceBehind(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	dead, waiter := newAttempt(t, "a"), newAttempt(t, "a")
	mustGrant(t, n, dead)
	mustQueue(t, n, m, waiter)
	srv.Do("DEL", "a")
	if s, err := n.Acquire(background(t), waiter, Ask{Queue: true}); err != nil || s.First == 0 {
		t.Fatalf("the first waiter of a free lock: %+v, %v", s, err)
	}
	if places := srv.Do("ZCARD", "lockstile:q:{a}"); places != "0" {
		t.Errorf("%s places in the queue, of a waiter that has been served", places)
	}
}

// A waiter that was passed over, because its subscription was broken, comes back
// with its ticket.
func TestWaiterThatAsksAgainKeepsItsPlace(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	holder, first, second := newAttempt(t, "a"), newAttempt(t, "a"), newAttempt(t, "a")
	mustGrant(t, n, holder)
	if err := m.Open(background(t), first.Value, func(mailbox.Word) {}); err != nil {
		t.Fatal(err)
	}
	was, err := n.Acquire(background(t), first, Ask{Queue: true})
	if err != nil {
		t.Fatal(err)
	}
	mustQueue(t, n, m, second)
	if again, err := n.Acquire(background(t), first, Ask{Queue: true}); err != nil || again.Ahead != 0 {
		t.Errorf("it has not heard of its ticket, and is there again as %+v, %v", again, err)
	}
	srv.Do("ZREM", "lockstile:q:{a}", n.member(first))
	again, err := n.Acquire(background(t), first, Ask{Queue: true, Ticket: was.Ticket})
	if err != nil || again.Ahead != 0 || again.Ticket != was.Ticket {
		t.Errorf("it is back as %+v, %v; it was %+v", again, err, was)
	}
}

func TestNewcomerIsBehindAllWaitersThoughTheClockHasGoneBack(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	holder, first, second := newAttempt(t, "a"), newAttempt(t, "a"), newAttempt(t, "a")
	mustGrant(t, n, holder)
	mustQueue(t, n, m, first)
	hour := time.Now().Add(time.Hour).UnixMicro() // the clock when the first came
	srv.Do("ZADD", "lockstile:q:{a}", "XX", fmt.Sprint(hour), n.member(first))
	if s, err := n.Acquire(background(t), second, Ask{Queue: true}); err != nil || s.Ticket != hour+1 || s.Ahead != 1 {
		t.Errorf("behind the ticket %d the second is %+v, %v", hour, s, err)
	}
}

// It lasts longer than any waiter sleeps: until the end of the lease that it knows of.
func TestQueueOfDeadWaitersExpiresAndOutlivesThoseWhoSleep(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	for _, c := range []struct{ holder, waiter, want time.Duration }{
		{time.Minute, time.Second, time.Minute}, {time.Second, time.Minute, time.Minute}, {time.Hour, time.Second, time.Hour},
	} {
		name := fmt.Sprint(c)
		holder, waiter, other := newAttempt(t, name), newAttempt(t, name), newAttempt(t, name)
		holder.TTL, waiter.TTL, other.TTL = c.holder, c.waiter, time.Second
		mustGrant(t, n, holder)
		mustQueue(t, n, m, waiter)
		srv.Do("PEXPIRE", name, "1000") // as if a holder with a short lease had come meanwhile
		mustQueue(t, n, m, other)
		left := n.rdb.PTTL(background(t), holder.Keys.text(queueKey)).Val()
		if most := c.want + time.Minute; left > most || left < most-10*time.Second {
			t.Errorf("behind a lease of %v with one of %v the queue expires in %v, want %v", c.holder, c.waiter, left, most)
		}
	}
}

// A stranger tells nobody when it gives the lock back, so the first in the queue looks
// soon, and each other one later than the one before it. The stranger's key may end so
// far away that no sum of milliseconds is a number to the server, or a Duration.
func TestFirstInTheQueueLooksOftenBehindAStranger(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	quorum := ofQuorumNode(t, srv.Addr(), 0)
	for i, left := range []string{"", "60000", "100000000000000", "10000000000000000", "900000000000000000", "9000000000000000000"} {
		name := fmt.Sprint("a", i)
		a := newAttempt(t, name)
		mustGrant(t, n, a) // so that there is an entry of ours
		if err := n.Release(background(t), a, 0); err != nil {
			t.Fatal(err)
		}
		if srv.Do("SET", name, "the"); left != "" { // which is a word of our holder's text, too
			srv.Do("PEXPIRE", name, left)
		}
		for ahead, n := range []*Node{n, quorum} {
			waiter := newAttempt(t, name)
			if err := m.Open(background(t), waiter.Value, func(mailbox.Word) {}); err != nil {
				t.Fatal(err)
			}
			s, err := n.Acquire(background(t), waiter, Ask{Queue: true, Offer: serverMicros(srv)})
			if most := time.Duration(ahead)*time.Second + 100*time.Millisecond; err != nil || s.First != 0 || s.Ahead != ahead || s.Left != most {
				t.Errorf("behind a key with %q ms left it looks after %v, want %v: %+v, %v", left, s.Left, most, s, err)
			}
		}
		if keep := srv.Do("PTTL", a.Keys.text(queueKey)); len(keep) != 5 {
			t.Errorf("behind a key with %q ms left the queue expires in %s ms, want about 90 s", left, keep)
		}
		if info, err := n.Look(background(t), a.Keys); err != nil || len(left) > 5 && info.TimeLeft < locker.MaxTTL {
			t.Errorf("Inspect of a key with %q ms left: %+v, %v", left, info, err)
		}
	}
	srv.Do("SET", "short", "a stranger's", "PX", "50")
	if s, err := n.Acquire(background(t), newAttempt(t, "short"), Ask{Queue: true}); err != nil || s.First == 0 && s.Left > 50*time.Millisecond {
		t.Errorf("behind a key that ends in 50 ms it looks after %v, %v", s.Left, err)
	}
}

// A reservation is ours, and ends by itself.
func TestNobodyLooksOftenBehindAReservation(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	srv.Do("SET", "a", "?"+newAttempt(t, "a").Value, "PX", "60000")
	if s, err := n.Acquire(background(t), newAttempt(t, "a"), Ask{Queue: true}); err != nil || s.Left < 30*time.Second {
		t.Errorf("it looks after %v, %v", s.Left, err)
	}
	for i, value := range []string{"?a stranger's", strings.Repeat("s", 1+valueSize)} {
		name := fmt.Sprint("b", i)
		srv.Do("SET", name, value, "PX", "60000")
		if s, err := n.Acquire(background(t), newAttempt(t, name), Ask{Queue: true}); err != nil || s.Left > time.Second {
			t.Errorf("behind a stranger's %q it looks after %v, %v", value, s.Left, err)
		}
	}
}

// finders are how a holder finds that its lock is not its own any more.
func finders(t *testing.T, n *Node) map[string]func(*Attempt) error {
	t.Helper()
	return map[string]func(*Attempt) error{
		"release": func(a *Attempt) error { return n.Release(background(t), a, 0) },
		"keep":    func(a *Attempt) error { return n.Release(background(t), a, time.Hour) },
		"renew":   func(a *Attempt) error { return n.Renew(background(t), []*Attempt{a})[0] },
		"renew in a batch": func(a *Attempt) error {
			name := random()
			other := newAttempt(t, string(name[:]))
			mustGrant(t, n, other)
			return n.Renew(background(t), []*Attempt{other, a})[1]
		},
	}
}

// The key of a lock is a stranger's now, or reserved, and others wait. Its former holder
// gives nothing away.
func TestLockThatSomebodyElseHasIsNotPassedOn(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	for how, find := range finders(t, n) {
		holder, waiter := newAttempt(t, how), newAttempt(t, how)
		mustGrant(t, n, holder)
		mustQueue(t, n, m, waiter)
		for _, value := range []string{"a stranger's", "?" + newAttempt(t, how).Value} {
			srv.Do("SET", how, value, "PX", "60000")
			if err := find(holder); !errors.Is(err, locker.ErrLost) {
				t.Errorf("%s: %v", how, err)
			}
			if got, waiters := srv.Do("GET", how), srv.Do("ZCARD", waiter.Keys.text(queueKey)); got != value || waiters != "1" {
				t.Errorf("after %s the key has %q and %s wait", how, got, waiters)
			}
		}
	}
}

// Somebody deletes the key of a lock. Its holder finds that, when it renews or releases,
// and tells the first waiter, which would else sleep until the end of the lease.
func TestLockThatIsGoneIsReservedForTheFirstWaiter(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	for how, find := range finders(t, n) {
		holder, waiter, newcomer := newAttempt(t, how), newAttempt(t, how), newAttempt(t, how)
		mustGrant(t, n, holder)
		box := mustQueue(t, n, m, waiter)
		srv.Do("DEL", how)
		var lost *locker.LostError
		if err := find(holder); !errors.As(err, &lost) || lost.Reason != locker.ReasonTakenOver {
			t.Errorf("%s of a lock that is gone: %v", how, err)
		}
		await(t, box, mailbox.Ask)
		if s, err := n.Acquire(background(t), newcomer, Ask{}); err != nil || s.First != 0 {
			t.Errorf("after %s a newcomer is served first: %+v, %v", how, s, err)
		}
		mustGrant(t, n, waiter)
	}
}

// There is no replica, and one must confirm. Where nothing was granted or renewed there is
// nothing to confirm: that a lock is taken, or lost, is known all the same.
func TestNoReplicaNeedsToConfirmThatALockIsTakenOrLost(t *testing.T) {
	srv := testserver.Redis(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()
	n := New(rdb, 1)
	held, lost := newAttempt(t, "held"), newAttempt(t, "lost")
	srv.Do("SET", "held", held.Value, "PX", "60000")
	if s, err := n.Acquire(background(t), newAttempt(t, "held"), Ask{}); err != nil || s.First != 0 {
		t.Errorf("a lock that is taken: %+v, %v", s, err)
	}
	for range 2 { // at first the server does not know the script, and is asked for each alone
		errs := n.Renew(background(t), []*Attempt{held, lost})
		if !errors.Is(errs[0], locker.ErrUnavailable) || errors.Is(errs[0], locker.ErrLost) || !errors.Is(errs[1], locker.ErrLost) {
			t.Errorf("the renewals of a lock that is held, and of one that is lost: %v", errs)
		}
	}
	if err := n.Withdraw(background(t), lost); err != nil {
		t.Errorf("a clean-up: %v", err)
	}
}

// The user may run scripts, and not WAIT: the server refuses to say what its replicas have of a
// grant that it has made.
func TestGrantWhoseConfirmationIsRefusedMayBeOne(t *testing.T) {
	srv := testserver.Redis(t)
	srv.Do("ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-wait")
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "u", Password: "p"})
	defer rdb.Close()
	a := newAttempt(t, "a")
	if _, err := New(rdb, 1).Acquire(background(t), a, Ask{}); err == nil || !a.Unsure() || srv.Do("GET", "a") != a.Value {
		t.Errorf("the attempt is unsure: %v, %v", a.Unsure(), err)
	}
}

// A request is sent by its caller's own goroutine where its context cannot end, and a release also
// where the client heeds the context.
func TestRequestsOfTheCallersGoroutineAreAnswered(t *testing.T) {
	srv := testserver.Redis(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	n, a := New(rdb, 0), newAttempt(t, "a")
	if s, err := n.Acquire(context.Background(), a, Ask{}); err != nil || s.First == 0 {
		t.Errorf("%+v, %v", s, err)
	}
	mustRelease(t, n, a)
	if srv.Do("EXISTS", "a") != "0" {
		t.Error("it is still there")
	}
}

// The server is silent, and there is no time left. Nothing says that the locks are lost.
func TestBatchOfRenewalsEndsWithItsContext(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	held := []*Attempt{newAttempt(t, "a"), newAttempt(t, "b")}
	for _, a := range held {
		mustGrant(t, n, a)
	}
	srv.Pause()
	defer srv.Resume()
	ctx, cancel := context.WithCancelCause(context.Background())
	slow := errors.New("the server is slow")
	time.AfterFunc(100*time.Millisecond, func() { cancel(slow) })
	for _, err := range n.Renew(ctx, held) {
		if !errors.Is(err, slow) || !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrLost) {
			t.Errorf("the renewal: %v", err)
		}
	}
}

// A holder of ours tells who is next: nobody needs to look before the end of its lease,
// also where the counter was raised since.
func TestNobodyLooksOftenBehindAHolderOfOurs(t *testing.T) {
	srv := testserver.Redis(t)
	n := ofQuorumNode(t, srv.Addr(), 0)
	holder := newAttempt(t, "a")
	first := mustGrant(t, n, holder).First
	for range 2 {
		if s, err := n.Acquire(background(t), newAttempt(t, "a"), Ask{Queue: true}); err != nil || s.Left < 20*time.Second {
			t.Errorf("it looks after %v, %v", s.Left, err)
		}
		if _, err := n.Raise(background(t), holder, first+10*Tokens); err != nil {
			t.Fatal(err)
		}
	}
}

// The server quotes a request that it does not understand.
func TestErrorsShowNoValueOfALock(t *testing.T) {
	srv := testserver.Redis(t, "--rename-command", "EVALSHA", "")
	n, _ := client(t, srv.Addr())
	a := newAttempt(t, "a")
	_, err := n.Acquire(background(t), a, Ask{})
	if !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "evalsha") || a.Unsure() {
		t.Errorf("unsure %v: %v", a.Unsure(), err)
	}
	for _, err := range []error{err, n.Renew(background(t), []*Attempt{a})[0]} {
		if err == nil || strings.Contains(err.Error(), a.Value[:8]) {
			t.Errorf("the value %s is in: %v", a.Value, err)
		}
	}
}

// A request for the lock is held up on its way, the attempt wins on other nodes, or with
// a request that was sent again, and is released: here it finds nothing. Then the first
// request arrives.
func TestReleaseRefusesARequestThatIsStillOnItsWay(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	a := newAttempt(t, "a")
	a.unsure.Store(true)
	var lost *locker.LostError
	if err := n.Release(background(t), a, 0); !errors.As(err, &lost) {
		t.Fatal(err)
	}
	if s, err := n.Acquire(background(t), a, Ask{}); !errors.Is(err, ErrWithdrawn) {
		t.Errorf("the request that came late: %+v, %v", s, err)
	}
}
