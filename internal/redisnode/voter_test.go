package redisnode

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/testserver"
)

// steppedServer starts a server whose wall clock can be stepped: to so much
// before or after this machine's.
func steppedServer(t *testing.T) (srv *testserver.RedisServer, step func(time.Duration)) {
	t.Helper()
	clock := testserver.NewClock(t)
	srv = testserver.RedisWithEnv(t, clock.Env())
	return srv, func(d time.Duration) {
		t.Helper()
		if err := clock.Step(d); err != nil {
			t.Fatal(err)
		}
		srv.Await("the clock to have been stepped", func() bool {
			off := time.Until(time.UnixMicro(serverMicros(srv)))
			up := uptime(srv)
			return (off-d).Abs() < 10*time.Minute && (up-d).Abs() < 10*time.Minute
		})
	}
}

// uptime is what the server says of it. It was started at this machine's time.
func uptime(srv *testserver.RedisServer) time.Duration {
	_, after, _ := strings.Cut(srv.Do("INFO", "server"), "uptime_in_seconds:")
	var seconds int64
	_, _ = fmt.Sscan(after, &seconds)
	return time.Duration(seconds) * time.Second
}

func refused(t *testing.T, n *Node, name string) {
	t.Helper()
	if s, err := n.Acquire(background(t), newAttempt(t, name), Ask{}); err == nil || !strings.Contains(err.Error(), "no vote") {
		t.Errorf("%+v, %v: want no vote", s, err)
	}
}

// The uptime is counted on the wall clock. A majority whose clocks are set right
// by an hour must not be without votes for an hour.
func TestNodeThatHasVotedVotesAlsoAfterItsClockWasSteppedBack(t *testing.T) {
	srv, step := steppedServer(t)
	n, strict := ofQuorumNode(t, srv.Addr(), 30*time.Minute), ofQuorumNode(t, srv.Addr(), 50*time.Minute)
	refused(t, n, "a")
	step(time.Hour)
	mustGrant(t, n, newAttempt(t, "b"))
	for k, d := range []time.Duration{0, -time.Hour} {
		step(d)
		mustGrant(t, n, newAttempt(t, fmt.Sprint("c", k)))
		refused(t, strict, fmt.Sprint("d", k)) // has not been found old enough for that
	}
}

// A snapshot brings the key back that says who may vote, and not the locks that
// were taken after it.
func TestRestartedNodeIsRefusedThoughItsDataSayThatItHasVoted(t *testing.T) {
	srv, step := steppedServer(t)
	n := ofQuorumNode(t, srv.Addr(), 30*time.Minute)
	step(time.Hour)
	mustGrant(t, n, newAttempt(t, "a"))
	srv.Do("SAVE")
	step(0)
	mustGrant(t, n, newAttempt(t, "b"))
	srv.Kill()
	srv.Start()
	if srv.Do("GET", "lockstile:voter") == "" {
		t.Fatal("the snapshot does not have the key")
	}
	refused(t, n, "b")
	step(time.Hour)
	mustGrant(t, n, newAttempt(t, "b"))
	step(0)
	mustGrant(t, n, newAttempt(t, "c"))
}

// A young node has a former holder's key and queue, from a snapshot. Whatever it is asked,
// it grants the lock to nobody: what it gives to a waiter is a reservation, and the waiter's
// request is refused.
func TestNodeWithoutAVoteGrantsNothingWhateverItIsAsked(t *testing.T) {
	srv := testserver.Redis(t)
	old, young := ofQuorumNode(t, srv.Addr(), 0), ofQuorumNode(t, srv.Addr(), time.Hour)
	for what, ask := range map[string]func(holder, waiter *Attempt) error{
		"release":  func(h, _ *Attempt) error { return young.Release(background(t), h, 0) },
		"withdraw": func(h, _ *Attempt) error { return young.Withdraw(background(t), h) },
		"force":    func(h, _ *Attempt) error { _, err := young.Break(background(t), h.Keys, Numbered(0)); return err },
		"renewal":  func(h, _ *Attempt) error { return young.Renew(background(t), []*Attempt{h})[0] },
		"raise": func(h, _ *Attempt) error {
			_, err := young.Raise(background(t), h, uint64(serverMicros(srv)))
			return err
		},
		"renewal of a key that is gone": func(h, _ *Attempt) error {
			srv.Do("DEL", h.Keys.Lock)
			_ = young.Renew(background(t), []*Attempt{h})
			return nil
		},
		"request of the holder": func(h, _ *Attempt) error {
			if _, err := young.Acquire(background(t), h, Ask{}); Young(err) == 0 {
				return fmt.Errorf("it was not refused: %w", err)
			}
			return nil
		},
		"withdrawal of the next": func(h, w *Attempt) error {
			srv.Do("SET", h.Keys.Lock, "?"+w.Value)
			return young.Withdraw(background(t), w)
		},
	} {
		holder, waiter, next := newAttempt(t, what), newAttempt(t, what), newAttempt(t, what)
		mustGrant(t, old, holder)
		for _, a := range []*Attempt{waiter, next} {
			mustQueue(t, old, old.mail, a)
		}
		if err := ask(holder, waiter); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		for _, a := range []*Attempt{waiter, next} {
			if s, err := young.Acquire(background(t), a, Ask{Queue: true}); Young(err) == 0 {
				t.Errorf("after a %s a waiter was answered %+v, %v", what, s, err)
			}
		}
		if is := srv.Do("GET", what); is != holder.Value && is != "" && !strings.HasPrefix(is, "?") {
			t.Errorf("after a %s the lock is %q", what, is)
		}
	}
}
