package redisnode

import (
	"errors"
	"fmt"
	"slices"
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

func newShare(t *testing.T, name string, opts ...locker.Option) *Attempt {
	t.Helper()
	req, err := driver.NewRequest(nil, name, append(opts, locker.WithHolder("the reader"))...)
	if err != nil {
		t.Fatal(err)
	}
	a := &Attempt{Terms: new(Terms)}
	if err := a.Init(req, ""); err != nil {
		t.Fatal(err)
	}
	return a
}

func newReader(t *testing.T, name string) *Attempt {
	t.Helper()
	return newShare(t, name, locker.WithShared())
}

func mustRefuse(t *testing.T, n *Node, a *Attempt) {
	t.Helper()
	if s, err := n.Acquire(background(t), a, Ask{}); err != nil || s.First != 0 {
		t.Fatalf("not taken: %+v, %v", s, err)
	}
}

func mustRelease(t *testing.T, n *Node, attempts ...*Attempt) {
	t.Helper()
	for _, a := range attempts {
		if err := n.Release(background(t), a, 0); err != nil {
			t.Fatal(err)
		}
	}
}

func mustRenew(t *testing.T, n *Node, a *Attempt) {
	t.Helper()
	if err := n.Renew(background(t), []*Attempt{a})[0]; err != nil {
		t.Fatal(err)
	}
}

// end is when a key expires, by the server's clock in milliseconds.
func end(srv *testserver.RedisServer, key string) int64 {
	ms, _ := strconv.ParseInt(srv.Do("PEXPIRETIME", key), 10, 64)
	return ms
}

// A client of another library looks at the lock's key alone.
func TestStrangersAreKeptOutUntilTheLastReaderEnds(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	short, long := newReader(t, "a"), newReader(t, "a")
	short.TTL, long.TTL = 20*time.Second, time.Hour
	mustGrant(t, n, short)
	soon := end(srv, "a")
	mustGrant(t, n, long)
	late := end(srv, "a")
	if late-soon < (50 * time.Minute).Milliseconds() {
		t.Errorf("the key ends at %d with a reader of 20 s, at %d with another of an hour", soon, late)
	}
	another := newReader(t, "a")
	mustGrant(t, n, another)
	if got := end(srv, "a"); got != late {
		t.Errorf("a reader with a shorter lease moves the end of the key from %d to %d", late, got)
	}
	mustRelease(t, n, another)
	mustRenew(t, n, short)
	if got := end(srv, "a"); got != late {
		t.Errorf("the renewal of the shorter lease moves the end of the key from %d to %d", late, got)
	}
	if got := srv.Do("SET", "a", "a stranger's", "NX", "PX", "1000"); got == "OK" {
		t.Error("a stranger has the lock beside readers")
	}
	mustRelease(t, n, long)
	mustRenew(t, n, short)
	if got := end(srv, "a"); late-got < (50 * time.Minute).Milliseconds() {
		t.Errorf("the reader of an hour has left, and the key ends at %d, not with the other's 20 s", got)
	}
	mustRelease(t, n, short)
	if got := srv.Do("KEYS", "*"); got != "lockstile:t:{a}" {
		t.Errorf("all have left, and there is %q", got)
	}
}

func TestReadersAreKeptOutByAStranger(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	srv.Do("SET", "a", "a stranger's", "PX", "60000")
	mustRefuse(t, n, newReader(t, "a"))
	if _, err := n.Acquire(background(t), newShare(t, "a", locker.WithSlots(3)), Ask{}); !errors.Is(err, locker.ErrMismatch) {
		t.Errorf("a slot: %v", err)
	}
	if keys := srv.Do("KEYS", "*"); keys != "a" {
		t.Errorf("those who do not wait have left %q", keys)
	}
}

// Somebody deletes the key of a lock that readers have. Ours know better, and the next
// renewal keeps strangers out again.
func TestReadersOutliveTheLossOfTheLocksKey(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	for _, share := range []*Attempt{newReader(t, "readers"), newShare(t, "slots", locker.WithSlots(1))} {
		name := share.Keys.Lock
		mustGrant(t, n, share)
		srv.Do("DEL", name)
		if s, err := n.Acquire(background(t), newAttempt(t, name), Ask{}); s.First != 0 {
			t.Errorf("%s: a writer has the lock as well: %+v, %v", name, s, err)
		}
		mustRenew(t, n, share)
		if left := srv.Do("GET", name); !isNobodys(left) {
			t.Errorf("%s: after a renewal the key has %q", name, left)
		}
		srv.Do("DEL", name)
		mustRelease(t, n, share)
		mustGrant(t, n, newAttempt(t, name))
	}
}

// A stranger has deleted the key and locked it. Every way to find out says so.
func TestReaderWhoseLockAStrangerTookHasLostIt(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	for how, find := range finders(t, n) {
		if how == "keep" {
			continue // of exclusive locks only
		}
		a := newReader(t, how)
		mustGrant(t, n, newReader(t, how))
		mustGrant(t, n, a)
		mustGrant(t, n, newReader(t, how)) // who has not heard of it yet
		srv.Do("SET", how, "a stranger's", "PX", "60000")
		mustRefuse(t, n, a)
		if number, err := n.Raise(background(t), a, 1<<52); err == nil {
			t.Errorf("the number %d is written back beside a stranger", number)
		}
		if err := find(a); !errors.Is(err, locker.ErrLost) {
			t.Errorf("%s: %v", how, err)
		}
		if got := srv.Do("GET", how); got != "a stranger's" {
			t.Errorf("after %s the key has %q", how, got)
		}
	}
}

// A grant whose reply was lost is asked for again: same number, same slot, and a lease that
// starts anew.
func TestShareSentAgainIsTheSameShare(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	for _, a := range []*Attempt{newReader(t, "readers"), newShare(t, "slots", locker.WithSlots(3))} {
		name := a.Keys.Lock
		mustGrant(t, n, newShare(t, name, ofKind(a)))
		first := mustGrant(t, n, a)
		mustGrant(t, n, newShare(t, name, ofKind(a)))
		srv.Do("ZADD", a.Keys.text(endsKey), strconv.FormatInt(serverMicros(srv)/1000+5000, 10), a.Value)
		srv.Do("PEXPIRE", name, "5000")
		if again := mustGrant(t, n, a); again != first {
			t.Errorf("%s: %+v, then %+v", name, first, again)
		}
		if left := end(srv, name) - serverMicros(srv)/1000; left < 20_000 {
			t.Errorf("%s: strangers are kept out for %d ms", name, left)
		}
		v, err := n.Look(background(t), a.Keys)
		if err != nil || len(v.Holds) != 3 || v.Slots != a.Slots {
			t.Fatalf("%s: %+v, %v", name, v, err)
		}
		for _, h := range v.Holds {
			if h.TimeLeft < 20*time.Second {
				t.Errorf("%s: the lease was not started anew: %+v", name, h)
			}
		}
	}
}

// ofKind is the option that asks for the same as a.
func ofKind(a *Attempt) locker.Option {
	if a.Kind == locker.KindShared {
		return locker.WithShared()
	}
	return locker.WithSlots(a.Slots)
}

func TestLateRequestOfAShareIsRefused(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	for how, end := range map[string]func(*Attempt) error{
		"release":  func(a *Attempt) error { return n.Release(background(t), a, 0) },
		"withdraw": func(a *Attempt) error { return n.Withdraw(background(t), a) },
		"break": func(a *Attempt) error {
			_, err := n.Break(background(t), a.Keys, func(h Hold) bool { return h.Value == a.Value })
			return err
		},
	} {
		for _, a := range []*Attempt{newReader(t, how+" readers"), newShare(t, how+" slots", locker.WithSlots(3)), newReader(t, how+" alone")} {
			others := 0
			if a.Keys.Lock != how+" alone" {
				mustGrant(t, n, newShare(t, a.Keys.Lock, ofKind(a)))
				others = 1
			}
			mustGrant(t, n, a)
			a.unsure.Store(true) // as after a try whose reply was lost
			if err := end(a); err != nil {
				t.Fatalf("%s: %v", how, err)
			}
			if s, err := n.Acquire(background(t), a, Ask{}); !errors.Is(err, ErrWithdrawn) {
				t.Errorf("%s: late request: %+v, %v", how, s, err)
			}
			if v, err := n.Look(background(t), a.Keys); err != nil || len(v.Holds) != others {
				t.Errorf("%s: %+v, %v", how, v, err)
			}
		}
	}
}

// A release reserves the lock for all readers up to the next writer, in one step.
func TestReadersUpToTheNextWriterAreToldTogether(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	holder, readers, writer, after := newAttempt(t, "a"), make([]*Attempt, 3), newAttempt(t, "a"), newReader(t, "a")
	mustGrant(t, n, holder)
	boxes := make([]mailbox.Box, len(readers))
	for i := range readers {
		readers[i] = newReader(t, "a")
		boxes[i] = mustQueue(t, n, m, readers[i])
	}
	wrote, late := mustQueue(t, n, m, writer), mustQueue(t, n, m, after)
	mustRelease(t, n, holder)
	for _, box := range boxes {
		await(t, box, mailbox.Ask)
	}
	await(t, late, mailbox.StandBy)
	if got := srv.Do("SET", "a", "a stranger's", "NX", "PX", "1000"); got == "OK" {
		t.Fatal("a stranger has the lock that is reserved for readers")
	}
	mustRefuse(t, n, newReader(t, "a"))
	for _, r := range readers {
		mustGrant(t, n, r)
	}
	if got := srv.Do("ZCARD", holder.Keys.text(endsKey)); got != "3" {
		t.Errorf("three read, and there are %s entries", got)
	}
	mustRefuse(t, n, after)
	mustRelease(t, n, readers...)
	await(t, wrote, mailbox.Ask)
	mustGrant(t, n, writer)
	await(t, late, mailbox.StandBy)
	mustRelease(t, n, writer)
	await(t, late, mailbox.Ask)
	mustGrant(t, n, after)
}

// A reservation is used up by its grant, also where nobody waits any more.
func TestGrantToAReaderLeavesNoReservation(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	holder, readers := newAttempt(t, "a"), []*Attempt{newReader(t, "a"), newReader(t, "a")}
	mustGrant(t, n, holder)
	for _, r := range readers {
		mustQueue(t, n, m, r)
	}
	mustRelease(t, n, holder)
	if v, err := n.Look(background(t), holder.Keys); err != nil || v.Held || len(v.Holders) > 0 {
		t.Errorf("it is reserved, and shown as %+v, %v", v, err)
	}
	for _, r := range readers {
		mustGrant(t, n, r)
	}
	if got := srv.Do("ZCARD", holder.Keys.text(endsKey)); got != "2" {
		t.Errorf("two read, and there are %s entries", got)
	}
}

// Readers that do not claim the lock in time lose it, without a word from them.
func TestClaimsOfReadersLapse(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	holder, paused, writer := newAttempt(t, "a"), newReader(t, "a"), newAttempt(t, "a")
	mustGrant(t, n, holder)
	box := mustQueue(t, n, m, paused)
	mustQueue(t, n, m, writer)
	mustRelease(t, n, holder)
	await(t, box, mailbox.Ask)
	mustRefuse(t, n, writer)
	srv.Await("the claim to lapse", func() bool {
		s, err := n.Acquire(background(t), writer, Ask{})
		return err == nil && s.First != 0
	})
}

// A reader waits behind a writer that waits for another reader. The writer's process is
// gone, or it is paused: then it does not look in time.
func TestReaderIsNotKeptOutByAWriterThatIsNotThere(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	for _, name := range []string{"gone", "paused"} {
		other, otherMail := client(t, srv.Addr())
		holder, writer, reader := newReader(t, name), newAttempt(t, name), newReader(t, name)
		holder.TTL = time.Hour
		mustGrant(t, n, holder)
		mustQueue(t, other, otherMail, writer)
		mustQueue(t, n, m, reader)
		if name == "gone" {
			otherMail.Close()
		}
		var looks []time.Duration
		srv.Await("the reader's turn", func() bool {
			s, err := n.Acquire(background(t), reader, Ask{Queue: true})
			looks = append(looks, s.NextLook())
			return err == nil && s.First != 0
		})
		if most := slices.Max(looks); most > 2500*time.Millisecond {
			t.Errorf("%s: the reader is to look after %v", name, most)
		}
		if got := srv.Do("ZCARD", reader.Keys.text(queueKey)); got != "0" {
			t.Errorf("%s: %s still wait", name, got)
		}
	}
}

// behindAReader has a reader hold the lock of "a", and a writer and then another reader wait for it.
func behindAReader(t *testing.T, n *Node, m *mailbox.Mailbox) (holder, writer, reader *Attempt) {
	t.Helper()
	holder, writer, reader = newReader(t, "a"), newAttempt(t, "a"), newReader(t, "a")
	mustGrant(t, n, holder)
	mustQueue(t, n, m, writer)
	mustQueue(t, n, m, reader)
	return holder, writer, reader
}

// A writer that looks when it is told to keeps its place, however long others read.
func TestWriterThatLooksKeepsItsPlace(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	holder, writer, reader := behindAReader(t, n, m)
	for looks := range 3 {
		s, err := n.Acquire(background(t), writer, Ask{Queue: true})
		if err != nil || s.First != 0 || s.Ahead != 0 || s.NextLook() != time.Second {
			t.Fatalf("look %d of the writer: %+v, %v", looks, s, err)
		}
		if behind, err := n.Acquire(background(t), reader, Ask{Queue: true}); err != nil || behind.Ahead != 0 || behind.Left <= time.Second || behind.Left > 1601*time.Millisecond { // when the writer must have looked, and a tenth of a second
			t.Fatalf("look %d of the reader behind it: %+v, %v", looks, behind, err)
		}
		for end := time.Now().Add(s.NextLook()); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			mustRefuse(t, n, newReader(t, "a"))
		}
	}
	mustRelease(t, n, holder)
	mustGrant(t, n, writer)
}

// It should have looked a while ago, and nobody has come by since.
func TestWriterThatLooksLateKeepsItsPlaceIfNobodyHasTakenIt(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	holder, writer, reader := behindAReader(t, n, m)
	srv.Do("ZADD", holder.Keys.text(dueKey), "1", n.member(writer))
	ticket, _ := strconv.ParseInt(srv.Do("ZSCORE", holder.Keys.text(queueKey), n.member(writer)), 10, 64)
	if s, err := n.Acquire(background(t), writer, Ask{Queue: true, Ticket: ticket}); err != nil || s.First != 0 || s.Ahead != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	mustRefuse(t, n, reader)
}

// A writer that comes to the front, because the one before it leaves, is told to look: until
// then nobody knows whether it is there.
func TestWriterThatComesToTheFrontIsToldToLook(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	holder, first, second := newReader(t, "a"), newAttempt(t, "a"), newAttempt(t, "a")
	mustGrant(t, n, holder)
	mustQueue(t, n, m, first)
	box := mustQueue(t, n, m, second)
	if err := n.Withdraw(background(t), first); err != nil {
		t.Fatal(err)
	}
	await(t, box, mailbox.Ask)
	mustRefuse(t, n, newReader(t, "a"))
}

// The writer that comes to the front has never looked from there. If its connection is gone it
// is dropped at once, and if it is paused when it has not looked in time.
func TestReaderIsNotKeptOutByAWriterThatComesToTheFrontAndIsNotThere(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	for _, name := range []string{"gone", "paused"} {
		other, otherMail := client(t, srv.Addr())
		holder, first, second := newReader(t, name), newAttempt(t, name), newAttempt(t, name)
		mustGrant(t, n, holder)
		mustQueue(t, n, m, first)
		mustQueue(t, other, otherMail, second)
		if name == "gone" {
			otherMail.Close()
			srv.Await("the end of its connection", func() bool { return strings.HasSuffix(srv.Do("PUBSUB", "NUMSUB", channel(other.id)), "0") })
		}
		if err := n.Withdraw(background(t), first); err != nil {
			t.Fatal(err)
		}
		if name == "gone" {
			mustGrant(t, n, newReader(t, name))
			continue
		}
		srv.Await("the reader's turn", func() bool {
			s, err := n.Acquire(background(t), newReader(t, name), Ask{})
			return err == nil && s.First != 0
		})
	}
}

func TestSlotsAreTheSmallestThatAreFree(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	held := make([]*Attempt, 4)
	for i := range held {
		held[i] = newShare(t, "a", locker.WithSlots(4))
		if s := mustGrant(t, n, held[i]); s.Slot != i || s.Count != 1 {
			t.Fatalf("slot %d: %+v", i, s)
		}
	}
	mustRefuse(t, n, newShare(t, "a", locker.WithSlots(4)))
	mustRelease(t, n, held[2])
	srv.Do("ZADD", held[0].Keys.text(endsKey), "1", held[1].Value) // its lease is long over
	for _, want := range []int{1, 2} {
		if s := mustGrant(t, n, newShare(t, "a", locker.WithSlots(4))); s.Slot != want {
			t.Errorf("%+v, want slot %d", s, want)
		}
	}
	if err := n.Renew(background(t), held[1:2])[0]; !errors.Is(err, locker.ErrLost) {
		t.Errorf("the renewal of a slot whose lease is over: %v", err)
	}
	if err := n.Release(background(t), held[1], 0); !errors.Is(err, locker.ErrLost) {
		t.Errorf("the release of a slot whose lease is over: %v", err)
	}
	mustRefuse(t, n, newShare(t, "a", locker.WithSlots(4)))
}

// Both are given back before either of those who wait has claimed its own.
func TestSlotsThatAreReservedTogetherAreClaimedApart(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	slot := func() *Attempt { return newShare(t, "a", locker.WithSlots(2)) }
	held, waiters := []*Attempt{slot(), slot()}, []*Attempt{slot(), slot()}
	for _, a := range held {
		mustGrant(t, n, a)
	}
	for _, a := range waiters {
		a.TTL = time.Hour
		mustQueue(t, n, m, a)
	}
	mustRelease(t, n, held...)
	for want, a := range waiters {
		if s := mustGrant(t, n, a); s.Slot != want {
			t.Errorf("%+v, want slot %d", s, want)
		}
	}
	if got := end(srv, "a") - serverMicros(srv)/1000; got < (30 * time.Minute).Milliseconds() {
		t.Errorf("strangers are kept out for %d ms, and the slots are held for an hour", got)
	}
}

// How a name is held is forgotten with its last entry, and with the last who waits.
func TestNameIsHeldInOneWayAtATime(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	mismatch := func(a *Attempt, words ...string) {
		t.Helper()
		for _, ask := range []Ask{{}, {Queue: true}} {
			_, err := n.Acquire(background(t), a, ask)
			if !errors.Is(err, locker.ErrMismatch) || slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(err.Error(), w) }) {
				t.Errorf("%v, want a mismatch that says %q", err, words)
			}
		}
		if got := srv.Do("ZSCORE", a.Keys.text(queueKey), n.member(a)); got != "" {
			t.Error("it waits all the same")
		}
	}
	two, waits := newShare(t, "a", locker.WithSlots(1)), newShare(t, "a", locker.WithSlots(1))
	mustGrant(t, n, two)
	mismatch(newShare(t, "a", locker.WithSlots(3)), "1", "3")
	mismatch(newAttempt(t, "a"))
	mismatch(newReader(t, "a"))
	box := mustQueue(t, n, m, waits)
	mustRelease(t, n, two)
	await(t, box, mailbox.Ask)
	mismatch(newAttempt(t, "a"))
	if err := n.Withdraw(background(t), waits); err != nil {
		t.Fatal(err)
	}
	writer := newAttempt(t, "a")
	mustGrant(t, n, writer)
	mismatch(newShare(t, "a", locker.WithSlots(3)), "held or waited for as a lock that is exclusive")
	mustRelease(t, n, writer)
	reader := newReader(t, "a")
	mustGrant(t, n, reader)
	mismatch(newShare(t, "a", locker.WithSlots(3)), "held or waited for as a lock that is shared")
	srv.Do("DEL", "a")
	mismatch(newShare(t, "a", locker.WithSlots(3)))
	mustRelease(t, n, reader)
	mustGrant(t, n, newShare(t, "a", locker.WithSlots(3)))
}

func TestOneHolderIsBrokenByItsNumber(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	a, b, c, d, writer := newReader(t, "a"), newReader(t, "a"), newReader(t, "a"), newReader(t, "a"), newAttempt(t, "a")
	mustGrant(t, n, a)
	number := mustGrant(t, n, b).First
	mustGrant(t, n, c)
	var lost *locker.LostError
	if broken, err := n.Break(background(t), a.Keys, Numbered(locker.Number(mustGrant(t, n, d).First))); err != nil || !broken {
		t.Errorf("%v, %v", broken, err)
	}
	if err := n.Release(background(t), d, 0); !errors.As(err, &lost) || lost.Reason != locker.ReasonForced {
		t.Errorf("the release while nobody waits: %v", err)
	}
	box := mustQueue(t, n, m, writer)
	if broken, err := n.Break(background(t), a.Keys, Numbered(locker.Number(number+1000))); err != nil || broken {
		t.Errorf("nobody's number: %v, %v", broken, err)
	}
	if broken, err := n.Break(background(t), a.Keys, Numbered(locker.Number(number))); err != nil || !broken {
		t.Errorf("%v, %v", broken, err)
	}
	if errs := n.Renew(background(t), []*Attempt{a, b, c}); errs[0] != nil || !errors.As(errs[1], &lost) || lost.Reason != locker.ReasonForced || errs[2] != nil {
		t.Errorf("the renewals: %v", errs)
	}
	if err := n.Release(background(t), b, 0); !errors.As(err, &lost) || lost.Reason != locker.ReasonForced {
		t.Errorf("the release: %v", err)
	}
	if broken, err := n.Break(background(t), a.Keys, Numbered(0)); err != nil || !broken {
		t.Errorf("%v, %v", broken, err)
	}
	await(t, box, mailbox.Ask)
	mustGrant(t, n, writer)
	first := mustGrant(t, n, writer).First
	if broken, err := n.Break(background(t), a.Keys, Numbered(locker.Number(first))); err != nil || !broken {
		t.Errorf("an exclusive holder: %v, %v", broken, err)
	}
}

// What no replica has is granted to nobody, and renewed for nobody.
func TestSharesAreConfirmedByReplicas(t *testing.T) {
	srv := testserver.Redis(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()
	alone, n := New(rdb, 0), New(rdb, 1)
	shares := []*Attempt{newReader(t, "readers"), newShare(t, "slots", locker.WithSlots(2))}
	for _, a := range shares {
		var few *replicaError
		if s, err := n.Acquire(background(t), a, Ask{}); !errors.As(err, &few) {
			t.Errorf("%+v, %v", s, err)
		}
		mustGrant(t, alone, a)
	}
	for range 2 {
		for i, err := range n.Renew(background(t), shares) {
			if !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrLost) {
				t.Errorf("the renewal of %s: %v", shares[i].Keys.Lock, err)
			}
		}
	}
}

func TestReadersAndSlotsInACluster(t *testing.T) {
	confirmedOrNot(t, func(t *testing.T, c cluster, confirm int) {
		n := c.node(t, confirm)
		for _, srv := range c.masters {
			name := attemptsOn(t, srv, 1)[0].Keys.Lock
			reader, another, writer := newReader(t, name), newReader(t, name), newAttempt(t, name)
			mustGrant(t, n, reader)
			mustGrant(t, n, another)
			box := mustQueue(t, n, n.mail, writer)
			if err := errors.Join(n.Renew(background(t), []*Attempt{reader, another})...); err != nil {
				t.Error(err)
			}
			mustRelease(t, n, reader, another)
			await(t, box, mailbox.Ask)
			mustGrant(t, n, writer)
			mustRelease(t, n, writer)
			slot := newShare(t, name, locker.WithSlots(1))
			mustGrant(t, n, slot)
			box = mustQueue(t, n, n.mail, newShare(t, name, locker.WithSlots(1)))
			mustRelease(t, n, slot)
			await(t, box, mailbox.Ask)
		}
	})
}

// A majority's number is written to a node that drew a smaller one. It is the reader's there
// from then on, and no other's.
func TestRaisedNumberOfAReaderIsItsOwnAndTheNextGrantExceedsIt(t *testing.T) {
	srv := testserver.Redis(t)
	n := ofQuorumNode(t, srv.Addr(), 0)
	a, b := newReader(t, "a"), newReader(t, "a")
	const high = 4000000000000000
	if _, err := n.Raise(background(t), a, high); err == nil {
		t.Error("raised where nothing is held")
	}
	mustGrant(t, n, a)
	mustGrant(t, n, b)
	for _, step := range []struct {
		a    *Attempt
		want uint64
	}{{a, high}, {b, high + 1}, {a, high}} {
		if got, err := n.Raise(background(t), step.a, high); err != nil || got != step.want {
			t.Errorf("raised to %d, %v, want %d", got, err, step.want)
		}
		if again := mustGrant(t, n, step.a).First; again != step.want {
			t.Errorf("asked again: number %d, want %d", again, step.want)
		}
	}
	if v, err := n.Look(background(t), a.Keys); err != nil || v.Token != high+1 || v.Holders[0].Number != high || v.Holders[1].Number != high+1 {
		t.Errorf("%+v, %v", v, err)
	}
	endsWithItsLease(t, n, srv, a, high+1)
	if next := mustGrant(t, n, newReader(t, "a")).First; next != high+2 {
		t.Errorf("number %d after %d", next, uint64(high+1))
	}
	srv.Do("ZADD", a.Keys.text(endsKey), "1", a.Value)
	if _, err := n.Raise(background(t), a, high+10); err == nil {
		t.Error("raised for a reader whose lease is over")
	}
}

// Nobody's lease is longer than it was asked for, so nothing stays in the server.
func TestEntriesOfTheDeadExpire(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	for _, a := range []*Attempt{newReader(t, "readers"), newShare(t, "slots", locker.WithSlots(2))} {
		mustGrant(t, n, a)
		for _, key := range []int{endsKey, factsKey} {
			srv.Do("PEXPIRE", a.Keys.text(key), "20000") // as if it were long ago
		}
		mustRenew(t, n, a)
		for _, key := range []int{endsKey, factsKey} {
			if left := end(srv, a.Keys.text(key)) - serverMicros(srv)/1000; left < 25_000 {
				t.Errorf("%s is kept for %d ms, with a lease of %v", a.Keys.text(key), left, a.TTL)
			}
		}
		a.TTL = time.Hour
		mustRenew(t, n, a)
		if a.Kind == locker.KindShared {
			mustQueue(t, n, m, newAttempt(t, "readers")) // what is noted of a writer does not shorten it
		}
		for _, key := range []int{endsKey, factsKey} {
			ms, _ := strconv.Atoi(srv.Do("PTTL", a.Keys.text(key)))
			if left := time.Duration(ms) * time.Millisecond; left < a.TTL || left > a.TTL+2*time.Minute {
				t.Errorf("%s is kept for %v, with a lease of %v", a.Keys.text(key), left, a.TTL)
			}
		}
	}
}

// An exclusive lock pays for the other kinds with one more key in the look that finds it
// free, and with nothing else.
func TestExclusiveLockTakesAsFewCommandsAsItNeeds(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	mustGrant(t, n, newAttempt(t, "another"))
	a := newAttempt(t, "a")
	for _, step := range []struct {
		what, want string
		do         func()
	}{
		{"lock", "evalsha 1, exists 1, get 1, set 2, time 1", func() { mustGrant(t, n, a) }},
		{"renewal", "evalsha 1, get 1, pexpire 1", func() { mustRenew(t, n, a) }},
		{"unlock", "del 1, eval 1, exists 1, get 1", func() { mustRelease(t, n, a) }},
	} {
		if step.what == "renewal" {
			mustRenew(t, n, a)               // the server knows the script from now on
			time.Sleep(2 * time.Millisecond) // else the lease would end at the same time, and the script would look whether it ends at all
		}
		srv.Do("CONFIG", "RESETSTAT")
		step.do()
		if got := commands(srv); got != step.want {
			t.Errorf("%s: %s, want %s", step.what, got, step.want)
		}
	}
}

// commands are those that a server has served since CONFIG RESETSTAT, in scripts as well.
func commands(srv *testserver.RedisServer) string {
	var all []string
	for line := range strings.Lines(srv.Do("INFO", "commandstats")) {
		name, stats, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		calls, _, _ := strings.Cut(stats, ",")
		if calls != "" && name != "config|resetstat" && name != "info" {
			all = append(all, fmt.Sprint(name, " ", calls))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// A writer's answers take a second, and readers hold. It is told to look in a second, and looks
// two seconds after the server has said so. Whoever came later must not take that for its death.
func TestAWriterWithALongRoundTripIsWaitedForLonger(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	slow, m := client(t, srv.Addr())
	mustGrant(t, n, newReader(t, "a"))
	writer := newAttempt(t, "a")
	slow.trip.Store(1000)
	before := serverMicros(srv) / 1000
	mustQueue(t, slow, m, writer)
	if at := due(t, srv, slow, writer); at < before+1000+2*1000 {
		t.Errorf("a writer whose requests take a second is waited for %d ms", at-before)
	}
	slow.trip.Store(time.Hour.Milliseconds())
	if got := slow.claimTime(); got != mostClaims*claim {
		t.Errorf("one that is very slow is waited for %v ms more", got)
	}
}

// Readers hold, eight writers that wait lose power, and a reader comes behind them. Their
// connections are half open: the server takes them for listeners. Each costs the reader a tenth of
// a second and no more. What counts is for how long it is told to wait, however long it sleeps.
func TestDeadWritersDelayAReaderByATenthOfASecondEach(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	dead, unread := client(t, srv.Addr())
	mustGrant(t, n, newReader(t, "a"))
	for range 8 {
		mustQueue(t, dead, unread, newAttempt(t, "a"))
	}
	reader := newReader(t, "a")
	if err := m.Open(background(t), reader.Value, mailbox.NewBox().Put); err != nil {
		t.Fatal(err)
	}
	var waited time.Duration
	for ticket := int64(0); ; {
		s, err := n.Acquire(background(t), reader, Ask{Queue: true, Ticket: ticket})
		if err != nil {
			t.Fatal(err)
		}
		if s.First != 0 {
			break
		}
		ticket = s.Ticket
		waited += s.NextLook()
		time.Sleep(s.NextLook() + 2*time.Millisecond)
	}
	if waited > 4*time.Second {
		t.Errorf("a reader behind eight dead writers was told to wait for %v", waited)
	}
}
