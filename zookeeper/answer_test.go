package zookeeper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/async"
)

// What a server has refused, and what was never sent, has left nothing.
func TestOnlySilenceIsInDoubt(t *testing.T) {
	for err, gone := range map[error]bool{
		zk.ErrNoNode: true, zk.ErrNoAuth: true, zk.ErrBadVersion: true, zk.ErrNodeExists: true, zk.ErrNotEmpty: true,
		zk.ErrInvalidACL: true, zk.ErrAuthFailed: true, zk.ErrBadArguments: true, zk.ErrInvalidPath: true,
		zk.ErrNoChildrenForEphemerals: true, zk.ErrNoServer: true,
		zk.ErrConnectionClosed: false, zk.ErrSessionExpired: false, zk.ErrUnknown: false, io.EOF: false,
	} {
		a := &attempt{made: async.Failed[[]zk.MultiResponse](err)}
		if got := a.settle(t.Context()); !errors.Is(got, err) || a.gone != gone {
			t.Errorf("after %v, %v: nothing is left: %v", err, got, a.gone)
		}
	}
}

func TestWhatASessionCannotDoIsRefused(t *testing.T) {
	const timeout = 12 * time.Second
	valid := 5*time.Second - driver.Drift(5*time.Second)
	for _, c := range []struct {
		ttl, least, timeout time.Duration
		ok                  bool
	}{
		{timeout, 0, timeout, true},
		{timeout, 0, 0, true}, // it is not known yet
		{timeout, timeout, 0, true},
		{timeout - 1, 0, timeout, false},
		{timeout, valid - 1, timeout, true},
		{timeout, valid, timeout, false},
		{timeout, 0, locker.MinTTL * 2, false},
		{timeout, 0, locker.MinTTL * 3, true},
	} {
		if err := fits(&driver.Request{TTL: c.ttl, MinValidity: c.least}, c.timeout); (err == nil) != c.ok {
			t.Errorf("a TTL of %v and a validity of %v with a session of %v: %v", c.ttl, c.least, c.timeout, err)
		}
	}
}

// A server greets the client of a session that has expired with a timeout of 0.
func TestGreetingOfAnExpiredSessionGrantsNothing(t *testing.T) {
	var theirs net.Conn
	s := NewSession(func(string, string, time.Duration) (ours net.Conn, err error) {
		ours, theirs = net.Pipe()
		return ours, nil
	})
	for _, greeted := range []time.Duration{10 * time.Second, 0} {
		ours, err := s.Dial("tcp", "", 0)
		if err != nil {
			t.Fatal(err)
		}
		said := make([]byte, greeting)
		binary.BigEndian.PutUint32(said[8:], uint32(greeted/time.Millisecond))
		go func(server net.Conn) {
			_, _ = server.Write(said)
			_ = server.Close()
		}(theirs)
		if _, err := io.ReadAll(io.LimitReader(ours, greeting)); err != nil {
			t.Fatal(err)
		}
		if got := s.Timeout(); got != 10*time.Second {
			t.Errorf("greeted with %v: %v", greeted, got)
		}
	}
}

// A waiter hears of the end of its session, and does not wait for its watch.
func TestWaiterHearsOfTheEndOfItsSession(t *testing.T) {
	t.Parallel()
	ctx, _, l, other := behind(t)
	s := l.store
	placed(t, ctx, other.store, "n")
	a, ahead := placed(t, ctx, s, "n")
	a.session.timeout = time.Hour // until it looks by itself
	told := make(chan error, 1)
	go func() { told <- s.waitFor(ctx, a, a.queue+"/"+ahead) }()
	for l.Watches() == 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	a.session.Lose(locker.ReasonUnreachable, nil)
	if err := <-told; err != nil {
		t.Error(err)
	}
}

// Somebody else may make a node at the same time.
//
//	the base is made when it is there; so is the node of a name
func TestNodeThatSomebodyElseHasMadeIsNoError(t *testing.T) {
	t.Parallel()
	ctx, _, s, _ := granted(t)
	if err := s.makeBase(ctx); err != nil {
		t.Error(err)
	}
	first := true
	err := s.zk.WithParents(ctx, s.queue("n")+"/", func() error {
		if first {
			first = false
			return zk.ErrNoNode // before somebody else has made it
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A server cuts the connection on a request of more than a megabyte, and all locks are lost.
func TestManyLocksOfLongNamesAreRenewed(t *testing.T) {
	t.Parallel()
	ctx, _, s, _ := granted(t)
	a, _ := placed(t, ctx, s, strings.Repeat("%", locker.MaxName)) // three bytes each in a path
	as := make([]*attempt, 3*mostChecks)
	for i := range as {
		as[i] = a
	}
	for i, err := range s.Renew(ctx, as) {
		if err != nil {
			t.Fatal(fmt.Errorf("lock %d: %w", i, err))
		}
	}
}
