package jvm

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/election"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

// curatorAt starts a process that uses Curator.
func curatorAt(t *testing.T, addr string, session time.Duration) *program {
	t.Helper()
	return start(t, curator, "Curator.java", addr, session.Milliseconds())
}

// Session timeouts: a test waits for the end of a short one; in the middle one there is
// time for a slow machine to do something; a long one does not end.
const (
	short  = 4 * time.Second
	middle = 3 * short
	long   = 30 * time.Second
)

// TestAWriterIsLetInBesideAReaderThatWasAWriter is apache/curator #1138 and #796, mended in
// 5.5.0 by #445.
//
//	a writes; b waits to write; a asks to read, too, and is let in; a ends its
//	writing: b is let in, though a reads.
func TestAWriterIsLetInBesideAReaderThatWasAWriter(t *testing.T) {
	t.Parallel()
	addr := server(t).Addr()
	direct := newClient(t, long, addr)
	t.Run("theirs", func(t *testing.T) {
		a, b := curatorAt(t, addr, long), curatorAt(t, addr, long)
		a.must("locked", "write", "/theirs")
		b.tell("write", "/theirs")
		until(t, "b waits", func() bool { return len(children(t, direct.conn, "/theirs")) == 2 })
		a.must("locked", "read", "/theirs")
		a.must("unlocked", "unwrite", "/theirs")
		if got := b.answer(); got != "locked" {
			t.Fatalf("b: %s", got)
		}
		a.must("yes", "believes-read", "/theirs")
		b.must("yes", "believes-write", "/theirs")
	})
	t.Run("ours", func(t *testing.T) {
		a, b := newClient(t, long, addr), newClient(t, long, addr)
		held := lock(t, a, "n")
		waiting := begin(t, b, "n")
		until(t, "b waits", func() bool { return len(children(t, direct.conn, queue)) == 2 })
		taken(t, a, "n", locker.WithShared()) // nobody has two kinds of one name
		unlock(t, held)
		next := take(t, waiting)
		taken(t, a, "n", locker.WithShared())
		unlock(t, next)
		reader := lock(t, a, "n", locker.WithShared())
		taken(t, b, "n")
		if held.Token() >= next.Token() || uint64(next.Token()) >= uint64(reader.SharedToken()) {
			t.Errorf("tokens %d, %d, %d", held.Token(), next.Token(), reader.SharedToken())
		}
		unlock(t, reader)
	})
}

// TestTwoLeadersAfterTheServerWasAway is apache/curator #1211, in 5.4.0 to 5.6.0, mended
// in 5.7.0 by #500.
//
//	a leads; the server is away for longer than a's session, which a gives up;
//	the server is back and has the node of that session still: a takes it for
//	its own and leads; the server ends the old session; b leads, too.
//
// Not in parallel: on a busy machine Curator has been seen never to lead again.
func TestTwoLeadersAfterTheServerWasAway(t *testing.T) {
	t.Run("theirs", func(t *testing.T) {
		srv := server(t)
		direct := newClient(t, long, srv.Addr())
		a, b := curatorAt(t, srv.Addr(), middle), curatorAt(t, srv.Addr(), long)
		a.must("stands", "stand", "/theirs")
		until(t, "a leads", func() bool { return a.ask("believes-leader", "/theirs") == "yes" })
		old := children(t, direct.conn, "/theirs")
		srv.Kill()
		until(t, "a has given up its session", func() bool { return a.ask("state") == "LOST" })
		a.must("no", "believes-leader", "/theirs")
		srv.Start()
		until(t, "a leads again", func() bool { return a.ask("believes-leader", "/theirs") == "yes" })
		until(t, "its node is gone", func() bool { return !slices.Contains(children(t, direct.conn, "/theirs"), old[0]) })
		b.must("stands", "stand", "/theirs")
		until(t, "b leads", func() bool { return b.ask("believes-leader", "/theirs") == "yes" })
		a.must("yes", "believes-leader", "/theirs")
	})
	t.Run("ours", func(t *testing.T) {
		srv := server(t)
		terms := make(chan *locker.Lock, 100)
		stand(t, newClient(t, short, srv.Addr()), terms)
		first := <-terms
		srv.Kill()
		<-first.Lost()
		time.Sleep(short) // so long is a session away
		srv.Start()
		stand(t, newClient(t, short, srv.Addr()), terms)
		leads := <-terms
		isNext(t, first, leads)
		for end := time.After(3 * short); ; { // the old session ends meanwhile
			select {
			case term := <-terms:
				isNext(t, leads, term)
				leads = term
				continue
			case <-end:
			}
			break
		}
	})
}

// isNext fails the test unless the term before is over, and was numbered before.
func isNext(t *testing.T, before, term *locker.Lock) {
	t.Helper()
	if before.Err() == nil || term.Token() <= before.Token() {
		t.Fatalf("term %d began, and term %d: %v", term.Token(), before.Token(), before.Err())
	}
}

// stand has a candidate lead terms, one after another, each until it is lost.
func stand(t *testing.T, l locker.Locker, terms chan<- *locker.Lock) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = election.Run(ctx, l, "leader", func(ctx context.Context, term *locker.Lock) error {
			terms <- term
			<-ctx.Done()
			return nil
		})
	}()
	t.Cleanup(func() { stop(); <-done })
}

// TestALockIsGrantedOnTheNodeOfAnEndedSession is apache/curator #1121 (CURATOR-604), which is
// open.
//
//	h holds; a waits; the server is away for longer than a's session, which a
//	gives up; h is killed; the server is back and ends h's session: a, in a new
//	session, finds the node of its old one first in line and is let in; the
//	server ends a's old session; b is let in, too.
func TestALockIsGrantedOnTheNodeOfAnEndedSession(t *testing.T) {
	t.Parallel()
	t.Run("theirs", func(t *testing.T) {
		srv := server(t)
		direct := newClient(t, long, srv.Addr())
		h, a, b := curatorAt(t, srv.Addr(), short), curatorAt(t, srv.Addr(), middle), curatorAt(t, srv.Addr(), long)
		h.must("locked", "lock", "/theirs")
		a.tell("lock", "/theirs")
		until(t, "a waits", func() bool { return len(children(t, direct.conn, "/theirs")) == 2 })
		srv.Kill()
		h.kill()
		time.Sleep(middle + short) // a gives up its session meanwhile
		srv.Start()
		if got := a.answer(); got != "locked" {
			t.Fatalf("a: %s", got)
		}
		b.must("locked", "lock", "/theirs")
		a.must("yes", "believes-lock", "/theirs")
		a.must("RECONNECTED", "state")
		if all := children(t, direct.conn, "/theirs"); len(all) != 1 {
			t.Errorf("nodes: %v", all)
		}
	})
	t.Run("ours", func(t *testing.T) {
		srv := server(t)
		direct := newClient(t, long, srv.Addr())
		h, a, b := newClient(t, short, srv.Addr()), newClient(t, middle, srv.Addr()), newClient(t, long, srv.Addr())
		gone := lock(t, h, "n")
		waiting := begin(t, a, "n")
		until(t, "a waits", func() bool { return len(children(t, direct.conn, queue)) == 2 })
		srv.Kill()
		h.conn.Close()
		time.Sleep(middle + short)
		srv.Start()
		held := take(t, waiting)
		next := begin(t, b, "n")
		select {
		case r := <-next:
			if held.Err() == nil {
				t.Fatalf("b was let in beside a: %v", r.err)
			}
			next <- r
		case <-time.After(middle + short): // a's old session ends meanwhile, if it is another
			unlock(t, held)
		}
		last := take(t, next)
		if gone.Err() == nil || gone.Token() >= held.Token() || held.Token() >= last.Token() {
			t.Errorf("tokens %d (%v), %d, %d", gone.Token(), gone.Err(), held.Token(), last.Token())
		}
		unlock(t, last)
	})
}

// TestALockThatWasLostIsLockedAgainFromMemory is apache/curator #727. It is closed, and as
// of July 2026 the newest still answers from memory.
//
//	a holds and is cut off; its session ends; b holds; a is back: it believes
//	that it holds, and is let in again, without a question to the server.
func TestALockThatWasLostIsLockedAgainFromMemory(t *testing.T) {
	t.Parallel()
	addr := server(t).Addr()
	t.Run("theirs", func(t *testing.T) {
		net := proxy(t, addr)
		a, b := curatorAt(t, net.Addr(), short), curatorAt(t, addr, long)
		a.must("locked", "lock", "/theirs")
		net.Cut()
		b.must("locked", "lock", "/theirs")
		until(t, "a has heard that its session is lost", func() bool { return a.ask("state") == "LOST" })
		a.must("yes", "believes-lock", "/theirs")
		net.Heal()
		until(t, "a is back", func() bool { return a.ask("state") == "RECONNECTED" })
		a.must("yes", "believes-lock", "/theirs")
		a.must("locked", "lock", "/theirs")
		b.must("yes", "believes-lock", "/theirs")
	})
	t.Run("ours", func(t *testing.T) {
		net := proxy(t, addr)
		a, b := newClient(t, short, net.Addr()), newClient(t, long, addr)
		held := lock(t, a, "n")
		net.Cut()
		next := lock(t, b, "n")
		if err := held.Err(); !errors.Is(err, locker.ErrLost) {
			t.Errorf("b holds, and a's lock: %v", err)
		}
		net.Heal()
		until(t, "a is back", func() bool { return a.conn.State() == zk.StateHasSession })
		if err := held.Unlock(soon(t)); !errors.Is(err, locker.ErrLost) {
			t.Errorf("Unlock of the lost lock: %v", err)
		}
		taken(t, a, "n")
		if held.Token() >= next.Token() {
			t.Errorf("tokens %d, %d", held.Token(), next.Token())
		}
		unlock(t, next)
	})
}

// TestEachProcessCountsSlotsByItsOwnLimit is what the documentation of Curator's
// InterProcessSemaphoreV2 says of it. Our backend is another here: on ZooKeeper we have no
// slots.
func TestEachProcessCountsSlotsByItsOwnLimit(t *testing.T) {
	t.Parallel()
	t.Run("theirs", func(t *testing.T) {
		addr := server(t).Addr()
		a, b := curatorAt(t, addr, long), curatorAt(t, addr, long)
		a.must("locked", "slot", "/theirs", 1)
		b.must("locked", "slot", "/theirs", 2)
	})
	t.Run("ours", func(t *testing.T) {
		addr := testserver.Redis(t).Addr()
		a, b := redisAt(t, addr), redisAt(t, addr)
		held := lock(t, a, "n", locker.WithSlots(1))
		if _, err := b.TryLock(soon(t), "n", locker.WithSlots(2)); !errors.Is(err, locker.ErrMismatch) {
			t.Errorf("TryLock with another number: %v", err)
		}
		taken(t, b, "n", locker.WithSlots(1))
		unlock(t, held)
	})
}

func redisAt(t *testing.T, addr string) *singlenode.Locker {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = rdb.Close() })
	l, err := singlenode.New(rdb, singlenode.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}
