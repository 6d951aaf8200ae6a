package zookeeper_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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
//	0.90  the client connects
//	1.45  the leader asks, and there is nothing new
//	1.57  the client pings
//	1.83  the first lock counts from here, and the server stops
//	3.00  the session ends, as sessions do at whole ticks
func TestServerThatStopsRightAfterARenewalBreaksNoExclusion(t *testing.T) {
	const tick = time.Second
	servers := testserver.ZooKeeperWith(t, 3, fmt.Sprint("tickTime=", tick.Milliseconds()))
	leader, follower := leaderAndFollower(t, servers)
	percents := []time.Duration{70, 75, 89, 92, 95, 98}
	first := newClient(t, time.Minute, leader.Addr())
	for i := range percents { // so that the queues need not be made at the moment
		keep(t, first, first.conn, fmt.Sprint(i), locker.WithTTL(time.Minute))
	}
	var held atomic.Int32
	end := time.Now().Add(patience)
	for round := 0; round < 3 || held.Load() == 0 && time.Now().Before(end); round++ { // a busy machine misses moments
		waiter := newClient(t, time.Minute, leader.Addr())
		unlock(t, lock(t, waiter, "connected", locker.WithTTL(time.Minute)))
		leader.Pause() // it asks when it goes on, and from then on
		sleepUntil(javaClock().Truncate(tick) + 2*tick + tick*45/100)
		leader.Resume()
		renewal := javaClock().Truncate(tick) + 3*tick + tick*83/100
		var renewed, next sync.WaitGroup
		for i, percent := range percents {
			renewed.Go(func() {
				h := &holder{t: t, client: newClientAt(t, renewal-tick*percent/100, 2*tick, follower.Addr()), name: fmt.Sprint(i)}
				if h.connected() && h.lockAt(renewal) {
					held.Add(1)
					next.Go(func() { h.excludes(waiter) })
				}
			})
		}
		renewed.Wait()
		follower.Pause()
		next.Wait()
		follower.Resume()
	}
	if held.Load() == 0 {
		t.Error("nobody has held a lock at its moment")
	}
}

// holder is a client that pings two thirds of a tick after it has connected, and
// again and again.
type holder struct {
	t *testing.T
	client
	name string
	held *locker.Lock
}

func newClientAt(t *testing.T, at, timeout time.Duration, addr string) client {
	sleepUntil(at)
	return newClient(t, timeout, addr)
}

// connected reports whether the server has answered. On a machine that stalls, sessions of
// two ticks end before that.
func (h *holder) connected() bool {
	_, _, err := h.conn.Exists("/")
	return err == nil
}

// lockAt reports whether the holder has got the lock in time.
func (h *holder) lockAt(at time.Duration) bool {
	var err error
	sleepUntil(at)
	if h.held, err = h.Lock(soon(h.t), h.name); err != nil && !errors.Is(err, locker.ErrUnavailable) {
		h.t.Error(err)
	}
	return err == nil
}

// excludes checks that l gets the lock only when it is no longer believed in.
func (h *holder) excludes(l locker.Locker) {
	next, err := l.Lock(soon(h.t), h.name, locker.WithTTL(time.Minute))
	switch {
	case err != nil:
		h.t.Error(err)
	case h.held.Err() == nil:
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
