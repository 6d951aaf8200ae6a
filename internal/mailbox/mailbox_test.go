package mailbox_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/mailbox"
)

// soon ends long after what tests wait for.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// A waiter may have gone when its word arrives. That must not end the connection, from
// which others wait for theirs.
func TestWordForNobodyDisturbsNobody(t *testing.T) {
	var connections atomic.Int64
	waiting := make(chan struct{})
	m := mailbox.New(func(ctx context.Context, m *mailbox.Mailbox) error {
		connections.Add(1)
		m.Ready("a channel")
		<-waiting
		m.Deliver(mailbox.Ask, "nobody")
		m.Deliver(mailbox.Ask, "somebody")
		<-ctx.Done()
		return ctx.Err()
	})
	defer m.Close()
	box := mailbox.NewBox()
	for value, f := range map[string]func(mailbox.Word){"somebody": box.Put, "somebody else": mailbox.NewBox().Put} {
		if err := m.Open(soon(t), value, f); err != nil {
			t.Fatal(err)
		}
	}
	if m.Idle() {
		t.Error("nobody waits, and two calls do")
	}
	close(waiting)
	if err := box.Sleep(soon(t), time.Hour); err != nil {
		t.Error(err)
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections were opened for two waiters", n)
	}
}

// The reader has a goroutine of its own, where nobody can recover from a hook of the
// client's that panics.
func TestReaderInWhichAHookPanicsHasFailed(t *testing.T) {
	m := mailbox.New(func(context.Context, *mailbox.Mailbox) error { panic("the hook") })
	defer m.Close()
	var panicked *driver.PanicError
	if err := m.Open(soon(t), "somebody", mailbox.NewBox().Put); !errors.As(err, &panicked) {
		t.Errorf("Open: %v", err)
	}
}

// One who sleeps is told by a word, by the end of the claim that it stands by for, or by the
// end of the lease that it knows of: a word may be lost.
func TestWaiterWakesByAWordOrByItself(t *testing.T) {
	for what, c := range map[string]struct {
		words []mailbox.Word
		after time.Duration
	}{
		"told to ask":                      {[]mailbox.Word{mailbox.Ask}, 0},
		"told to stand by":                 {[]mailbox.Word{mailbox.StandBy}, 500 * time.Millisecond}, // of a waiter that is dead
		"told to stand by, then to ask":    {[]mailbox.Word{mailbox.StandBy, mailbox.Ask}, 0},
		"told nothing":                     {nil, time.Minute},
		"told to ask when its box is full": {[]mailbox.Word{mailbox.Ask, mailbox.Ask, mailbox.Ask, mailbox.Ask, mailbox.Ask}, 0},
		"told to ask, then to stand by again and again": {
			[]mailbox.Word{mailbox.Ask, mailbox.StandBy, mailbox.StandBy, mailbox.StandBy, mailbox.StandBy}, 0,
		},
		"told to stand by again and again, then to ask": {
			[]mailbox.Word{mailbox.StandBy, mailbox.StandBy, mailbox.StandBy, mailbox.StandBy, mailbox.StandBy, mailbox.Ask}, 0,
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, box := time.Now(), mailbox.NewBox()
			for _, w := range c.words {
				box.Put(w)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			err := box.Sleep(ctx, time.Minute)
			slept := time.Since(began)
			early := slept < c.after || slept == c.after && slept > 0 // the store counts in milliseconds, and it may not be over there
			if err != nil || early || slept > c.after+10*time.Millisecond {
				t.Errorf("%s: it sleeps for %v, want %v: %v", what, slept, c.after, err)
			}
		})
	}
}

// The store takes a waiter for dead if nobody listens for it.
func TestNobodyIsQueuedBeforeWordsCanArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connect := make(chan struct{})
		m := mailbox.New(func(ctx context.Context, m *mailbox.Mailbox) error {
			<-connect
			m.Ready("a channel")
			<-ctx.Done()
			return ctx.Err()
		})
		defer m.Close()
		var queued atomic.Bool
		ctx, cancel := context.WithCancel(t.Context())
		ask := func(_ context.Context, queue bool) (driver.Grant, time.Duration, error) {
			queued.Store(queue)
			return driver.Grant{}, time.Hour, nil
		}
		go func() { _, _, _ = m.Acquire(ctx, "somebody", func() context.Context { return ctx }, ask) }() // ends with ctx
		synctest.Wait()
		if queued.Load() {
			t.Error("it has a place in the queue while the connection is opened")
		}
		close(connect)
		synctest.Wait()
		if !queued.Load() {
			t.Error("it has no place in the queue, and words can arrive")
		}
		cancel()
	})
}

// A release is one word to one waiter. A thousand others that ask as well would be the herd
// that the queue is there to avoid.
func TestWordWakesItsWaiterAlone(t *testing.T) {
	m := mailbox.New(nil)
	boxes := map[string]mailbox.Box{"a": mailbox.NewBox(), "b": mailbox.NewBox()}
	for value, box := range boxes {
		if err := m.Open(t.Context(), value, box.Put); err != nil {
			t.Fatal(err)
		}
	}
	m.Deliver(mailbox.Ask, "a")
	if len(boxes["a"]) != 1 || len(boxes["b"]) != 0 {
		t.Errorf("a word for a: a has %d, b has %d", len(boxes["a"]), len(boxes["b"]))
	}
}

// The connection breaks and is opened again while somebody waits. What was sent in between
// is lost, so everybody asks.
func TestConnectionThatBreaksIsOpenedAgainAndEverybodyAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened, broken := 0, make(chan error)
		m := mailbox.New(func(ctx context.Context, m *mailbox.Mailbox) error {
			opened++
			m.Ready("a channel")
			select {
			case err := <-broken:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		defer m.Close()
		box := mailbox.NewBox()
		if err := m.Open(t.Context(), "somebody", box.Put); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		broken <- errors.New("it breaks")
		if err := box.Sleep(t.Context(), time.Hour); err != nil || time.Since(began) > time.Minute {
			t.Errorf("it asks after %v: %v", time.Since(began), err)
		}
		synctest.Wait()
		if opened != 2 || m.Channel() != "a channel" {
			t.Errorf("opened %d times, words go to %q", opened, m.Channel())
		}
		m.Drop("somebody")
		broken <- errors.New("nobody waits")
		if time.Sleep(time.Minute); opened != 2 || m.Channel() != "" {
			t.Errorf("nobody waits, and it was opened %d times, words go to %q", opened, m.Channel())
		}
	})
}

// The store is away for a minute, and every connection to it breaks. Thousands of processes
// wait, and each of them leaves it some time.
func TestConnectionThatBreaksAgainAndAgainIsOpenedAfterPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := 0
		m := mailbox.New(func(ctx context.Context, m *mailbox.Mailbox) error {
			if opened++; opened > 100_000 {
				<-ctx.Done() // without pauses this minute would not end
			}
			m.Ready("a channel")
			return errors.New("it breaks")
		})
		if err := m.Open(t.Context(), "somebody", mailbox.NewBox().Put); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		m.Close()
		if opened < 60 || opened > 60*25 {
			t.Errorf("opened %d times in a minute", opened)
		}
	})
}

// A client may be opening a connection to a store that is silent, for as long as it likes.
func TestCloseDoesNotWaitForASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan struct{})
		time.AfterFunc(time.Hour, func() { close(answers) })
		m := mailbox.New(func(context.Context, *mailbox.Mailbox) error {
			<-answers
			return errors.New("too late")
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.Open(ctx, "somebody", mailbox.NewBox().Put); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Open: %v", err)
		}
		began := time.Now()
		if m.Close(); time.Since(began) > time.Minute {
			t.Errorf("Close took %v", time.Since(began))
		}
		<-answers
	})
}

// While nobody listens, no channel is named: the store takes whoever waits on the old one for
// dead, and drops it from the queue.
func TestChannelOfAConnectionThatBrokeIsNotNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened, broken, opens := 0, make(chan error), make(chan struct{})
		m := mailbox.New(func(ctx context.Context, m *mailbox.Mailbox) error {
			if opened++; opened > 1 {
				<-opens
			}
			m.Ready("channel " + strconv.Itoa(opened))
			select {
			case err := <-broken:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		defer m.Close()
		box := mailbox.NewBox()
		if err := m.Open(t.Context(), "somebody", box.Put); err != nil || m.Channel() != "channel 1" {
			t.Fatalf("words go to %q: %v", m.Channel(), err)
		}
		broken <- errors.New("it breaks")
		synctest.Wait()
		if m.Channel() != "" {
			t.Errorf("the connection broke, and words go to %q", m.Channel())
		}
		close(opens)
		if err := box.Sleep(t.Context(), time.Hour); err != nil || m.Channel() != "channel 2" {
			t.Errorf("the connection is there again, and words go to %q: %v", m.Channel(), err)
		}
	})
}

// The connection breaks and cannot be opened again: a pooler has come in between, or the server
// takes no more connections. Whoever sleeps has to be told, for no word will wake it.
func TestWaitersAskWhenWordsArriveNoMore(t *testing.T) {
	for _, why := range []error{mailbox.ErrNoWords, mailbox.ErrNoWordsNow} {
		synctest.Test(t, func(t *testing.T) {
			opened, broken := 0, make(chan error)
			m := mailbox.New(func(_ context.Context, m *mailbox.Mailbox) error {
				if opened++; opened > 1 {
					return why
				}
				m.Ready("a channel")
				return <-broken
			})
			defer m.Close()
			box := mailbox.NewBox()
			if err := m.Open(t.Context(), "somebody", box.Put); err != nil {
				t.Fatal(err)
			}
			broken <- errors.New("it breaks")
			began := time.Now()
			if err := box.Sleep(t.Context(), time.Hour); err != nil || time.Since(began) > time.Minute {
				t.Errorf("%v: it asks after %v: %v", why, time.Since(began), err)
			}
			if !m.Silent() {
				t.Errorf("%v: it does not know that it has to poll", why)
			}
			if time.Sleep(time.Minute); opened != 2 {
				t.Errorf("%v: opened %d times, and somebody polls", why, opened)
			}
			if m.Drop("somebody"); m.Silent() != (why == mailbox.ErrNoWords) {
				t.Errorf("%v: nobody waits any more, and that words cannot arrive is known: %v", why, m.Silent())
			}
		})
	}
}

// The connection breaks and cannot be opened again for an hour (the name of the server is not
// found, its certificate has run out), while requests go on over others. Who sleeps beside a free
// lock has to look by itself, now and then, until words arrive again.
func TestWaitersLookWhileTheConnectionCannotBeOpenedAgain(t *testing.T) {
	for what, inside := range map[string]bool{"the client opens it again": true, "we open it again": false} {
		synctest.Test(t, func(t *testing.T) {
			opens, broken := time.Now().Add(time.Hour), make(chan error)
			m := mailbox.New(func(ctx context.Context, m *mailbox.Mailbox) error {
				if time.Now().Before(opens) && m.Channel() == "" && time.Until(opens) < time.Hour {
					return errors.New("it cannot be opened")
				}
				m.Ready("a channel")
				for {
					select {
					case err := <-broken:
						if !inside {
							return err
						}
						m.Deaf()
						time.Sleep(time.Until(opens))
						m.Ready("a channel")
					case <-ctx.Done():
						return ctx.Err()
					}
				}
			})
			defer m.Close()
			box := mailbox.NewBox()
			if err := m.Open(t.Context(), "somebody", box.Put); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			broken <- errors.New("it breaks")
			looks := 0
			for time.Now().Before(opens) {
				if err := box.Sleep(t.Context(), 2*time.Hour); err != nil {
					t.Fatal(err)
				}
				looks++
			}
			if looks < 3600 || looks > 8*3600 {
				t.Errorf("%s: it looks %d times in an hour", what, looks)
			}
			time.Sleep(time.Second)
			for len(box) > 0 {
				<-box
			}
			began := time.Now()
			_ = box.Sleep(t.Context(), time.Hour)
			if time.Since(began) < time.Hour {
				t.Errorf("%s: words arrive, and it looks after %v", what, time.Since(began))
			}
		})
	}
}

// A connection is kept, and opened again when it breaks, for as long as somebody waits. A call
// that has ended does not.
func TestCallThatEndsWhileTheConnectionIsOpenedDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mailbox.New(func(ctx context.Context, _ *mailbox.Mailbox) error {
			<-ctx.Done() // the store is silent
			return ctx.Err()
		})
		defer m.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.Open(ctx, "somebody", mailbox.NewBox().Put); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Open: %v", err)
		}
		if !m.Idle() {
			t.Error("somebody waits, and the only call has ended")
		}
	})
}

// Waiters may still be there when Close is called. The connection is not opened again for them.
func TestNothingIsOpenedAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opened atomic.Int64
		m := mailbox.New(func(ctx context.Context, m *mailbox.Mailbox) error {
			if opened.Add(1) > 1 {
				return mailbox.ErrNoWords // so that no other follows
			}
			m.Ready("a channel")
			<-ctx.Done()
			return ctx.Err()
		})
		if err := m.Open(t.Context(), "somebody", mailbox.NewBox().Put); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		m.Close()
		if err := m.Open(t.Context(), "somebody else", mailbox.NewBox().Put); !errors.Is(err, context.Canceled) {
			t.Errorf("Open: %v", err)
		}
		m.Close() // waits for what was begun
		if n := opened.Load(); n != 1 {
			t.Errorf("%d connections were opened, want the one from before Close", n)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("Close took %v, and the connection had ended", took)
		}
	})
}

// Where the server takes no more connections for now, all who wait poll, until the last of them
// has gone: one that stopped before would hear nothing. Then it is tried again.
func TestWordsAreTriedAgainWhenTheLastWaiterHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := 0
		m := mailbox.New(func(ctx context.Context, m *mailbox.Mailbox) error {
			if opened++; opened == 1 {
				return mailbox.ErrNoWordsNow
			}
			m.Ready("a channel")
			<-ctx.Done()
			return ctx.Err()
		})
		defer m.Close()
		open := func(value string) {
			if err := m.Open(t.Context(), value, mailbox.NewBox().Put); err != nil {
				t.Fatal(err)
			}
		}
		open("the first")
		open("the last")
		m.Drop("the first")
		if !m.Silent() {
			t.Error("one has gone, and the other one polls no more")
		}
		m.Drop("the last")
		if open("a later one"); m.Silent() || m.Channel() != "a channel" {
			t.Errorf("nobody waited any more, and a later one polls: %v; words go to %q", m.Silent(), m.Channel())
		}
	})
}

// A process keeps its connection for as long as somebody waits.
func TestNobodyWaitsForALockThatWasGrantedOrRefused(t *testing.T) {
	refused := errors.New("refused")
	for _, c := range []struct {
		grant driver.Grant
		err   error
	}{{driver.Grant{First: 1, Count: 1}, nil}, {driver.Grant{}, refused}} {
		m := mailbox.New(nil)
		ask := func(context.Context, bool) (driver.Grant, time.Duration, error) { return c.grant, time.Hour, c.err }
		grant, _, err := m.Acquire(t.Context(), "somebody", t.Context, ask)
		if grant != c.grant || !errors.Is(err, c.err) {
			t.Errorf("the store answers %v, %v, and Acquire %v, %v", c.grant, c.err, grant, err)
		}
		if !m.Idle() {
			t.Errorf("somebody waits after %v, %v", grant, err)
		}
	}
}

// question is one that a waiter has asked, and what it gets for it.
type question struct {
	grant driver.Grant
	err   error
}

// asks calls Acquire with what the store answers to one question after another, the last of
// them to all further ones, and returns which of these had a place in the queue.
func asks(ctx context.Context, m *mailbox.Mailbox, wait driver.Wait, answers ...question) (queued []bool, grant driver.Grant, err error) {
	grant, _, err = m.Acquire(ctx, "somebody", wait, func(_ context.Context, queue bool) (driver.Grant, time.Duration, error) {
		if len(queued) > 100_000 {
			return driver.Grant{}, 0, errors.New("it asks without an end")
		}
		a := answers[min(len(queued), len(answers)-1)]
		queued = append(queued, queue)
		return a.grant, time.Second, a.err
	})
	return queued, grant, err
}

// listening opens a connection on which nothing arrives.
func listening(ctx context.Context, m *mailbox.Mailbox) error {
	m.Ready("a channel")
	<-ctx.Done()
	return ctx.Err()
}

// Most locks are free: nobody listens for them. Once somebody listens, or words are known never
// to arrive, a Lock has its place in the queue with its first request. A TryLock never has one.
func TestAcquireQueuesWhenItHasToWait(t *testing.T) {
	granted, refused, taken := question{grant: driver.Grant{First: 1, Count: 1}}, question{err: errors.New("refused")}, question{}
	for _, c := range []struct {
		what    string
		others  bool // somebody waits already
		silent  bool
		try     bool
		answers []question
		want    []bool
	}{
		{"a free lock", false, false, false, []question{granted}, []bool{false}},
		{"a lock that is refused", false, false, false, []question{refused}, []bool{false}},
		{"a taken lock", false, false, false, []question{taken, taken, granted}, []bool{false, true, true}},
		{"a taken lock, then refused", false, false, false, []question{taken, refused}, []bool{false, true}},
		{"a lock beside other waiters", true, false, false, []question{taken, granted}, []bool{true, true}},
		{"a lock where words never arrive", false, true, false, []question{taken, granted}, []bool{true, true}},
		{"a try of a free lock", false, false, true, []question{granted}, []bool{false}},
		{"a try of a taken lock", false, false, true, []question{taken}, []bool{false}},
		{"a try beside other waiters", true, false, true, []question{taken}, []bool{false}},
		{"a try where words never arrive", false, true, true, []question{taken}, []bool{false}},
		{"a try that is refused", true, false, true, []question{refused}, []bool{false}},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := mailbox.New(listening)
			if c.silent {
				m = mailbox.New(nil)
			}
			defer m.Close()
			if c.others {
				if err := m.Open(t.Context(), "somebody else", mailbox.NewBox().Put); err != nil {
					t.Fatal(err)
				}
			}
			wait := driver.Wait(t.Context)
			if c.try {
				wait = nil
			}
			queued, grant, err := asks(t.Context(), m, wait, c.answers...)
			if !slices.Equal(queued, c.want) {
				t.Errorf("%s: requests with a place in the queue: %v, want %v", c.what, queued, c.want)
			}
			if last := c.answers[len(c.answers)-1]; grant != last.grant || !errors.Is(err, last.err) {
				t.Errorf("%s: %v, %v, want %v, %v", c.what, grant, err, last.grant, last.err)
			}
			if waited := slices.Contains(c.want, true); (m.Channel() != "") != (c.others || waited && !c.silent) {
				t.Errorf("%s: words go to %q", c.what, m.Channel())
			}
		})
	}
}

// A Lock that has said that the lock is taken waits in the context that it gets for that, which
// ends with its Locker, too.
func TestAcquireWaitsInTheContextOfTheWait(t *testing.T) {
	enough := errors.New("enough")
	for what, listen := range map[string]mailbox.Listen{
		"for a connection": func(ctx context.Context, _ *mailbox.Mailbox) error { <-ctx.Done(); return ctx.Err() },
		"for a word":       listening,
		"to ask again":     nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			m := mailbox.New(listen)
			defer m.Close()
			waiting, stop := context.WithCancelCause(t.Context())
			began := time.Now()
			time.AfterFunc(time.Hour, func() { stop(enough) })
			queued, grant, err := asks(t.Context(), m, func() context.Context { return waiting }, question{})
			if grant.Count > 0 || !errors.Is(err, enough) || time.Since(began) != time.Hour {
				t.Errorf("a wait %s that was ended after an hour: %v, %v after %v", what, grant, err, time.Since(began))
			}
			if slices.Contains(queued, true) != (what != "for a connection") {
				t.Errorf("a wait %s: requests with a place in the queue: %v", what, queued)
			}
			if !m.Idle() {
				t.Errorf("a wait %s has ended, and somebody waits", what)
			}
		})
	}
}

// Another program's key may have any number for its end, and a wait that wraps is none.
func TestTimeThatIsLeftOfALeaseNeitherWrapsNorLiesInThePast(t *testing.T) {
	for ms, want := range map[int64]time.Duration{math.MinInt64: 0, -1: 0, 0: 0, 1500: 1500 * time.Millisecond} {
		if got := mailbox.Left(ms); got != want {
			t.Errorf("%d milliseconds are %v, want %v", ms, got, want)
		}
	}
	if got := mailbox.Left(math.MaxInt64); got < 24*time.Hour || got+1000*mailbox.ClaimTime < got {
		t.Errorf("the longest time is %v", got)
	}
}
