package redisnode

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/mailbox"
	"github.com/lockstile/locker/internal/testserver"
)

// mustKeep releases a lock that is to stay taken.
func mustKeep(t *testing.T, n *Node, a *Attempt, keep time.Duration) {
	t.Helper()
	if err := n.Release(background(t), a, keep); err != nil {
		t.Fatal(err)
	}
}

// keptFor checks that the server keeps a lock taken for a holder who has given it back,
// for so long and a minute less at least.
func keptFor(t *testing.T, srv *testserver.RedisServer, a *Attempt, most time.Duration) {
	t.Helper()
	ms, err := strconv.ParseInt(srv.Do("PTTL", a.Keys.Lock), 10, 64)
	left := time.Duration(ms) * time.Millisecond
	if got := srv.Do("GET", a.Keys.Lock); err != nil || got != "-"+a.Value || left > most || left < most-time.Minute {
		t.Errorf("the key has %q for another %v, want %q for %v", got, left, "-"+a.Value, most)
	}
}

// A job has ended sooner than WithMinHold says. Whatever is still on its way over other
// connections, and whoever asks, the lock stays taken for as long as it should.
func TestLockThatIsKeptTakenIsNobodys(t *testing.T) {
	const keep = 2 * time.Hour
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	other, m := client(t, srv.Addr())
	a := newAttempt(t, "a")
	token := mustGrant(t, n, a).First
	mustKeep(t, n, a, keep)
	keptFor(t, srv, a, keep)
	for what, late := range map[string]func() error{
		"a renewal": func() error { return other.Renew(background(t), []*Attempt{a})[0] },
		"a release": func() error { return other.Release(background(t), &Attempt{Terms: a.Terms}, 0) },
	} {
		if err := late(); !errors.Is(err, locker.ErrLost) {
			t.Errorf("%s that is late: %v", what, err)
		}
		keptFor(t, srv, a, keep)
	}
	if err := other.Withdraw(background(t), a); err != nil {
		t.Error(err)
	}
	keptFor(t, srv, a, keep)
	for who, asks := range map[string]*Attempt{"the holder": a, "another": newAttempt(t, "a")} {
		if s, err := other.Acquire(background(t), asks, Ask{}); err != nil || s.First != 0 {
			t.Errorf("%s asks for it: %+v, %v", who, s, err)
		}
	}
	if got := srv.Do("SET", "a", "a stranger's", "NX", "PX", "60000"); got != "" {
		t.Errorf("a client of another library gets it: %q", got)
	}
	waiter := newAttempt(t, "a")
	mustQueue(t, other, m, waiter)
	if s, err := other.Acquire(background(t), waiter, Ask{Queue: true}); err != nil || s.NextLook() < keep-time.Minute {
		t.Errorf("a waiter looks again after %v: %v", s.NextLook(), err)
	}
	v, err := n.Look(background(t), a.Keys)
	if err != nil || !v.Held || v.Holder != "the test" || uint64(v.Token) != token || v.TimeLeft < keep-time.Minute || v.Value != a.Value {
		t.Errorf("it is shown as %+v, %v", v, err)
	}
	if left := counterLeft(t, srv, a); left < keep+n.Keep-time.Minute {
		t.Errorf("its counter has %v, and is to be kept for %v after it", left, n.Keep)
	}
}

// A request for the lock is still on its way when it is given back, as after a lost reply.
func TestKeptLockIsNotGrantedToARequestThatIsLate(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	a := newAttempt(t, "a")
	mustGrant(t, n, a)
	a.unsure.Store(true)
	mustKeep(t, n, a, time.Hour)
	srv.Do("DEL", "a") // its time is over
	if s, err := n.Acquire(background(t), a, Ask{Queue: true}); !errors.Is(err, ErrWithdrawn) {
		t.Errorf("a late request was answered %+v, %v", s, err)
	}
}

// The driver asks again, with what remains, after a keep that it saw no answer to. The
// first may also arrive after the second.
func TestKeepThatIsSentAgainNeverLengthens(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	a := newAttempt(t, "a")
	mustGrant(t, n, a)
	for _, step := range []struct{ keep, want time.Duration }{{2 * time.Hour, 2 * time.Hour}, {time.Hour, time.Hour}, {2 * time.Hour, time.Hour}} {
		mustKeep(t, n, a, step.keep)
		keptFor(t, srv, a, step.want)
	}
}

// Its tokens are ahead of a clock that has gone back, so it is kept until that has passed
// them.
func TestKeepDoesNotShortenTheLifeOfACounter(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	a := newAttempt(t, "a")
	mustGrant(t, n, a)
	srv.Do("PEXPIRE", a.Keys.text(lastKey), strconv.FormatInt((24*time.Hour).Milliseconds(), 10))
	mustKeep(t, n, a, time.Minute)
	if left := counterLeft(t, srv, a); left < 23*time.Hour {
		t.Errorf("its counter has %v left of a day", left)
	}
}

func TestKeepLastsNoMillisecondLessThanItWasAskedFor(t *testing.T) {
	for d, want := range map[time.Duration]int64{1: 1, time.Millisecond: 1, time.Millisecond + 1: 2} {
		if got := wholeMillis(d); got != want {
			t.Errorf("%v are sent as %d ms, want %d", d, got, want)
		}
	}
}

// The reply to a keep is lost with its connection, and it is sent again: at once, or by
// another call after a while. The time may be over by then.
func TestKeepWhoseReplyWasLostHasWorked(t *testing.T) {
	for what, after := range map[string]string{"it is kept": "", "its time is over": "DEL"} {
		srv := testserver.Redis(t)
		n, _ := client(t, srv.Addr())
		a := newAttempt(t, "a")
		mustGrant(t, n, a)
		n.rdb.(*redis.Client).AddHook(&afterScript{act: func() {
			if after != "" {
				srv.Do(after, "a")
			}
		}})
		for range 2 {
			if err := n.Release(background(t), a, time.Hour); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if after == "" {
			keptFor(t, srv, a, time.Hour)
		}
	}
}

func TestKeepOfALockThatSomebodyHasBrokenSaysSo(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	for _, kept := range []bool{false, true} {
		a := newAttempt(t, "a")
		mustGrant(t, n, a)
		if kept {
			mustKeep(t, n, a, time.Hour)
		}
		if broken, err := n.Break(background(t), a.Keys, Numbered(0)); err != nil || !broken {
			t.Fatalf("break: %v, %v", broken, err)
		}
		a.unsure.Store(true)
		var lost *locker.LostError
		for range 2 { // its answer may be lost
			if err := n.Release(background(t), a, time.Hour); !errors.As(err, &lost) || lost.Reason != locker.ReasonForced {
				t.Errorf("a keep after a break: %v", err)
			}
		}
		if srv.Do("EXISTS", "a") != "0" {
			t.Error("what was broken is not free")
		}
	}
}

// The answer to a Break of a kept lock is lost. Sent again, it says that it has worked.
func TestBreakOfAKeptLockWhoseAnswerIsLostHasWorked(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	a := newAttempt(t, "a")
	mustGrant(t, n, a)
	mustKeep(t, n, a, time.Hour)
	if _, err := n.Look(background(t), a.Keys); err != nil { // its script is known
		t.Fatal(err)
	}
	n.rdb.(*redis.Client).AddHook(&afterScript{text: true, act: func() {}})
	if broken, err := n.Break(background(t), a.Keys, Numbered(0)); err != nil || !broken {
		t.Errorf("%v, %v", broken, err)
	}
}

// The lease has half a minute, and the lock will be free sooner: the first and the last
// that are there are told to look, and those who are not there lose their places.
func TestKeepTellsTheFirstAndTheLastWaiterToLook(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	holder := newAttempt(t, "a")
	mustGrant(t, n, holder)
	for i := range 3 {
		srv.Do("ZADD", holder.Keys.text(queueKey), fmt.Sprint(i), fmt.Sprintf("dead%d:nobody", i))
	}
	var boxes []mailbox.Box
	for range 3 {
		boxes = append(boxes, mustQueue(t, n, m, newAttempt(t, "a")))
	}
	for i := range 3 {
		srv.Do("ZADD", holder.Keys.text(queueKey), "900000000000000"+fmt.Sprint(i), fmt.Sprintf("later%d:nobody", i))
	}
	mustKeep(t, n, holder, 100*time.Millisecond)
	await(t, boxes[0], mailbox.Ask)
	await(t, boxes[2], mailbox.Ask)
	if len(boxes[1]) > 0 {
		t.Error("the one between them was told, too")
	}
	if got := srv.Do("ZCARD", holder.Keys.text(queueKey)); got != "3" {
		t.Errorf("%s are in the queue, 3 are there", got)
	}
}

// In a Cluster they may listen to another server than the one that counts.
func TestKeepInAClusterDropsNoWaiter(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	n.counts = 0
	holder := newAttempt(t, "a")
	mustGrant(t, n, holder)
	for i := range 3 {
		srv.Do("ZADD", holder.Keys.text(queueKey), fmt.Sprint(i), fmt.Sprintf("waiter%d:another server's", i))
	}
	mustKeep(t, n, holder, time.Hour)
	if got := srv.Do("ZCARD", holder.Keys.text(queueKey)); got != "3" {
		t.Errorf("%s of 3 wait", got)
	}
}

func TestOnlyWaiterIsToldOnceOfAKeep(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	holder := newAttempt(t, "a")
	mustGrant(t, n, holder)
	box := mustQueue(t, n, m, newAttempt(t, "a"))
	for range 2 {
		mustKeep(t, n, holder, time.Hour)
		await(t, box, mailbox.Ask)
	}
	if stats := srv.Do("INFO", "commandstats"); !strings.Contains(stats, "cmdstat_publish:calls=3,") { // the waiter has tried whether words arrive
		t.Errorf("two keeps told it more than twice:\n%s", stats)
	}
}

// A keep is sent to the server that had the lock, which is a replica by now.
func TestKeepFollowsTheFailoverOfAMasterOfACluster(t *testing.T) {
	confirmedOrNot(t, func(t *testing.T, c cluster, confirm int) {
		n := c.node(t, confirm)
		a := attemptsOn(t, c.masters[0], 1)[0]
		mustGrant(t, n, a)
		c.failOver()
		mustKeep(t, n, a, time.Hour)
		keptFor(t, c.replicas[0], a, time.Hour)
	})
}

// A keep that no replica has is none: the replica may take over. That is so, too, when it
// is sent again, over a connection that has written nothing before.
func TestKeepIsConfirmedByReplicasAlsoWhenItIsSentAgain(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	n := c.node(t, 1)
	a := attemptsOn(t, c.masters[0], 1)[0]
	mustGrant(t, n, a)
	c.replicas[0].Pause()
	defer c.replicas[0].Resume()
	for _, n := range []*Node{n, c.node(t, 1)} {
		var few *replicaError
		if err := n.Release(background(t), a, time.Hour); !errors.As(err, &few) {
			t.Errorf("without a replica: %v", err)
		}
	}
	c.replicas[0].Resume()
	mustKeep(t, n, a, time.Hour)
	keptFor(t, c.masters[0], a, time.Hour)
}
