package netproxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// echo is a server that notes the lines that it reads, and answers each.
type echo struct {
	addr  string
	heard chan string
}

func newEcho(t *testing.T) *echo {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	e := &echo{l.Addr().String(), make(chan string, 10)}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go e.serve(conn)
		}
	}()
	return e
}

func (e *echo) serve(conn net.Conn) {
	defer conn.Close()
	for in := bufio.NewScanner(conn); in.Scan(); {
		e.heard <- in.Text()
		if _, err := io.WriteString(conn, in.Text()+"!\n"); err != nil {
			return
		}
	}
	e.heard <- "hung up"
}

func dial(t *testing.T, p *Proxy) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, bufio.NewReader(conn)
}

// dialled is dial, and something was said and answered over the connection.
func dialled(t *testing.T, p *Proxy) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, in := dial(t, p)
	say(t, conn, "before")
	hears(t, conn, in, "before!")
	return conn, in
}

func say(t *testing.T, conn net.Conn, line string) {
	t.Helper()
	if _, err := io.WriteString(conn, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

func (e *echo) hears(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-e.heard:
		if got != want {
			t.Fatalf("the server heard %q, want %q", got, want)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("the server did not hear %q", want)
	}
}

func hears(t *testing.T, conn net.Conn, in *bufio.Reader, want string) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	if got, err := in.ReadString('\n'); err != nil || got != want+"\n" {
		t.Fatalf("the client heard %q, %v, want %q", got, err, want)
	}
}

// silent requires that a connection says nothing for a while, and is open.
func silent(t *testing.T, conn net.Conn, in *bufio.Reader) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if b, err := in.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a silent connection said %q, %v", b, err)
	}
}

func TestCutLetsNothingPassAndHealLosesIt(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.addr)
	conn, in := dialled(t, p)
	e.hears(t, "before")
	p.Cut()
	say(t, conn, "lost")
	fresh, inFresh := dial(t, p)
	say(t, fresh, "lost too")
	silent(t, conn, in)
	silent(t, fresh, inFresh)
	p.Heal()
	for _, c := range []net.Conn{conn, fresh} {
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("after Heal an old connection gave %d bytes, %v", n, err)
		}
	}
	again, inAgain := dial(t, p)
	say(t, again, "after")
	hears(t, again, inAgain, "after!")
	for got := range e.heard {
		if got == "after" {
			return
		}
		if got != "hung up" {
			t.Fatalf("the server heard %q, which was lost", got)
		}
	}
}

func TestCutRepliesLetsRequestsPass(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.addr)
	conn, in := dial(t, p)
	p.CutReplies()
	say(t, conn, "hello")
	e.hears(t, "hello")
	silent(t, conn, in)
	p.Deliver()
	hears(t, conn, in, "hello!")
}

func TestCutRepliesAfterOneLetsOneMoreAnswerPass(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.addr)
	conn, in := dial(t, p)
	p.CutRepliesAfterOne()
	say(t, conn, "first")
	hears(t, conn, in, "first!")
	say(t, conn, "second")
	e.hears(t, "first")
	e.hears(t, "second")
	silent(t, conn, in)
	p.Deliver()
	hears(t, conn, in, "second!")
	say(t, conn, "third")
	hears(t, conn, in, "third!")
}

func TestCutRepliesAfterOneLetsTheAnswerPassThatIsHeldBack(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.addr)
	conn, in := dial(t, p)
	p.CutReplies()
	for _, line := range []string{"first", "second", "third"} {
		say(t, conn, line)
		e.hears(t, line)
		awaitHeld(t, p, line+" was answered", 0, len(line)+2)
		p.CutRepliesAfterOne()
		hears(t, conn, in, line+"!")
	}
	say(t, conn, "last")
	e.hears(t, "last")
	silent(t, conn, in)
	p.Deliver()
	hears(t, conn, in, "last!")
}

func TestDeliverBringsWhatASenderSentThatHasHungUp(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.addr)
	conn, _ := dialled(t, p)
	e.hears(t, "before")
	p.Cut()
	say(t, conn, "late")
	_ = conn.Close()
	p.Deliver()
	e.hears(t, "late")
	e.hears(t, "hung up")
	counts(t, p, 0)
}

// Goal: a client that gives up on a server that hangs has no connection left.
func TestConnsOfAServerThatHangs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts nobody
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	p := newProxy(t, l.Addr().String())
	conn, _ := dial(t, p)
	counts(t, p, 1)
	_ = conn.Close()
	counts(t, p, 0)
}

// counts requires that the proxy comes to count want connections.
func counts(t *testing.T, p *Proxy, want int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); p.Conns() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are counted, want %d", p.Conns(), want)
		}
	}
}

func TestCutHoldsBackThatASenderHungUp(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.addr)
	conn, _ := dialled(t, p)
	e.hears(t, "before")
	p.Cut()
	_ = conn.Close()
	select {
	case what := <-e.heard:
		t.Fatalf("through a cut the server heard %q", what)
	case <-time.After(50 * time.Millisecond):
	}
	p.Deliver()
	e.hears(t, "hung up")
}

func TestStallLetsNewConnectionsOvertakeOldOnes(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.addr)
	old, inOld := dialled(t, p)
	e.hears(t, "before")
	p.Stall()
	say(t, old, "first")
	fresh, inFresh := dial(t, p)
	say(t, fresh, "second")
	e.hears(t, "second")
	hears(t, fresh, inFresh, "second!")
	if n := p.Conns(); n != 2 {
		t.Errorf("%d connections are counted, there are 2", n)
	}
	p.Deliver()
	e.hears(t, "first")
	hears(t, old, inOld, "first!")
}

// Goal: a test can see whether anything was held back.
func TestHeldBackIsWhatWaitsForTheEndOfACutOrStall(t *testing.T) {
	for _, c := range []struct {
		name              string
		hold, end         func(*Proxy)
		requests, replies int
	}{
		{"cut", (*Proxy).Cut, (*Proxy).Deliver, len("late\n"), 0},
		{"cut, lost", (*Proxy).Cut, (*Proxy).Heal, len("late\n"), 0},
		{"replies cut", (*Proxy).CutReplies, (*Proxy).Deliver, 0, len("late!\n")},
		{"stalled", (*Proxy).Stall, (*Proxy).Deliver, len("late\n"), 0},
	} {
		p := newProxy(t, newEcho(t).addr)
		conn, _ := dialled(t, p)
		c.hold(p)
		if requests, replies := p.HeldBack(); requests+replies != 0 {
			t.Errorf("%s: before anything is said, %d and %d bytes are held", c.name, requests, replies)
		}
		say(t, conn, "late")
		awaitHeld(t, p, c.name, c.requests, c.replies)
		c.end(p)
		awaitHeld(t, p, c.name+", ended", 0, 0)
	}
}

func awaitHeld(t *testing.T, p *Proxy, when string, requests, replies int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		gotRequests, gotReplies := p.HeldBack()
		if gotRequests == requests && gotReplies == replies {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %d and %d bytes are held, want %d and %d", when, gotRequests, gotReplies, requests, replies)
		}
	}
}

func newProxy(t *testing.T, target string) *Proxy {
	t.Helper()
	p, err := Listen(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func TestConnectionThatEndsUnheardIsSilentForTheClient(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.addr)
	conn, in := dialled(t, p)
	e.hears(t, "before")
	p.EndUnheard()
	e.hears(t, "hung up")
	say(t, conn, "lost")
	silent(t, conn, in)
	p.Heal()
	conn, in = dial(t, p)
	say(t, conn, "after")
	hears(t, conn, in, "after!")
}

func TestDelayIsInEachDirectionAndKeepsTheOrder(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.addr)
	const d = 30 * time.Millisecond
	p.Delay(d)
	conn, in := dial(t, p)
	begun := time.Now()
	for _, line := range []string{"a", "b", "c"} {
		say(t, conn, line)
	}
	for _, line := range []string{"a", "b", "c"} {
		hears(t, conn, in, line+"!")
	}
	if took := time.Since(begun); took < 2*d {
		t.Errorf("the answers came after %v, want %v at least", took, 2*d)
	}
}

// A server that is stopped accepts nobody. When its queue of connections is full, a dial
// takes minutes.
func TestCloseDoesNotWaitForAServerThatAcceptsNobody(t *testing.T) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprint("127.0.0.1:", name.(*syscall.SockaddrInet4).Port)
	for full := false; !full; {
		conn, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if full = err != nil; !full {
			defer conn.Close()
		}
	}
	p, err := Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // the proxy dials now
	_, _ = conn.Read(make([]byte, 1))
	closed := make(chan struct{})
	go func() {
		p.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(30 * time.Second):
		t.Error("Close waits for the server")
	}
}

// Goal: a network that was broken and delivered can be broken again, also for the connections of the first time.
func TestACutReachesConnectionsThatWereStalledAndDelivered(t *testing.T) {
	for what, cut := range map[string]func(*Proxy){"Cut": (*Proxy).Cut, "Stall": (*Proxy).Stall, "EndUnheard": (*Proxy).EndUnheard} {
		e := newEcho(t)
		p := newProxy(t, e.addr)
		conn, _ := dialled(t, p)
		p.Stall()
		p.Deliver()
		cut(p)
		say(t, conn, "late")
		awaitHeld(t, p, what, len("late\n"), 0)
	}
}

// Goal: the last call decides what passes.
func TestTheLastCallDecidesWhatPasses(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.addr)
	conn, in := dial(t, p)
	p.Cut()
	say(t, conn, "hello")
	p.CutReplies()
	e.hears(t, "hello")
	silent(t, conn, in)
	p.Cut()
	p.Stall()
	fresh, inFresh := dial(t, p)
	say(t, fresh, "new")
	e.hears(t, "new")
	hears(t, fresh, inFresh, "new!")
	silent(t, conn, in)
	p.CutReplies()
	say(t, conn, "stalled")
	awaitHeld(t, p, "stalled", len("stalled\n"), len("hello!\n"))
}

func TestAReplyOfAConnectionThatEndedUnheardIsLost(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.addr)
	conn, in := dial(t, p)
	p.CutReplies()
	say(t, conn, "hello")
	e.hears(t, "hello")
	awaitHeld(t, p, "answered", 0, len("hello!\n"))
	p.EndUnheard()
	p.Deliver()
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	if got, err := in.ReadString('\n'); got != "" || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the client heard %q, %v, of a connection that had ended", got, err)
	}
}

func TestTheEndOfAConnectionIsNotTheOneMoreReply(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.addr)
	gone, inGone := dial(t, p)
	conn, in := dial(t, p)
	say(t, gone, "a")
	hears(t, gone, inGone, "a!")
	e.hears(t, "a")
	p.CutRepliesAfterOne()
	_ = gone.Close()
	e.hears(t, "hung up") // and so its server has ended its side
	time.Sleep(10 * time.Millisecond)
	say(t, conn, "first")
	hears(t, conn, in, "first!")
}

func TestAConnectionThatEndedUnheardIsSilentWhenOneMoreReplyMayPass(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.addr)
	conn, in := dialled(t, p)
	e.hears(t, "before")
	p.EndUnheard()
	e.hears(t, "hung up")
	p.CutRepliesAfterOne()
	silent(t, conn, in)
}

// Goal: a client whose network is cut does not hear that the server is down.
func TestANewConnectionThroughACutIsSilentThoughTheServerIsDown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	for what, cut := range map[string]func(*Proxy){"Cut": (*Proxy).Cut, "EndUnheard": (*Proxy).EndUnheard} {
		p := newProxy(t, addr)
		cut(p)
		conn, in := dial(t, p)
		say(t, conn, "hello")
		awaitHeld(t, p, what, len("hello\n"), 0)
		silent(t, conn, in)
		p.Deliver()
		_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := in.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: when it was over the client heard %v", what, err)
		}
	}
}

// Goal: what the process counts is its own side.
func TestAConnectionThatIsClosedDuringACutIsNotCounted(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.addr)
	conn, _ := dialled(t, p)
	p.Cut()
	_ = conn.Close()
	counts(t, p, 0)
}
