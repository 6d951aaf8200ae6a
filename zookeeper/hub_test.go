package zookeeper

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/internal/zkclient"
)

type mute struct{}

func (mute) Printf(string, ...any) {}

// granted returns a Locker, what it keeps of its store, and a lock of its called "n".
func granted(t *testing.T) (context.Context, *Locker, *store, *locker.Lock) {
	t.Helper()
	session := NewSession(nil)
	addr := testserver.ZooKeeper(t, 1)[0].Addr()
	conn, _, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithDialer(session.Dial), zk.WithLogger(mute{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	l, err := New(conn, Options{Session: session})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // never fails
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	lock, err := l.Lock(ctx, "n")
	if err != nil {
		t.Fatal(err)
	}
	return ctx, l, l.store, lock
}

// What is believed in hangs on the session timeout that was granted, to the
// millisecond: a server that grants one less ends every lock that counts on more.
func TestSessionThatIsShortenedByAMillisecondEndsItsLocks(t *testing.T) {
	t.Parallel()
	ctx, l, s, lock := granted(t)
	timeout := s.opts.Session.Timeout()
	s.opts.Session.granted(timeout)
	if lock.Err() != nil {
		t.Errorf("lost to a server that grants the same: %v", lock.Err())
	}
	s.opts.Session.granted(timeout - time.Millisecond)
	if !errors.Is(lock.Err(), locker.ErrLost) {
		t.Errorf("believed in until %v, though the session is shorter now", lock.Deadline())
	}
	next, err := l.Lock(ctx, "n") // under the timeout that there is now
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(next.Deadline()); left > believable(timeout-time.Millisecond) {
		t.Errorf("the next is believed in for %v", left)
	}
}

// The window between the answer that makes a session and the note of it.
//
//	the connection is closed, or the client changes to a server that grants less; the
//	session is made and noted
func TestSessionThatIsOverBeforeItIsNotedEndsItsLocks(t *testing.T) {
	t.Parallel()
	for what, spoil := range map[string]func(*Session, *hub){
		"closed":  func(s *Session, _ *hub) { s.look(true) },
		"shorter": func(s *Session, h *hub) { s.granted(h.timeout - time.Millisecond) },
	} {
		_, _, s, lock := granted(t)
		h := s.hub.Load()
		s.opts.Session.forget(h)
		spoil(s.opts.Session, h)
		if lock.Err() != nil {
			t.Fatalf("%s: lost before it was noted: %v", what, lock.Err())
		}
		s.opts.Session.note(h)
		if !errors.Is(lock.Err(), locker.ErrLost) {
			t.Errorf("%s: believed in until %v", what, lock.Deadline())
		}
	}
}

func TestSessionsThatHaveEndedAreForgotten(t *testing.T) {
	t.Parallel()
	ctx, l, s, lock := granted(t)
	if err := lock.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for left := 1; left > 0; time.Sleep(time.Millisecond) {
		s.opts.Session.mu.Lock()
		left = len(s.opts.Session.hubs)
		s.opts.Session.mu.Unlock()
		if ctx.Err() != nil {
			t.Fatalf("%d are remembered", left)
		}
	}
}

// A clean-up must not overtake the request that it cleans up after.
//
//	the request for a place has not got as far as the connection; its attempt is
//	over and looks for what it left, and finds nothing; then the request is sent
func TestCleanUpWaitsForARequestThatIsStillToBeSent(t *testing.T) {
	t.Parallel()
	ctx, _, s, _ := granted(t)
	a, err := s.Begin(&locker.Request{Name: "n", TTL: time.Minute})
	if err == nil {
		err = s.join(ctx, a)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.End(a)
	a.path, a.session = a.queue+"/_c_"+newGUID()+"-lock-", a.hub.id
	gate := make(chan struct{})
	a.made = zkclient.Async(ctx, s.zk, func() ([]zk.MultiResponse, error) {
		<-gate
		_, err := s.zk.Create(a.path, nil, zk.FlagEphemeralSequential, s.opts.ACL)
		return nil, errors.Join(err, zk.ErrConnectionClosed) // the answer is lost
	})
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := s.Withdraw(short, a); err == nil || !s.Left(a) {
		t.Errorf("a request that is still to be sent is said to have left nothing: %v", err)
	}
	close(gate)
	if err := s.Withdraw(ctx, a); err != nil || s.Left(a) {
		t.Errorf("after it was sent: %v", err)
	}
	if children, err := s.latest(ctx, a.queue); err != nil || len(children) != 1 {
		t.Errorf("%q, %v", children, err)
	}
}

// A place whose answer was lost has no token.
//
//	the place is made, and the answer lost; the clean-up finds it, and is cut off before
//	it has removed it; the waiter asks again
func TestPlaceThatWasFoundIsNotGranted(t *testing.T) {
	t.Parallel()
	ctx, _, s, lock := granted(t)
	a, err := s.Begin(&locker.Request{Name: "other", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer s.End(a)
	if ahead, err := s.approach(ctx, a, false); err != nil || ahead != "" {
		t.Fatalf("%q is ahead, %v", ahead, err)
	}
	path, zxid := a.path, a.zxid
	a.path, a.found, a.zxid = a.path[:len(a.path)-10], false, 0 // as if it had not heard
	if err := s.find(ctx, a); err != nil || a.path != path {
		t.Fatalf("found %q, %v", a.path, err)
	}
	if ahead, err := s.approach(ctx, a, false); err != nil || ahead != "" || a.path == path || a.zxid <= zxid {
		t.Errorf("%q is ahead of %q with zxid %d, which was %q with %d, %v", ahead, a.path, a.zxid, path, zxid, err)
	}
	if children, err := s.latest(ctx, a.queue); err != nil || len(children) != 1 {
		t.Errorf("%q, %v", children, err)
	}
	if err := errors.Join(s.Withdraw(ctx, a), lock.Unlock(ctx)); err != nil {
		t.Error(err)
	}
}

// A place whose session goes on under another anchor is as good as it was: it keeps its
// number.
func TestPlaceOutlivesTheAnchor(t *testing.T) {
	t.Parallel()
	ctx, l, s, lock := granted(t)
	a, err := s.Begin(&locker.Request{Name: "n", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer s.End(a)
	if ahead, err := s.approach(ctx, a, false); err != nil || ahead == "" {
		t.Fatalf("%q is ahead, %v", ahead, err)
	}
	path, before := a.path, a.hub
	s.hub.Load().Lose(locker.Unreachable, nil) // as after a silence
	if lock.Err() == nil {
		t.Fatal("the lock of a session that has ended is believed in")
	}
	for l.store.locks.UnderWay() > 0 && ctx.Err() == nil { // its place is removed
		time.Sleep(time.Millisecond)
	}
	if ahead, err := s.approach(ctx, a, false); err != nil || ahead != "" || a.path != path || a.hub == before {
		t.Errorf("%q is ahead of %q, which was %q, %v", ahead, a.path, path, err)
	}
	if err := s.Withdraw(ctx, a); err != nil {
		t.Error(err)
	}
}

func TestZxidsThatDoNotFitMakeNoToken(t *testing.T) {
	const most = math.MaxUint64 >> 10
	for zxid, want := range map[int64]uint64{1: 1024, most: math.MaxUint64 - 1023, most + 1: 0, math.MaxInt64: 0, 0: 0, -1: 0} {
		if got, err := firstToken(zxid); got != want || (err == nil) != (want != 0) {
			t.Errorf("the first token of zxid %#x is %d, %v, want %d", zxid, got, err, want)
		}
	}
}
