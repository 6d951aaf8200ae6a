package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/netproxy"
	"github.com/lockstile/locker/internal/testserver"
)

type mute struct{}

func (mute) Printf(string, ...any) {}

// connected returns a Locker on a session of ten seconds.
func connected(t *testing.T, addr string) (context.Context, *Locker) {
	t.Helper()
	session := NewSession(nil)
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
	return ctx, l
}

// proxied starts a server and a proxy in front of it.
func proxied(t *testing.T) (addr string, p *netproxy.Proxy) {
	t.Helper()
	addr = testserver.ZooKeeper(t, 1)[0].Addr()
	p, err := netproxy.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return addr, p
}

// behind returns a Locker behind a proxy, and one of another process beside it.
func behind(t *testing.T) (ctx context.Context, p *netproxy.Proxy, l, other *Locker) {
	t.Helper()
	addr, p := proxied(t)
	ctx, l = connected(t, p.Addr())
	_, other = connected(t, addr)
	return ctx, p, l, other
}

// granted returns a Locker, what it keeps of its store, and a lock of its called "n".
func granted(t *testing.T) (context.Context, *Locker, *store, *locker.Lock) {
	t.Helper()
	ctx, l := connected(t, testserver.ZooKeeper(t, 1)[0].Addr())
	lock, err := l.Lock(ctx, "n")
	if err != nil {
		t.Fatal(err)
	}
	return ctx, l, l.store, lock
}

// sessionOf returns the session that locks hang on.
func sessionOf(t *testing.T, s *store) *session {
	t.Helper()
	n, err := s.sessions.Join(context.Background(), new(driver.Request), struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// live is a session that lasts.
type live struct{}

func (live) Context() context.Context  { return context.Background() }
func (live) Lasts() bool               { return true }
func (live) Lose(locker.Reason, error) {}

// Somebody deletes the node of a session, which lasts.
func TestSessionWhoseNodeIsDeletedIsOver(t *testing.T) {
	t.Parallel()
	ctx, l, s, lock := granted(t)
	if err := s.zk.Remove(ctx, sessionOf(t, s).path); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"other", "n"} {
		next, err := l.Lock(ctx, name)
		if err != nil || next.Err() != nil {
			t.Errorf("the next lock: %v", err)
		}
		if !errors.Is(lock.Err(), locker.ErrLost) {
			t.Errorf("believed in until %v", lock.Deadline())
		}
	}
}

// A session may end by the local clock while the answer that grants a lock is on its way.
//
//	the place is made, and its answer held back; the session is over; the answer comes
func TestLockIsGrantedOnASessionThatLasts(t *testing.T) {
	t.Parallel()
	ctx, p, l, other := behind(t)
	before := sessionOf(t, l.store)
	if _, err := l.store.zk.Create(l.store.queue("n"), nil, zk.FlagPersistent, l.store.opts.ACL); err != nil {
		t.Fatal(err)
	}
	p.CutReplies()
	result := make(chan error, 1)
	go func() {
		lock, err := l.Lock(ctx, "n")
		if err == nil {
			err = lock.Err()
		}
		result <- err
	}()
	for made := 0; made == 0 && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		children, _ := other.store.children(ctx, other.store.queue("n"))
		made = len(children)
	}
	before.Lose(locker.ReasonUnreachable, nil)
	p.Deliver()
	if err := <-result; err != nil {
		t.Errorf("though the servers keep the place, %v", err)
	}
}

// Its end is counted from before it was asked for, however long the answer takes.
//
//	its node is made, and the answer held back for a while
func TestSessionCountsFromItsRequest(t *testing.T) {
	t.Parallel()
	ctx, p, l, other := behind(t)
	beside := sessionOf(t, other.store).path[len(DefaultBase)+1:]
	if _, _, err := l.store.zk.Exists("/"); err != nil {
		t.Fatal(err)
	}
	p.CutReplies()
	type result struct {
		since driver.Instant
		err   error
	}
	opened := make(chan result, 1)
	go func() {
		_, _, since, err := l.store.open(struct{}{}, live{})
		opened <- result{since, err}
	}()
	for nodes := []string{beside}; len(nodes) == 1 && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		nodes, _ = other.store.children(ctx, DefaultBase)
	}
	answered := driver.Now()
	p.Deliver()
	if got := <-opened; got.err != nil || got.since >= answered {
		t.Errorf("it counts from %v after it was there, %v", got.since.Sub(answered), got.err)
	}
}

// Validity counts from before the request was sent, however long the answer takes: that to
// the request for a place, or that to a look at the queue.
func TestGrantCountsFromItsRequest(t *testing.T) {
	t.Parallel()
	const delay = 100 * time.Millisecond
	addr, p := proxied(t)
	p.Delay(delay)
	ctx, l := connected(t, p.Addr())
	_, other := connected(t, addr)
	placed(t, ctx, other.store, "held")
	for _, name := range []string{"free", "held"} {
		a, _ := placed(t, ctx, l.store, name)
		if before := driver.Now().Sub(a.since); before < 2*delay {
			t.Errorf("a name that is %s counts from %v before the answer, which takes %v", name, before, 2*delay)
		}
	}
}

// Who waits for the first connection hears of Close at once, and not when its time is over.
func TestCloseEndsASessionThatIsBeingMade(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t, 1)[0]
	s.Pause()
	_, l := connected(t, s.Addr())
	opened := make(chan error, 1)
	go func() {
		_, _, _, err := l.store.open(struct{}{}, live{})
		opened <- err
	}()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-opened; !errors.Is(err, locker.ErrClosed) {
		t.Errorf("a session of a closed Locker: %v", err)
	}
	s.Resume()
}

// One renewal looks at many nodes, and says of each what has become of it.
//
//	four locks; somebody deletes the nodes of the first, the third, and the session; the
//	fourth is of a session that the client had before
func TestRenewalSaysWhichNodesAreGone(t *testing.T) {
	t.Parallel()
	ctx, _, s, _ := granted(t)
	n := sessionOf(t, s)
	var as []*attempt
	for i := range 4 {
		a, _ := placed(t, ctx, s, fmt.Sprint(i))
		as = append(as, a)
	}
	as[3].madeIn--
	for _, path := range []string{as[0].path, as[2].path, n.path} {
		if err := s.zk.Remove(ctx, path); err != nil {
			t.Fatal(err)
		}
	}
	want := []locker.Reason{locker.ReasonTakenOver, 0, locker.ReasonTakenOver, locker.ReasonSessionEnded, locker.ReasonSessionEnded}
	for i, err := range append(s.Renew(ctx, as), s.renewSession(ctx, n)) {
		var lost *locker.LostError
		if errors.As(err, &lost) != (want[i] != 0) || lost != nil && lost.Reason != want[i] {
			t.Errorf("%d: %v, want a loss because of %v", i, err, want[i])
		}
	}
}

// The zk client may send the request for a session's node in the next session, and so make
// it there.
//
//	the network is down, and a node is asked for; the session ends; the network is back
func TestNodeThatIsMadeInTheNextSessionIsNone(t *testing.T) {
	t.Parallel()
	addr := testserver.ZooKeeper(t, 1)[0].Addr()
	var mu sync.Mutex // the network: held while it is down
	var last net.Conn
	watched := NewSession(func(network, _ string, timeout time.Duration) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		var err error
		last, err = net.DialTimeout(network, addr, timeout)
		return last, err
	})
	// With fewer servers the client drops such a request before it goes on.
	addrs := []string{"127.0.0.1:1", "127.0.0.2:1", "127.0.0.3:1"}
	conn, _, err := zk.Connect(addrs, time.Second, zk.WithDialer(watched.Dial), zk.WithLogger(mute{}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l, err := New(conn, Options{Session: watched})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, other := connected(t, addr)
	sessionOf(t, other.store)   // so that there is a base
	for made := false; !made; { // a session of a second does not outlast a stall of the machine
		_, err := conn.Create("/seen", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		if made = err == nil; ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	last.Close()
	for conn.State() == zk.StateHasSession && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	type result struct {
		n   *session
		err error
	}
	opened := make(chan result, 1)
	go func() {
		n, _, _, err := l.store.open(struct{}{}, live{})
		opened <- result{n, err}
	}()
	for exists := true; exists && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		exists, _, _ = other.store.zk.Exists("/seen")
	}
	mu.Unlock()
	if got := <-opened; got.err == nil && got.n.id != conn.SessionID() {
		t.Errorf("a session %x with a node in %x", got.n.id, conn.SessionID())
	}
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
	for what, spoil := range map[string]func(*Session, *session){
		"closed":  func(s *Session, _ *session) { s.closed.Store(true); s.check() },
		"shorter": func(s *Session, n *session) { s.granted(n.timeout - time.Millisecond) },
	} {
		ctx, _, s, lock := granted(t)
		n := sessionOf(t, s)
		s.opts.Session.mu.Lock()
		clear(s.opts.Session.sessions)
		s.opts.Session.mu.Unlock()
		spoil(s.opts.Session, n)
		if lock.Err() != nil {
			t.Fatalf("%s: lost before it was noted: %v", what, lock.Err())
		}
		s.opts.Session.note(n)
		if !errors.Is(lock.Err(), locker.ErrLost) {
			t.Errorf("%s: believed in until %v", what, lock.Deadline())
		}
		for remembered := 1; remembered > 0 && ctx.Err() == nil; time.Sleep(time.Millisecond) {
			s.opts.Session.mu.Lock()
			remembered = len(s.opts.Session.sessions)
			s.opts.Session.mu.Unlock()
		}
		if ctx.Err() != nil {
			t.Errorf("%s: a session that has ended is remembered", what)
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
		left = len(s.opts.Session.sessions)
		s.opts.Session.mu.Unlock()
		if ctx.Err() != nil {
			t.Fatalf("%d are remembered", left)
		}
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

// While a session is being made, its connection may be closed, or change to a server that
// grants less: what it counts on was read before, and whoever ended the others did not know it.
func TestSessionIsOverIfItsConnectionChangedWhileItWasMade(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(c *Session){
		"closed":                 func(c *Session) { c.closed.Store(true) },
		"a server that has less": func(c *Session) { c.timeout.Store(int64(time.Second)) },
	} {
		_, l := connected(t, testserver.ZooKeeper(t, 1)[0].Addr())
		n, conn := sessionOf(t, l.store), l.store.opts.Session
		conn.mu.Lock()
		delete(conn.sessions, n) // it is not known yet
		conn.mu.Unlock()
		change(conn)
		conn.note(n)
		if n.Context().Err() == nil || n.Lasts() {
			t.Errorf("%s: the session is believed in", what)
		}
	}
}

// The servers may be away for longer than a clean-up goes on, and the zk client's session outlast
// that. The node of a session that has ended would stay for as long as the connection.
//
//	nobody is reached for eleven seconds, in which the session ends by the local clock
func TestNodeOfASessionThatHasEndedGoesHoweverLongTheServersAreAway(t *testing.T) {
	t.Parallel()
	ctx, p, l, other := lasting(t)
	before := sessionOf(t, l.store)
	p.Cut()
	before.Lose(locker.ReasonUnreachable, nil)
	time.Sleep(11 * time.Second)
	p.Heal()
	for there := true; there; time.Sleep(10 * time.Millisecond) {
		var err error
		if there, _, err = other.store.zk.Exists(before.path); err != nil || ctx.Err() != nil {
			t.Fatalf("the node is still there: %v, %v", there, err)
		}
	}
	if before.id != l.store.zk.SessionID() {
		t.Error("the zk client's session has ended, and took the node with it")
	}
}

// A waiter's session ends by the local clock, and it leaves without another. The zk client's
// session lives on, and with it the waiter's place.
//
//	it has a place behind a holder; nobody is reached, and the session ends; the waiter leaves;
//	its clean-up is given up after ten seconds
func TestPlaceOfAWaiterWithoutASessionGoesHoweverLongTheServersAreAway(t *testing.T) {
	t.Parallel()
	ctx, p, l, other := lasting(t)
	if _, err := other.Lock(ctx, "n"); err != nil {
		t.Fatal(err)
	}
	places := func() int {
		children, err := other.store.children(ctx, other.store.queue("n"))
		if err != nil {
			t.Fatal(err)
		}
		return len(children)
	}
	waits, leave := context.WithCancel(ctx)
	defer leave()
	result := make(chan error, 1)
	go func() { _, err := l.Lock(waits, "n", locker.WithTTL(time.Minute)); result <- err }()
	for places() < 2 || l.Watches() == 0 {
		time.Sleep(time.Millisecond)
	}
	before := sessionOf(t, l.store)
	p.Cut()
	before.Lose(locker.ReasonUnreachable, nil)
	time.Sleep(time.Second) // it hears of that, and asks for another
	leave()
	if err := <-result; !errors.Is(err, locker.ErrOutcomeUnknown) {
		t.Error(err)
	}
	time.Sleep(11 * time.Second)
	p.Heal()
	for places() > 1 {
		time.Sleep(10 * time.Millisecond)
	}
	if before.id != l.store.zk.SessionID() {
		t.Error("the zk client's session has ended, and took the place with it")
	}
}

// lasting is behind, with a zk client whose session lasts longer than a clean-up goes on.
func lasting(t *testing.T) (ctx context.Context, p *netproxy.Proxy, l, other *Locker) {
	t.Helper()
	addr, p := proxied(t)
	watched := NewSession(nil)
	conn, _, err := zk.Connect([]string{p.Addr()}, time.Minute, zk.WithDialer(watched.Dial), zk.WithLogger(mute{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	l, err = New(conn, Options{Session: watched})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	ctx, other = connected(t, addr)
	return ctx, p, l, other
}
