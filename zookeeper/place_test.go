package zookeeper

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/internal/zkclient"
)

// A clean-up must not overtake the request that it cleans up after.
//
//	the request for a place is not sent yet; its attempt is
//	over and looks for what it left, and finds nothing; then the request is sent
func TestCleanUpWaitsForARequestThatIsStillToBeSent(t *testing.T) {
	t.Parallel()
	ctx, _, s, _ := granted(t)
	a := joined(t, ctx, s)
	a.path, a.madeIn = a.queue+"/_c_"+newGUID()+"-lock-", a.session.id
	gate := make(chan struct{})
	a.made = zkclient.Async(ctx, s.zk, func() ([]zk.MultiResponse, error) {
		<-gate
		_, err := s.zk.Create(a.path, nil, zk.FlagEphemeralSequential, s.opts.ACL)
		return nil, errors.Join(err, zk.ErrConnectionClosed) // the answer is lost
	})
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := s.Withdraw(short, a); err == nil || !s.left(a) {
		t.Errorf("a request that is still to be sent is said to have left nothing: %v", err)
	}
	close(gate)
	if err := s.Withdraw(ctx, a); err != nil || s.left(a) {
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
	a, ahead := placed(t, ctx, s, "other")
	if ahead != "" {
		t.Fatalf("%q is ahead", ahead)
	}
	path, zxid := a.path, a.zxid
	a.path, a.found, a.zxid = a.path[:len(a.path)-10], false, 0 // as if it had not heard
	if err := s.find(ctx, a); err != nil || a.path != path {
		t.Fatalf("found %q, %v", a.path, err)
	}
	if ahead, err := s.ask(ctx, a, false); err != nil || ahead != "" || a.path == path || a.zxid <= zxid {
		t.Errorf("%q is ahead of %q with zxid %d, which was %q with %d, %v", ahead, a.path, a.zxid, path, zxid, err)
	}
	if children, err := s.latest(ctx, a.queue); err != nil || len(children) != 1 {
		t.Errorf("%q, %v", children, err)
	}
	if err := errors.Join(s.Withdraw(ctx, a), lock.Unlock(ctx)); err != nil {
		t.Error(err)
	}
}

// A place whose session goes on with another node is as good as it was: it keeps its
// number.
func TestPlaceOutlivesTheNodeOfItsSession(t *testing.T) {
	t.Parallel()
	ctx, _, s, lock := granted(t)
	a, ahead := placed(t, ctx, s, "n")
	if ahead == "" {
		t.Fatalf("%q is ahead", ahead)
	}
	path, before := a.path, a.session
	sessionOf(t, s).Lose(locker.ReasonUnreachable, nil) // as after a silence
	if lock.Err() == nil {
		t.Fatal("the lock of a session that has ended is believed in")
	}
	for nodes := []string(nil); len(nodes) != 1; time.Sleep(time.Millisecond) { // its place is removed
		var err error
		if nodes, _, err = s.zk.Children(s.queue("n")); err != nil || ctx.Err() != nil {
			t.Fatal(nodes, err)
		}
	}
	if ahead, err := s.ask(ctx, a, false); err != nil || ahead != "" || a.path != path || a.session == before {
		t.Errorf("%q is ahead of %q, which was %q, %v", ahead, a.path, path, err)
	}
	if err := s.Withdraw(ctx, a); err != nil {
		t.Error(err)
	}
}

// joined returns an attempt at "n" that has a session, and no place yet.
func joined(t *testing.T, ctx context.Context, s *store) *attempt {
	t.Helper()
	a, err := s.Begin(&driver.Request{Name: "n", TTL: time.Minute})
	if err == nil {
		err = s.join(ctx, a)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// placed returns an attempt that has a place in the queue of a name.
func placed(t *testing.T, ctx context.Context, s *store, name string) (a *attempt, ahead string) {
	t.Helper()
	a, err := s.Begin(&driver.Request{Name: name, TTL: time.Minute})
	if err == nil {
		ahead, err = s.ask(ctx, a, false)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a, ahead
}

// The zk client drops a watch that it cannot set again, and tells nobody.
//
//	a waits for b by a watch that is none; b goes
func TestWaiterWhoseWatchIsLostLooksByItself(t *testing.T) {
	t.Parallel()
	ctx, _, s, lock := granted(t)
	a, ahead := placed(t, ctx, s, "n")
	s.watches.Store(a.queue+"/"+ahead, make(chan struct{}))
	if err := lock.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.waitFor(ctx, a, a.queue+"/"+ahead); err != nil {
		t.Errorf("it has not looked in all the time: %v", err)
	}
}

// A watch tells once. Somebody may write to a node without deleting it.
func TestWatchThatHasToldIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	ctx, _, s, _ := granted(t)
	a, ahead := placed(t, ctx, s, "n")
	path := a.queue + "/" + ahead
	if _, err := s.watch(ctx, path); err != nil {
		t.Fatal(err)
	}
	if _, err := s.zk.Set(path, nil, -1); err != nil {
		t.Fatal(err)
	}
	if err := s.waitFor(ctx, a, path); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if err := s.waitFor(short, a, path); err == nil {
		t.Error("it was told again of what it knows")
	}
}

// A queue that others have begun again has numbers: nobody has to go first.
func TestQueueThatOthersHaveBegunAgainIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	ctx, _, s, lock := granted(t)
	a, err := s.Begin(&driver.Request{Name: "n", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	a.usedUp = 1 // a queue that was there before
	if ahead, err := s.startAgain(ctx, a); err != nil || ahead != "" || a.usedUp != 0 {
		t.Errorf("it waits for %q, %v", ahead, err)
	}
	if err := lock.Unlock(ctx); err != nil {
		t.Error(err)
	}
}

// The zk client may keep a request for longer than a caller without a deadline should wait.
//
//	requests under way are not answered; a session, a place and a watch are asked for
func TestNobodyWaitsForSilentServersForLongerThanASession(t *testing.T) {
	t.Parallel()
	const calls = 32 // that may be under way
	ctx, _, s, _ := granted(t)
	a := joined(t, ctx, s)
	gate := make(chan struct{})
	defer close(gate)
	for range calls {
		zkclient.Async(ctx, s.zk, func() (any, error) { <-gate; return nil, zk.ErrConnectionClosed })
	}
	s.opts.Session.timeout.Store(int64(time.Second))
	errs := make(chan error)
	for _, ask := range []func() error{
		func() error { _, err := s.ask(context.Background(), a, true); return err },
		func() error { _, err := s.watch(context.Background(), a.queue); return err },
		func() error {
			_, _, _, err := s.open(struct{}{}, live{})
			return err
		},
	} {
		go func() { errs <- ask() }()
		select {
		case err := <-errs:
			if !errors.Is(err, errSilent) {
				t.Errorf("it ends with %v", err)
			}
		case <-ctx.Done():
			t.Fatal("it waits on")
		}
	}
}

// What was in a session is over with it.
//
//	a place was made in another session than the client has; it is asked for again
func TestPlaceOfASessionThatHasEndedIsNone(t *testing.T) {
	t.Parallel()
	ctx, _, s, _ := granted(t)
	a, _ := placed(t, ctx, s, "other")
	path, former := a.path, a.madeIn
	a.madeIn-- // as if the client had got its session since
	if _, err := s.ask(ctx, a, false); err != nil || a.path == path || a.madeIn != former {
		t.Errorf("%q is its place, of session %x, which was %q, %v", a.path, a.madeIn, path, err)
	}
	if err := errors.Join(s.zk.Remove(ctx, path), s.Withdraw(ctx, a)); err != nil {
		t.Error(err)
	}
}

// A clean-up may ask a server that lags behind the one that carried the request out.
//
//	an observer's stream of changes stops; the leader makes the place;
//	the observer is asked for the place; the stream goes on
func TestPlaceIsFoundAtAServerThatLags(t *testing.T) {
	t.Parallel()
	leader, observer, changes := testserver.ZooKeeperBehind(t)
	_, l := connected(t, observer.Addr())
	_, ahead := connected(t, leader.Addr())
	s, first := l.store, ahead.store
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // an observer that was given up comes back slowly
	defer cancel()
	if _, at := placed(t, ctx, first, "n"); at != "" {
		t.Fatalf("%q is ahead", at)
	}
	a := joined(t, ctx, s)
	changes.CutReplies()
	a.path, a.madeIn, a.found, a.gone = a.queue+"/_c_"+newGUID()+"-lock-", a.session.id, false, false
	if _, err := first.zk.Create(a.path, nil, zk.FlagEphemeralSequential, s.opts.ACL); err != nil {
		t.Fatal(err)
	}
	found := make(chan error, 1)
	go func() {
		err := s.find(ctx, a)
		for err != nil && !errors.Is(err, errGone) && ctx.Err() == nil { // the leader had given the observer up
			err = s.find(ctx, a)
		}
		found <- err
	}()
	select {
	case err := <-found:
		t.Fatalf("an answer from a server that has heard of nothing: %v", err)
	case <-time.After(2 * time.Second): // less than the 5 s after which the leader gives the observer up
	}
	changes.Deliver()
	if err := <-found; err != nil {
		t.Fatalf("a place that was made before: %v", err)
	}
	if err := s.Withdraw(ctx, a); err != nil {
		t.Error(err)
	}
}
