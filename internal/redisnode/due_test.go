package redisnode

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/mailbox"
	"github.com/lockstile/locker/internal/testserver"
)

// A leader has its lock for weeks, and standbys crash and start again. One that waits goes on
// asking, and the dead leave the queue. Their connections are half open: the server takes them for
// listeners.
func TestDeadWaitersLeaveTheQueueWhileOneAsks(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	dead, unread := client(t, srv.Addr())
	holder, waiter := newAttempt(t, "a"), newAttempt(t, "a")
	holder.TTL = time.Second
	mustGrant(t, n, holder)
	for range 25 {
		mustQueue(t, dead, unread, newAttempt(t, "a"))
	}
	if err := m.Open(background(t), waiter.Value, mailbox.NewBox().Put); err != nil {
		t.Fatal(err)
	}
	ask := Ask{Queue: true}
	srv.Await("only the one that asks to wait", func() bool {
		mustRenew(t, n, holder)
		s, err := n.Acquire(background(t), waiter, ask)
		if err != nil || s.First != 0 {
			t.Fatalf("%+v, %v", s, err)
		}
		ask.Ticket = s.Ticket
		return srv.Do("ZRANGE", holder.Keys.text(queueKey), "0", "-1") == n.member(waiter)
	})
	if got := srv.Do("ZRANGE", holder.Keys.text(dueKey), "0", "-1"); got != n.member(waiter) {
		t.Errorf("of the dead there is still %q", got)
	}
	mustRelease(t, n, holder)
	mustGrant(t, n, waiter)
}

// Nobody who asks when it is told to leaves the queue, whatever keeps it waiting.
func TestWhoAsksWhenItIsToldToKeepsItsPlace(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	for what, holder := range map[string]*Attempt{"a writer": newAttempt(t, "writer"), "a reader": newReader(t, "reader"), "a stranger": nil} {
		name := "stranger"
		if holder == nil {
			srv.Do("SET", name, "a stranger's", "PX", "60000")
		} else {
			name = holder.Keys.Lock
			mustGrant(t, n, holder)
		}
		for range 6 {
			a := newAttempt(t, name)
			if err := m.Open(background(t), a.Value, mailbox.NewBox().Put); err != nil {
				t.Fatal(err)
			}
			s, err := n.Acquire(background(t), a, Ask{Queue: true})
			if err != nil || s.First != 0 {
				t.Fatalf("behind %s: %+v, %v", what, s, err)
			}
			told := serverMicros(srv)/1000 + s.NextLook().Milliseconds()
			if at := due(t, srv, n, a); at < told+claim*8/10 {
				t.Errorf("behind %s and %d others: it is to ask in %v, and taken for dead %d ms later", what, s.Ahead, s.NextLook(), at-told)
			}
		}
	}
}

// A waiter that was paused has left the queue meanwhile. It comes back to its place, also where
// the lock is free by then.
func TestWaiterThatComesLateHasItsPlace(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	holder, late, next := newAttempt(t, "a"), newAttempt(t, "a"), newAttempt(t, "a")
	mustGrant(t, n, holder)
	box := mailbox.NewBox()
	if err := m.Open(background(t), late.Value, box.Put); err != nil {
		t.Fatal(err)
	}
	s, err := n.Acquire(background(t), late, Ask{Queue: true})
	if err != nil {
		t.Fatal(err)
	}
	pause := func() {
		t.Helper()
		srv.Do("ZADD", late.Keys.text(dueKey), "1", n.member(late))
		if again, err := n.Acquire(background(t), next, Ask{Queue: true}); err != nil || again.Ahead != 0 {
			t.Fatalf("behind one that is paused: %+v, %v", again, err)
		}
	}
	mustQueue(t, n, m, next)
	pause()
	if s, err = n.Acquire(background(t), late, Ask{Queue: true, Ticket: s.Ticket}); err != nil || s.First != 0 || s.Ahead != 0 {
		t.Errorf("it comes back, and has %d before it: %v", s.Ahead, err)
	}
	pause()
	srv.Do("DEL", "a")
	if s, err = n.Acquire(background(t), late, Ask{Queue: true, Ticket: s.Ticket}); err != nil || s.First == 0 {
		t.Errorf("the lock is free, and it was first: %+v, %v", s, err)
	}
	mustRefuse(t, n, newAttempt(t, "a"))
}

// What one script leaves to the next is done: readers that claim the lock pass it on to more.
func TestReadersPassTheLockOnToThoseWhomTheReleaseHasNotReached(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	holder, readers := newAttempt(t, "a"), make([]*Attempt, 2*many+10)
	mustGrant(t, n, holder)
	for i := range readers {
		readers[i] = newReader(t, "a")
		mustQueue(t, n, m, readers[i])
	}
	mustRelease(t, n, holder)
	for i, left := range []int{many + 10, 10, 0} {
		if got := srv.Do("ZCARD", holder.Keys.text(queueKey)); got != strconv.Itoa(left) {
			t.Errorf("after %d claims %s wait, want %d", i, got, left)
		}
		mustGrant(t, n, readers[i])
	}
	for _, r := range readers[3:] {
		mustGrant(t, n, r)
	}
}

// queueDead adds waiters whose processes are gone, with tickets from first on.
func queueDead(srv *testserver.RedisServer, a *Attempt, first, count int64) {
	for i := first; i < first+count; i++ {
		srv.Do("ZADD", a.Keys.text(queueKey), strconv.FormatInt(i, 10), fmt.Sprintf("dead%d:nobody", i))
	}
}

// The last waiter lives, and more have died before it than two scripts look at.
func TestWaiterBehindManyDeadIsServed(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	holder, waiter := newAttempt(t, "a"), newAttempt(t, "a")
	mustGrant(t, n, holder)
	queueDead(srv, holder, 0, 3*many)
	box := mustQueue(t, n, m, waiter)
	mustRelease(t, n, holder)
	await(t, box, mailbox.Ask)
	mustGrant(t, n, waiter)
	if got := srv.Do("EXISTS", holder.Keys.text(queueKey), holder.Keys.text(dueKey)); got != "0" {
		t.Errorf("%s keys are left", got)
	}
}

// due is by when a waiter must have asked, by the server's clock in milliseconds.
func due(t *testing.T, srv *testserver.RedisServer, n *Node, a *Attempt) int64 {
	t.Helper()
	at, err := strconv.ParseFloat(srv.Do("ZSCORE", a.Keys.text(dueKey), n.member(a)), 64)
	if err != nil {
		t.Fatal(err)
	}
	return int64(at)
}

func TestTheReaderBehindDeadWritersLooksWhenTheFirstMustHaveLooked(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	_, writer, reader := behindAReader(t, n, m)
	asked := serverMicros(srv) / 1000
	s, err := n.Acquire(background(t), reader, Ask{Queue: true})
	if at := due(t, srv, n, writer); err != nil || asked+s.NextLook().Milliseconds() < at {
		t.Errorf("it looks in %v, and the writer has %d ms: %v", s.NextLook(), at-asked, err)
	}
}

func TestAWriterThatComesToTheFrontMustLookWithinAClaim(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	mustGrant(t, n, newReader(t, "a"))
	writers := make([]*Attempt, 12) // the last of them is told to look in two seconds
	for i := range writers {
		writers[i] = newAttempt(t, "a")
		mustQueue(t, n, m, writers[i])
	}
	for _, w := range writers[:len(writers)-1] {
		if err := n.Withdraw(background(t), w); err != nil {
			t.Fatal(err)
		}
	}
	at, now := due(t, srv, n, writers[len(writers)-1]), serverMicros(srv)/1000
	if at > now+claim {
		t.Errorf("it has %d ms to look", at-now)
	}
	time.Sleep(2 * time.Millisecond)
	mustRefuse(t, n, newReader(t, "a"))
	if later := due(t, srv, n, writers[len(writers)-1]); later != at {
		t.Errorf("it has %d ms more, for a reader has come", later-at)
	}
}

// Many readers fill several pages, or one that is large, as the server keeps them.
func TestManyReadersAreListedAndBroken(t *testing.T) {
	srv := testserver.Redis(t)
	for _, most := range []string{"128", "20000"} {
		srv.Do("CONFIG", "SET", "zset-max-listpack-entries", most)
		listAndBreak(t, srv)
		if testing.Short() {
			return // the other is left to make proof
		}
	}
}

func listAndBreak(t *testing.T, srv *testserver.RedisServer) {
	t.Helper()
	b, end := newBig(t, srv, 9000)
	defer end()
	b.hold(locker.KindShared)
	b.read(time.Hour)
	if views, err := b.n.List(background(t), ""); err != nil || len(views) != 1 || len(views[0].Holders) != 9001 {
		t.Errorf("List: %d names, %v", len(views), err)
	}
	if broken, err := b.n.Break(background(t), b.mine.Keys, Numbered(0)); err != nil || !broken {
		t.Errorf("Break: %v, %v", broken, err)
	}
	if v, err := b.n.Look(background(t), b.mine.Keys); err != nil || v.Held {
		t.Errorf("after it %d hold: %v", len(v.Holders), err)
	}
}

// A slow writer waits for readers, and the server knows how slow it is. A fast reader that comes
// leaves it its time.
func TestASlowWriterKeepsItsTimeWhenAFastReaderComes(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	slow, m := client(t, srv.Addr())
	mustGrant(t, n, newReader(t, "a"))
	writer := newAttempt(t, "a")
	slow.trip.Store(1000)
	mustQueue(t, slow, m, writer)
	before := srv.Do("ZSCORE", writer.Keys.text(dueKey), slow.member(writer))
	mustRefuse(t, n, newReader(t, "a"))
	if after := srv.Do("ZSCORE", writer.Keys.text(dueKey), slow.member(writer)); after != before {
		t.Errorf("it was to ask by %s, and is now by %s", before, after)
	}
}

// The server's clock steps forward by more than a lease, and takes all waiters for dead. The holder
// finds its lock gone, and passes it on. The waiter lives, and is told.
func TestAWaiterThatLeavesTheQueueByAStepOfTheClockIsTold(t *testing.T) {
	srv, step := steppedServer(t)
	n, _ := client(t, srv.Addr())
	w, m := client(t, srv.Addr())
	holder, waiter := newAttempt(t, "a"), newAttempt(t, "a")
	holder.TTL, waiter.TTL = 10*time.Minute, 10*time.Minute
	mustGrant(t, n, holder)
	box := mustQueue(t, w, m, waiter)
	step(10*time.Minute + 30*time.Second) // more than the waiter has, and less than the queue is kept for
	srv.Await("the step", func() bool { return time.Until(time.UnixMicro(serverMicros(srv))) > 10*time.Minute })
	if err := n.Renew(background(t), []*Attempt{holder})[0]; !errors.Is(err, locker.ErrLost) {
		t.Fatal(err)
	}
	await(t, box, mailbox.Ask)
}

// Somebody deletes, or the server evicts, one of the keys.
func TestTheTimesOfWaitersExpire(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	holder, _, _ := behindAReader(t, n, m)
	srv.Do("DEL", holder.Keys.text(dueKey))
	mustRefuse(t, n, newReader(t, "a"))
	if got := srv.Do("PTTL", holder.Keys.text(dueKey)); got == "-1" {
		t.Error("they never do")
	}
}

// A waiter comes late, to a name that is held in another way by then, and dies before it withdraws.
func TestALateWaiterThatIsRefusedLeavesNothing(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	holder, late := newAttempt(t, "a"), newAttempt(t, "a")
	mustGrant(t, n, holder)
	if err := m.Open(background(t), late.Value, mailbox.NewBox().Put); err != nil {
		t.Fatal(err)
	}
	s, err := n.Acquire(background(t), late, Ask{Queue: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Do("ZADD", late.Keys.text(dueKey), "1", n.member(late))
	mustRelease(t, n, holder)
	mustGrant(t, n, newShare(t, "a", locker.WithSlots(3)))
	if _, err = n.Acquire(background(t), late, Ask{Queue: true, Ticket: s.Ticket}); !errors.Is(err, locker.ErrMismatch) {
		t.Fatal(err)
	}
	if got := srv.Do("EXISTS", late.Keys.text(queueKey), late.Keys.text(dueKey)); got != "0" {
		t.Errorf("%s keys are left", got)
	}
}

// Before and behind the one waiter that lives, more have died than a script looks at.
func TestTheOneThatLivesAmongManyDeadIsTold(t *testing.T) {
	for how, end := range map[string]func(n *Node, srv *testserver.RedisServer, holder *Attempt) error{
		"release": func(n *Node, _ *testserver.RedisServer, holder *Attempt) error {
			return n.Release(background(t), holder, 0)
		},
		"keep": func(n *Node, _ *testserver.RedisServer, holder *Attempt) error {
			return n.Release(background(t), holder, time.Second)
		},
		"break": func(n *Node, _ *testserver.RedisServer, holder *Attempt) error {
			_, err := n.Break(background(t), holder.Keys, Numbered(0))
			return err
		},
		"withdraw": func(n *Node, _ *testserver.RedisServer, holder *Attempt) error {
			return n.Withdraw(background(t), holder)
		},
		"renewal": func(n *Node, srv *testserver.RedisServer, holder *Attempt) error {
			srv.Do("DEL", "a")
			if err := n.Renew(background(t), []*Attempt{holder})[0]; !errors.Is(err, locker.ErrLost) {
				return err
			}
			return nil
		},
	} {
		srv := testserver.Redis(t)
		n, m := client(t, srv.Addr())
		holder, waiter := newAttempt(t, "a"), newAttempt(t, "a")
		mustGrant(t, n, holder)
		queueDead(srv, holder, 0, many)
		box := mustQueue(t, n, m, waiter)
		queueDead(srv, holder, 1<<52, many)
		if err := end(n, srv, holder); err != nil {
			t.Errorf("%s: %v", how, err)
		}
		await(t, box, mailbox.Ask)
	}
}

// Nobody has the lock, and all that wait for it are dead, more than two scripts look at.
func TestATryBehindManyDeadWaitersGetsTheLock(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	a := newAttempt(t, "a")
	queueDead(srv, a, 0, 3*many)
	mustGrant(t, n, a)
}

// The first waiter is paused, and the last was told to stand by. It gives up, and another one is
// told.
func TestAnotherStandsByForTheOneThatWithdraws(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	holder, first, middle, last := newAttempt(t, "a"), newAttempt(t, "a"), newAttempt(t, "a"), newAttempt(t, "a")
	mustGrant(t, n, holder)
	mustQueue(t, n, m, first)
	box := mustQueue(t, n, m, middle)
	mustQueue(t, n, m, last)
	mustRelease(t, n, holder)
	if err := n.Withdraw(background(t), last); err != nil {
		t.Fatal(err)
	}
	await(t, box, mailbox.StandBy)
}

// A server whose memory is full may still be asked why a lock was lost, and passes it on.
func TestAServerWhoseMemoryIsFullSaysWhyALockIsLost(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	holder, _, _ := behindAReader(t, n, m)
	srv.Do("DEL", holder.Keys.text(dueKey))
	fill(t, srv, n)
	if reply, _, err := n.send(background(t), holder.request(whyLost, claim, n.counts)); err != nil {
		t.Errorf("%v, %v", reply, err)
	}
}

// A waiter looks, finds the lock free, and more that died before it than two scripts look at. It
// looks again at once, until it is served.
func TestWaiterThatFindsManyDeadLooksAgainAtOnce(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	holder, waiter := newAttempt(t, "a"), newAttempt(t, "a")
	mustGrant(t, n, holder)
	queueDead(srv, holder, 0, 3*many)
	mustQueue(t, n, m, waiter)
	srv.Do("DEL", "a")
	for asks := 1; ; asks++ {
		s, err := n.Acquire(background(t), waiter, Ask{Queue: true})
		if err != nil || asks > 4 || s.First == 0 && s.NextLook() > 0 {
			t.Fatalf("it asks for the %d. time: %+v, %v", asks, s, err)
		}
		if s.First != 0 {
			return
		}
	}
}
