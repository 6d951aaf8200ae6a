package register_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/register"
	"github.com/lockstile/locker/register/registertest"
)

var errLost = errors.New("the answer was lost")

// The interleaving: the first request of an attempt, which creates the record, is on its way for long. Its caller gives up, and is told
// that nothing is left. Then the request arrives. Unless the withdrawal has written something, though there was nothing
// to remove, the store still has no record: the request is carried out, and nobody knows of the lock.
func TestRequestThatArrivesAfterItsWithdrawalIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{Store: new(registertest.Memory)}
		l := process(t, s, aged)
		var late func() error
		s.swap(func(name, version string, record []byte) (string, error) {
			s.swap(nil)
			late = func() error { _, err := s.Store.Swap(t.Context(), name, version, record); return err }
			return "", errLost
		})
		if _, err := l.TryLock(t.Context(), "a"); !errors.Is(err, errLost) || errors.Is(err, locker.ErrOutcomeUnknown) {
			t.Fatal(err)
		}
		if err := late(); !errors.Is(err, register.ErrChanged) {
			t.Errorf("the late request: %v", err)
		}
		unlock(t, lock(t, process(t, s, aged), "a", locker.WithWait(time.Second)))
	})
}

// The interleaving: another process queues, so the holder's renewal is refused. It reads, and a replica that is behind answers with a
// record from before it had the lock. It must not believe that it has lost it.
func TestOldRecordIsNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{Store: new(registertest.Memory)}
		a, b := process(t, s, aged), process(t, s, aged)
		unlock(t, lock(t, a, "a"))
		old, _ := s.Store.Get(t.Context(), "a")
		held := lock(t, a, "a", locker.WithoutRenewal())
		queue(t, b, "a")
		var answers atomic.Int32
		s.get(func(name string) (register.Entry, error) {
			if answers.Add(1) <= 3 {
				return old, nil
			}
			return s.Store.Get(t.Context(), name)
		})
		if err := held.Renew(t.Context()); err != nil {
			t.Error(err)
		}
		if answers.Load() <= 3 {
			t.Error("the old record was not asked for: nothing is tested")
		}
	})
}

// queue has l wait for a name until the test ends, and returns when it has its place.
func queue(t *testing.T, l *register.Locker, name string, opts ...locker.Option) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	before, err := l.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if got, err := l.Lock(ctx, name, opts...); err == nil {
			_ = got.Unlock(context.Background())
		}
	}()
	for info := before; info.Waiters == before.Waiters; time.Sleep(time.Millisecond) {
		if info, err = l.Inspect(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
}

// The store was restored from a backup: who was there then holds the lock again. All calls fail until everybody who had one has
// lost it; then the record is taken as it is. Meanwhile the store is not asked all the time.
func TestRestoredBackupIsAcceptedWhenAllLocksHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{Store: new(registertest.Memory)}
		l := process(t, s, aged)
		unlock(t, lock(t, l, "a", locker.WithTTL(time.Minute)))
		old, _ := s.Store.Get(t.Context(), "a")
		unlock(t, lock(t, l, "a"))
		other := new(registertest.Memory)
		if _, err := other.Swap(t.Context(), "a", "", old.Record); err != nil {
			t.Fatal(err)
		}
		s.Store = other
		s.counts()
		began := time.Now()
		for {
			got, err := l.TryLock(t.Context(), "a")
			if err == nil {
				unlock(t, got)
				break
			}
			if !errors.Is(err, locker.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		gets, _, _ := s.counts()
		if passed := time.Since(began); passed < 10*time.Second || passed > 3*time.Minute || gets > 400 {
			t.Errorf("the record was taken after %v and %d questions", passed, gets)
		}
	})
}

// The interleaving: a replica is behind while a process asks, which gives up. Half a minute later, in which it asked nothing, its first answer
// comes from a replica that is behind once more. That is no backup: nobody knows what the store had meanwhile. The old record says that
// another process has the lock.
func TestTwoOldAnswersAreNoBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{Store: new(registertest.Memory)}
		a, b := process(t, s, aged), process(t, s, aged)
		held := lock(t, b, "a", locker.WithTTL(time.Second))
		old, _ := s.Store.Get(t.Context(), "a")
		unlock(t, held)
		unlock(t, lock(t, a, "a", locker.WithTTL(time.Second)))
		s.get(func(string) (register.Entry, error) { return old, nil })
		if _, err := a.Inspect(t.Context(), "a"); !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("a copy that is behind was believed: %v", err)
		}
		time.Sleep(30 * time.Second)
		answers := 0
		s.get(func(name string) (register.Entry, error) {
			if answers++; answers == 1 {
				return old, nil
			}
			return s.Store.Get(t.Context(), name)
		})
		if info, err := a.Inspect(t.Context(), "a"); err != nil || info.Held {
			t.Errorf("%+v, %v", info, err)
		}
	})
}

// The interleaving: others write all the time, so a call has no place in the queue when its Locker is closed. It must not take the lock after that.
func TestCallThatHasNoPlaceEndsWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{Store: new(registertest.Memory)}
		l := process(t, s, aged)
		s.swap(func(string, string, []byte) (string, error) { return "", register.ErrChanged })
		answer := make(chan error, 1)
		go func() {
			_, err := l.Lock(context.Background(), "a")
			answer <- err
		}()
		time.Sleep(10 * time.Second)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		s.swap(nil)
		if err := <-answer; !errors.Is(err, locker.ErrClosed) {
			t.Errorf("after Close Lock returned the error %v", err)
		}
	})
}

// A client that sends a request again by itself is told that the record has changed, by its own first request.
func TestSwapThatIsSentTwiceIsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{Store: new(registertest.Memory)}
		l := process(t, s, aged)
		s.swap(func(name, version string, record []byte) (string, error) {
			if version, err := s.Store.Swap(t.Context(), name, version, record); err != nil {
				return version, err
			}
			return s.Store.Swap(t.Context(), name, version, record)
		})
		held := lock(t, l, "a")
		if err := held.Renew(t.Context()); err != nil {
			t.Error(err)
		}
		unlock(t, held)
		if _, swaps, _ := s.counts(); swaps != 3 {
			t.Errorf("%d requests for a lock, a renewal and a release", swaps)
		}
	})
}

// The answer to a release is lost, and before it is sent again another process writes. It finds that it has released the lock.
func TestReleaseThatIsTriedAgainIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{Store: new(registertest.Memory)}
		a, b := process(t, s, aged), process(t, s, aged)
		held := lock(t, a, "a")
		s.swap(func(name, version string, record []byte) (string, error) {
			s.swap(nil)
			if _, err := s.Store.Swap(t.Context(), name, version, record); err != nil {
				t.Error(err)
			}
			if _, err := b.TryLock(t.Context(), "a"); err != nil {
				t.Error(err)
			}
			return "", register.ErrChanged
		})
		unlock(t, held)
	})
}

// What this process knows says that the lock is taken. It is free since.
func TestNoIsAnswerToAQuestionThatWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{Store: new(registertest.Memory)}
		a, b := process(t, s, aged), process(t, s, aged)
		held := lock(t, a, "a")
		if _, err := b.TryLock(t.Context(), "a"); !errors.Is(err, locker.ErrTaken) {
			t.Fatal(err)
		}
		unlock(t, held)
		got, err := b.TryLock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if broken, err := a.Break(t.Context(), "a"); !broken || err != nil { // a knows a record in which it is free
			t.Errorf("%v, %v", broken, err)
		}
		if err := got.Renew(t.Context()); !errors.Is(err, locker.ErrLost) {
			t.Error(err)
		}
	})
}

// The answer to a waiter's first request is lost: it has a place. When it gives up, its place goes.
func TestPlaceOfARequestWhoseAnswerWasLostIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{Store: new(registertest.Memory)}
		a, b := process(t, s, aged), process(t, s, aged)
		held := lock(t, a, "a")
		s.swap(func(name, version string, record []byte) (string, error) {
			s.swap(nil)
			_, _ = s.Store.Swap(t.Context(), name, version, record)
			return "", errLost
		})
		if _, err := b.Lock(t.Context(), "a", locker.WithWait(time.Second)); err == nil {
			t.Fatal("two have the lock")
		}
		if info, err := a.Inspect(t.Context(), "a"); err != nil || info.Waiters != 0 {
			t.Errorf("%+v, %v", info, err)
		}
		unlock(t, held)
	})
}

// A record that is none of ours, or of a later version, is an error that says so, and stays as it is.
func TestRecordThatIsNotOursIsLeftAlone(t *testing.T) {
	ours := `{"lockstile":1,"name":"a","order":"1","nonce":"x","last":"5"`
	hold := func(fields string) string {
		return ours + `,"holds":[{"id":"i","beat":"b","ttl":1000,"kind":"exclusive","number":"5"` + fields + `}]}`
	}
	for what, text := range map[string]string{
		"text":               `the owner is 10.0.0.1`,
		"another's":          `{"owner":"10.0.0.1"}`,
		"a later format":     `{"lockstile":2,"name":"a","order":"1","nonce":"x","last":"5"}`,
		"a field more":       ours + `,"more":1}`,
		"another name's":     `{"lockstile":1,"name":"A","order":"1","nonce":"x","last":"5"}`,
		"no nonce":           `{"lockstile":1,"name":"a","order":"1","last":"5"}`,
		"something after it": ours + `} {}`,
		"numbers at the end": `{"lockstile":1,"name":"a","order":"1","nonce":"x","last":"4611686018427387905"}`,
		"a number too great": hold(`,"text":"x","slot":0,"idle":0,"kept":false`)[:len(ours)] + `,"holds":[{"id":"i","beat":"b","ttl":1000,"kind":"exclusive","number":"6"}]}`,
		"an idle too great":  hold(`,"idle":1013`),
		"a twin":             ours + `,"holds":[{"id":"i","beat":"b","ttl":1000,"kind":"exclusive","number":"5"}],"queue":[{"id":"i","beat":"b","ttl":1000,"kind":"exclusive"}]}`,
		"slots of nothing":   ours + `,"holds":[{"id":"i","beat":"b","ttl":1000,"kind":"slots","number":"5"}]}`,
		"a kind of its own":  ours + `,"holds":[{"id":"i","beat":"b","ttl":1000,"kind":"optimistic","number":"5"}]}`,
		"no TTL":             ours + `,"holds":[{"id":"i","beat":"b","kind":"exclusive","number":"5"}]}`,
	} {
		m := new(registertest.Memory)
		if _, err := m.Swap(t.Context(), "a", "", []byte(text)); err != nil {
			t.Fatal(err)
		}
		l := process(t, m, aged)
		for i := range 2 {
			_, err := l.TryLock(t.Context(), "a")
			if !errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), `"a"`) {
				t.Errorf("%s, try %d: %v", what, i, err)
			}
		}
		// A later version may hold a lock there.
		if infos, err := l.List(t.Context(), ""); !errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), `"a"`) {
			t.Errorf("%s: a list has %v, %v", what, infos, err)
		}
		if e, _ := m.Get(t.Context(), "a"); string(e.Record) != text {
			t.Errorf("%s was changed to %s", what, e.Record)
		}
	}
	m := new(registertest.Memory)
	if _, err := m.Swap(t.Context(), "a", "", []byte(hold(``))); err != nil {
		t.Fatal(err)
	}
	if _, err := process(t, m, aged).TryLock(t.Context(), "a"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("a record of ours: %v", err)
	}
}

// careless is a Store that ignores conditions, like some servers, or whose versions are changed on the way.
type careless struct {
	*registertest.Memory
	ignores func(version string) bool
}

func (c careless) Swap(ctx context.Context, name, version string, record []byte) (string, error) {
	if c.ignores == nil { // it never finds the version that it has
		version += "?"
	} else if c.ignores(version) {
		e, _ := c.Get(ctx, name)
		version = e.Version
	}
	return c.Memory.Swap(ctx, name, version, record)
}

func TestStoreThatIgnoresConditionsIsRefused(t *testing.T) {
	for what, ignores := range map[string]func(version string) bool{
		"all":         func(string) bool { return true },
		"of creation": func(version string) bool { return version == "" },
		"of change":   func(version string) bool { return version != "" },
		"at no time":  nil,
	} {
		m := careless{new(registertest.Memory), ignores}
		for range 2 { // the probe's record is there the second time
			if _, err := process(t, m, aged).TryLock(soon(t), "a"); !errors.Is(err, locker.ErrRefused) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if e, _ := m.Get(t.Context(), "a"); e.Version != "" {
			t.Errorf("%s: something was written: %s", what, e.Record)
		}
	}
}

// hesitant is a Store that refuses a write now and then at the version that it has, as a server may where another write is under way.
type hesitant struct {
	*registertest.Memory
	writes atomic.Int64
}

func (h *hesitant) Swap(ctx context.Context, name, version string, record []byte) (string, error) {
	if h.writes.Add(1)%3 > 0 {
		return "", register.ErrChanged
	}
	return h.Memory.Swap(ctx, name, version, record)
}

func TestStoreThatRefusesAWriteNowAndThenIsTaken(t *testing.T) {
	h := &hesitant{Memory: new(registertest.Memory)}
	for range 3 { // the probe's record is there from the second time on
		unlock(t, lock(t, process(t, h, aged), "a"))
	}
}

// lagging is a Store whose probe's record is an old one for a while.
type lagging struct {
	*registertest.Memory
	old   register.Entry
	until time.Time
}

func (l *lagging) Get(ctx context.Context, name string) (register.Entry, error) {
	if name == register.ProbeName && time.Now().Before(l.until) {
		return l.old, nil
	}
	return l.Memory.Get(ctx, name)
}

// The interleaving: another process has probed just now, and this one reads of a replica that is behind. Its writes are refused
// until the replica has caught up.
func TestStoreWhoseCopiesAreBehindIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(registertest.Memory)
		unlock(t, lock(t, process(t, m, aged), "a"))
		old, _ := m.Get(t.Context(), register.ProbeName)
		unlock(t, lock(t, process(t, m, aged), "a"))
		unlock(t, lock(t, process(t, &lagging{m, old, time.Now().Add(time.Second)}, aged), "a"))
	})
}

// A record grows with what others ask for. Over the limit nobody comes in, but all get out.
func TestRecordHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(registertest.Memory)
		l := process(t, m, register.Options{Age: true, Limit: 16384})
		var held []*locker.Lock
		text := locker.WithHolder(strings.Repeat("x", 200))
		var err error
		for range 100 {
			var got *locker.Lock
			if got, err = l.TryLock(t.Context(), "a", locker.WithSlots(100), text); err != nil {
				break
			}
			held = append(held, got)
		}
		if err == nil || !strings.Contains(err.Error(), "16384") || len(held) < 5 {
			t.Errorf("after %d: %v", len(held), err)
		}
		for _, h := range held {
			if err := h.Renew(t.Context()); err != nil {
				t.Error(err)
			}
			unlock(t, h)
		}
	})
}

// slow is a Store whose writes take a tenth of a second, one after another.
type slow struct {
	*registertest.Memory
	busy            chan struct{}
	writes, refused *atomic.Int64
}

func newSlow() slow {
	return slow{new(registertest.Memory), make(chan struct{}, 1), new(atomic.Int64), new(atomic.Int64)}
}

func (s slow) Swap(ctx context.Context, name, version string, record []byte) (string, error) {
	s.busy <- struct{}{}
	defer func() { <-s.busy }()
	time.Sleep(100 * time.Millisecond)
	next, err := s.Memory.Swap(ctx, name, version, record)
	if s.writes.Add(1); err != nil {
		s.refused.Add(1)
	}
	return next, err
}

// Each renewal is a write. Readers come in for as long as the store has time for those of all, and then nobody loses a lock.
func TestCrowdIsRefusedBeforeRenewalsComeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		var held []*locker.Lock
		var err error
		for range 20 {
			var got *locker.Lock
			if got, err = process(t, s, aged).Lock(soon(t), "a", locker.WithShared(), locker.WithTTL(3*time.Second)); err != nil {
				break
			}
			held = append(held, got)
		}
		if err == nil || !strings.Contains(err.Error(), "use longer TTLs") || len(held) < 3 {
			t.Errorf("after %d readers: %v", len(held), err)
		}
		got, err := process(t, newSlow(), aged).Lock(soon(t), "a", locker.WithTTL(time.Second))
		if err != nil {
			t.Fatalf("who is alone has to manage, however busy the store is then: %v", err)
		}
		held = append(held, got)
		s.writes.Store(0)
		s.refused.Store(0)
		time.Sleep(20 * time.Second)
		if all, refused := s.writes.Load(), s.refused.Load(); refused > all/3 {
			t.Errorf("of %d writes the store has refused %d", all, refused)
		}
		for i, h := range held {
			if err := h.Err(); err != nil {
				t.Errorf("lock %d: %v", i, err)
			}
			unlock(t, h)
		}
	})
}

// A process that has seen nothing finds a record whose holder is dead. With Age it knows so at once.
func TestFreshProcessFindsADeadHolder(t *testing.T) {
	for _, opts := range []register.Options{aged, {}} {
		synctest.Test(t, func(t *testing.T) {
			m := new(registertest.Memory)
			s := &script{Store: m}
			dead := process(t, s, opts)
			lock(t, dead, "a", locker.WithTTL(time.Second))
			s.swap(func(string, string, []byte) (string, error) { return "", errLost })
			time.Sleep(900 * time.Millisecond)
			if _, err := process(t, m, opts).TryLock(t.Context(), "a"); !errors.Is(err, locker.ErrTaken) {
				t.Errorf("aged %v, before the end: %v", opts.Age, err)
			}
			time.Sleep(200 * time.Millisecond)
			_, err := process(t, m, opts).TryLock(t.Context(), "a")
			if opts.Age != (err == nil) {
				t.Errorf("aged %v, after the end: %v", opts.Age, err)
			}
			time.Sleep(5 * time.Second) // as much as the wall clocks of two machines may differ by
			if got, err := process(t, m, opts).TryLock(t.Context(), "a"); !opts.Age && err != nil || opts.Age && err == nil {
				t.Errorf("aged %v, later: %v, %v", opts.Age, got, err)
			}
		})
	}
}

// Counts: what a lock and its release cost.
func TestCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(registertest.Memory)
		s := &script{Store: m}
		w := watching{s, m}
		a, b := process(t, w, aged), process(t, w, aged)
		check := func(what string, most [3]int) {
			t.Helper()
			gets, swaps, refused := s.counts()
			if gets > most[0] || swaps-refused > most[1] || refused > most[2] {
				t.Errorf("%s: %d Gets, %d Swaps, %d refused; it may be %v", what, gets, swaps-refused, refused, most)
			}
		}
		unlock(t, lock(t, a, "a"))
		s.counts()
		unlock(t, lock(t, a, "a"))
		check("the same process again", [3]int{0, 2, 0})
		for range 3 {
			unlock(t, lock(t, b, "a"))
			unlock(t, lock(t, a, "a"))
		}
		s.counts()
		unlock(t, lock(t, b, "a"))
		check("two processes in turn", [3]int{1, 2, 0})

		// One hand-over after another: each waits while the other has the lock.
		held := lock(t, a, "a")
		for i, next := range []*register.Locker{b, a, b, a, b, a} {
			if i == 2 {
				s.counts()
			}
			got := make(chan *locker.Lock)
			go func() { got <- lock(t, next, "a") }()
			time.Sleep(time.Millisecond)
			unlock(t, held)
			held = <-got
			time.Sleep(time.Millisecond)
		}
		check("4 hand-overs", [3]int{4, 12, 0})
		unlock(t, held)
	})
}

// A million names that were used once are not remembered.
func TestNamesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, new(registertest.Memory), aged)
		for i := range 1000 {
			unlock(t, lock(t, l, fmt.Sprint(i), locker.WithTTL(time.Second)))
		}
		for range 3 {
			time.Sleep(2 * time.Minute)
			unlock(t, lock(t, l, "a", locker.WithTTL(time.Second)))
		}
		if n := l.Remembered(); n > 10 {
			t.Errorf("%d names are remembered", n)
		}
	})
}

// The first in the queue is suspended when its turn comes. The next one takes the lock when the first had time enough.
func TestWaiterThatDoesNotClaimItsTurnIsOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(registertest.Memory)
		s := &script{Store: m}
		a, slow, c := process(t, m, aged), process(t, s, aged), process(t, m, aged)
		held := lock(t, a, "a")
		queue(t, slow, "a")
		s.swap(func(string, string, []byte) (string, error) { return "", errLost })
		s.get(func(string) (register.Entry, error) { return register.Entry{}, errLost })
		got := make(chan *locker.Lock)
		go func() { got <- lock(t, c, "a") }()
		time.Sleep(time.Second)
		unlock(t, held)
		began := time.Now()
		unlock(t, <-got)
		if passed := time.Since(began); passed < 3*time.Second || passed > 4*time.Second {
			t.Errorf("it was overtaken after %v", passed)
		}
	})
}

// Records can be read by people and by other languages.
func TestRecordIsReadable(t *testing.T) {
	m := new(registertest.Memory)
	l := process(t, m, aged)
	held := lock(t, l, "a", locker.WithHolder("me"))
	e, _ := m.Get(t.Context(), "a")
	var fields struct {
		Lockstile int
		Holds     []struct{ Text, Number string }
	}
	if err := json.Unmarshal(e.Record, &fields); err != nil || fields.Lockstile != 1 || len(fields.Holds) != 1 ||
		fields.Holds[0].Text != "me" || fields.Holds[0].Number != fmt.Sprint(uint64(held.Token())) {
		t.Errorf("%s: %v", e.Record, err)
	}
}

// The interleaving: a release is sent just before the lock's end, is refused because somebody has queued, and the question that follows
// takes until after the end. The process takes its own holder for dead, says that the lock was lost, and leaves it there.
func TestReleaseThatCrossesTheEndFreesTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{Store: new(registertest.Memory)}
		a, b := process(t, s, register.Options{}), process(t, s.Store, register.Options{})
		held := lock(t, a, "a", locker.WithTTL(time.Second), locker.WithoutRenewal())
		time.Sleep(900 * time.Millisecond)
		queue(t, b, "a")
		s.get(func(name string) (register.Entry, error) {
			time.Sleep(200 * time.Millisecond)
			return s.Store.Get(t.Context(), name)
		})
		_ = held.Unlock(t.Context())
		if info, err := b.Inspect(t.Context(), "a"); err != nil || info.Held && info.Token == held.Token() {
			t.Errorf("it is left behind: %+v, %v", info, err)
		}
	})
}

// One connection is silent: that of a question, or of another slot's request. What this process holds goes on.
func TestSilentRequestHoldsUpNoRenewal(t *testing.T) {
	for _, what := range []string{"a question", "another attempt"} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{Store: new(registertest.Memory)}
			l := process(t, s, aged)
			held := lock(t, l, "a", locker.WithTTL(time.Second), locker.WithSlots(2))
			once := func() bool { s.get(nil); s.swap(nil); return true }
			switch what {
			case "a question":
				s.get(func(string) (register.Entry, error) {
					once()
					time.Sleep(4 * time.Second)
					return register.Entry{}, errLost
				})
				go func() { _, _ = l.Inspect(t.Context(), "a") }()
			default:
				s.swap(func(string, string, []byte) (string, error) {
					once()
					time.Sleep(4 * time.Second)
					return "", errLost
				})
				go func() { _, _ = l.TryLock(t.Context(), "a", locker.WithTTL(time.Second), locker.WithSlots(2)) }()
			}
			time.Sleep(4500 * time.Millisecond)
			if err := held.Err(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			unlock(t, held)
			time.Sleep(time.Minute)
		})
	}
}

// badWatch is a Store whose watch tells nothing, and ends at once or never.
type badWatch struct {
	*registertest.Memory
	fails  bool
	begins atomic.Int32
}

func (b *badWatch) Watch(ctx context.Context, _ string, _ func(register.Entry)) error {
	b.begins.Add(1)
	if !b.fails {
		<-ctx.Done()
	}
	return errLost
}

// A watch that tells nothing costs a waiter some seconds, and one that cannot begin is not begun all the time.
func TestWaiterIsServedThoughItsWatchTellsNothing(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := &badWatch{Memory: new(registertest.Memory), fails: fails}
			a, b := process(t, s, aged), process(t, s, aged)
			held := lock(t, a, "a", locker.WithTTL(time.Hour))
			got := make(chan *locker.Lock)
			go func() { got <- lock(t, b, "a", locker.WithTTL(time.Hour)) }()
			time.Sleep(20 * time.Second)
			began := time.Now()
			unlock(t, held)
			unlock(t, <-got)
			if passed := time.Since(began); passed > 6*time.Second {
				t.Errorf("fails %v: it was served after %v", fails, passed)
			}
			if n := s.begins.Load(); n > 50 {
				t.Errorf("fails %v: the watch was begun %d times in half a minute", fails, n)
			}
		})
	}
}

// The Store panics while locks are renewed: that is an error like others.
func TestPanicOfTheStoreInARenewalEndsNoProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{Store: new(registertest.Memory)}
		l := process(t, s, aged)
		held := lock(t, l, "a", locker.WithTTL(time.Second))
		s.swap(func(string, string, []byte) (string, error) { s.swap(nil); panic("in the client") })
		time.Sleep(2 * time.Second)
		if err := held.Err(); err != nil {
			t.Error(err)
		}
		unlock(t, held)
	})
}

// A process is suspended for long, with two slots of one name. When it wakes it gives up both at once: what it writes of one while the other
// leaves can be read.
func TestWhatIsWrittenCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(registertest.Memory)
		s := &script{Store: m}
		l := process(t, s, aged)
		for range 2 {
			lock(t, l, "a", locker.WithSlots(2), locker.WithTTL(time.Second))
		}
		s.swap(func(string, string, []byte) (string, error) { return "", errLost })
		time.Sleep(time.Hour)
		s.swap(nil)
		for range 20 {
			time.Sleep(time.Second)
			unlock(t, lock(t, l, "a", locker.WithSlots(2), locker.WithTTL(time.Second)))
		}
		unlock(t, lock(t, process(t, m, aged), "a", locker.WithSlots(2)))
	})
}

// A Swap takes long once. The store is quick again, so nobody is kept out for that.
func TestSlowRequestKeepsNobodyOutForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{Store: new(registertest.Memory)}
		a, b := process(t, s, aged), process(t, s.Store, aged)
		s.swap(func(name, version string, record []byte) (string, error) {
			s.swap(nil)
			time.Sleep(4900 * time.Millisecond)
			return s.Store.Swap(t.Context(), name, version, record)
		})
		unlock(t, lock(t, a, "other"))
		held := lock(t, b, "a", locker.WithSlots(9), locker.WithTTL(time.Second))
		var err error
		for range 100 {
			var got *locker.Lock
			if got, err = a.TryLock(t.Context(), "a", locker.WithSlots(9), locker.WithTTL(time.Second)); err == nil {
				unlock(t, got)
				break
			}
		}
		if err != nil {
			t.Error(err)
		}
		unlock(t, held)
	})
}

// A replica goes on with the record that was replaced. A renewal that is refused for that asks again after pauses.
func TestRefusedWritesPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{Store: new(registertest.Memory)}
		a, b := process(t, s, aged), process(t, s.Store, aged)
		held := lock(t, a, "a", locker.WithTTL(3*time.Second), locker.WithoutRenewal())
		old, _ := s.Store.Get(t.Context(), "a")
		queue(t, b, "a")
		s.get(func(string) (register.Entry, error) {
			time.Sleep(time.Millisecond)
			return old, nil
		})
		s.counts()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := held.Renew(ctx); err == nil {
			t.Error("it was renewed at a version that is gone")
		}
		if gets, swaps, _ := s.counts(); gets > 60 || swaps > 60 {
			t.Errorf("%d questions and %d writes in two seconds", gets, swaps)
		}
		s.get(nil)
		unlock(t, held)
	})
}
