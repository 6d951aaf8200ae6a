package zookeeper_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// The leader learns of a client's signs of life from the server that the client
// is connected to, when it asks that one, twice a tick. If that one stops right
// after a renewal, the leader has heard neither of the renewal nor of the last
// ping, and counts from the sign before: see believable. Where sessions are two
// ticks long, the worst moments are these, in ticks of the leader's clock:
//
//	0.95  the leader asks; the last sign was a lock at 0.90, right after a ping
//	1.45  it asks, and there is nothing new
//	1.57  the client pings
//	1.83  the lock is renewed, and the server stops
//	3.00  the session ends, as sessions do at whole ticks
func TestServerThatStopsRightAfterARenewalBreaksNoExclusion(t *testing.T) {
	const tick = time.Second
	servers := testserver.ZooKeeperWith(t, 3, fmt.Sprint("tickTime=", tick.Milliseconds()))
	leader := testserver.ZooKeeperLeader(t, servers)
	follower := servers[0]
	if follower == leader {
		follower = servers[1]
	}
	for range 3 { // a busy machine misses moments
		waiter := newClient(t, time.Minute, leader.Addr())
		unlock(t, lock(t, waiter, "connected", locker.WithTTL(time.Minute)))
		leader.Pause() // it asks when it goes on, and from then on
		sleepUntil(javaClock().Truncate(tick) + 2*tick + tick*45/100)
		leader.Resume()
		renewal := javaClock().Truncate(tick) + 3*tick + tick*83/100
		var renewed, next sync.WaitGroup
		for i, percent := range []time.Duration{70, 75, 89, 92, 95, 98} { // whose beginnings last for long enough, whatever we believe
			before := tick * percent / 100
			renewed.Go(func() {
				h := &pinger{t: t, client: newClientAt(t, renewal-before-2*tick/3, 2*tick, follower.Addr()), name: fmt.Sprint(i)}
				h.lockAt(renewal - before)
				next.Go(func() { h.excludes(waiter) })
				h.renewAt(renewal)
			})
		}
		renewed.Wait()
		follower.Pause()
		next.Wait()
		follower.Resume()
	}
}

// pinger is a client that pings two thirds of a tick after it has connected, and
// again and again.
type pinger struct {
	t *testing.T
	client
	name string
	held *locker.Lock
}

func newClientAt(t *testing.T, at, timeout time.Duration, addr string) client {
	sleepUntil(at)
	c := newClient(t, timeout, addr)
	if _, _, err := c.conn.Exists("/"); err != nil { // it is connected
		t.Error(err)
	}
	return c
}

func (h *pinger) lockAt(at time.Duration) {
	var err error
	sleepUntil(at)
	if h.held, err = h.Lock(soon(h.t), h.name, locker.WithoutRenewal()); err != nil {
		h.t.Error(err)
	}
}

func (h *pinger) renewAt(at time.Duration) {
	sleepUntil(at)
	if h.held != nil {
		_ = h.held.Renew(soon(h.t)) // it may be lost by now
	}
}

// excludes checks that l gets the lock only when it is no longer believed in.
func (h *pinger) excludes(l locker.Locker) {
	next, err := l.Lock(soon(h.t), h.name, locker.WithTTL(time.Minute))
	switch {
	case err != nil:
		h.t.Error(err)
	case h.held != nil && h.held.Err() == nil:
		h.t.Errorf("granted while the first holder believes, for another %v", time.Until(h.held.Deadline()))
	}
	if err == nil {
		unlock(h.t, next)
	}
}

// javaClock is the clock of which ZooKeeper's ticks are multiples.
func javaClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // it is there on every Linux
	}
	return time.Duration(ts.Nano())
}

func sleepUntil(at time.Duration) { time.Sleep(at - javaClock()) }
