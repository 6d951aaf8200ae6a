package driver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/lockertest"
)

// told is what an observer was told.
type told struct {
	mu     sync.Mutex
	events []locker.Event
}

func (x *told) observe(e locker.Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.events = append(x.events, e)
}

// take returns what was told until now, once all has come to rest.
func (x *told) take() []locker.Event {
	synctest.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	events := x.events
	x.events = nil
	return events
}

// words are the events in words, with what is told beside.
func words(events []locker.Event) string {
	var all []string
	for _, e := range events {
		s := fmt.Sprintf("%v %d", e.Type, uint64(e.Token)+uint64(e.SharedToken))
		if took := e.Took.Round(time.Second); took > 0 {
			s += " " + took.String()
		}
		if e.Holder != "" {
			s += " " + e.Holder
		}
		if e.Reason != 0 {
			s += " " + e.Reason.Code()
		}
		if e.Err != nil {
			s += "!"
		}
		all = append(all, s)
	}
	return strings.Join(all, ", ")
}

func (x *told) want(t *testing.T, want string) []locker.Event {
	t.Helper()
	events := x.take()
	if got := words(events); got != want {
		t.Errorf("told  %s\nwant %s", got, want)
	}
	return events
}

func TestObserverIsToldOfALockFromTheCallToTheEnd(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		var all told
		other := mustLock(t, l.Another(), locker.WithHolder("other"))
		got := asking(t.Context(), locker.Observe(l, all.observe))
		time.Sleep(3 * time.Second)
		all.want(t, "waiting 0 other")
		mustUnlock(t, other)
		lock := granted(t, got)
		time.Sleep(5 * time.Second)
		mustUnlock(t, lock)
		for i, e := range all.want(t, fmt.Sprintf("granted %d 3s, released %d 5s", lock.Token(), lock.Token())) {
			if e.Name != "a" || e.Kind != locker.KindExclusive || e.Slot != -1 || e.Call == 0 || time.Since(e.Time) != time.Duration(1-i)*5*time.Second {
				t.Errorf("%+v", e)
			}
		}
	})
}

// The end of one turn is told before the beginning of the next.
func TestObserversShareALeaseAndHearOfEachTurn(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		var all told
		seen := locker.Observe(l, all.observe)
		first := mustLock(t, seen)
		a, b := asking(t.Context(), seen), asking(t.Context(), seen)
		calls := make(map[uint64]string)
		for _, e := range all.take() {
			calls[e.Call] += e.Type.String() + " "
			if e.Type == locker.EventWaiting && !strings.HasPrefix(e.Holder, "process ") {
				t.Errorf("it waits for %q", e.Holder)
			}
		}
		mustUnlock(t, first)
		mustUnlock(t, granted(t, a))
		mustUnlock(t, granted(t, b))
		n := first.Token()
		for _, e := range all.want(t, fmt.Sprintf("released %d, passed %d, released %d, passed %d, released %d", n, n+1, n+1, n+2, n+2)) {
			calls[e.Call] += e.Type.String() + " "
		}
		want := []string{"granted released ", "waiting passed released ", "waiting passed released "}
		var got []string
		for _, s := range calls {
			got = append(got, s)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("by call: %q", got)
		}
	})
}

func TestObserverIsToldOfACallThatGotNoLock(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		var all told
		seen, other := locker.Observe(l, all.observe), l.Another()
		held := mustLock(t, other, locker.WithHolder("other"))
		_, err := seen.TryLock(t.Context(), "a")
		if events := all.want(t, "failed 0!"); len(events) != 1 || !errors.Is(events[0].Err, locker.ErrTaken) || err.Error() != events[0].Err.Error() {
			t.Errorf("TryLock: %v, told %+v", err, events)
		}
		_, err = seen.Lock(t.Context(), "a", locker.WithWait(2*time.Second))
		if events := all.want(t, "waiting 0 other, cleaned_up 0, failed 0 2s!"); err == nil || !errors.Is(events[2].Err, locker.ErrTaken) {
			t.Errorf("Lock: %v", err)
		}
		if _, err := seen.Lock(t.Context(), ""); err == nil {
			t.Error("a name that is empty")
		}
		all.want(t, "") // nothing was asked
		mustUnlock(t, held)
		l.Link().Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := seen.Lock(ctx, "a"); !errors.Is(err, locker.ErrOutcomeUnknown) {
			t.Errorf("the network was cut: %v", err)
		}
		all.want(t, "failed 0 1s!")
		l.Link().Heal()
		time.Sleep(time.Minute)
		if events := all.take(); len(events) != 1 || events[0].Type != locker.EventCleanedUp || events[0].Err != nil {
			t.Errorf("after the network has healed: %s", words(events))
		}
	})
}

// slowToSay is a store that has not said who holds a lock when the call ends.
type slowToSay struct {
	*probe
	hold chan struct{}
}

func (s slowToSay) Inspect(context.Context, string) (locker.Info, error) {
	<-s.hold
	return locker.Info{Holder: "too late"}, nil
}

func TestWaitIsToldBeforeItsEndThoughNobodySaysWhomItIsFor(t *testing.T) {
	no := errors.New("no")
	for want, answer := range map[string]error{"waiting 0, granted 64": nil, "waiting 0, failed 0!": driver.Refused(no)} {
		synctest.Test(t, func(t *testing.T) {
			hold := make(chan struct{})
			p := &probe{acquire: func(_ context.Context, wait driver.Wait) error { wait(); return answer }}
			for _, l := range []*driver.Locker[*att]{driver.New("probe", p, driver.Options{}), driver.New("probe", slowToSay{p, hold}, driver.Options{})} {
				var all told
				p.token = 63
				_, err := l.Lock(t.Context(), "a", locker.WithObserver(all.observe))
				if !errors.Is(err, answer) {
					t.Error(err)
				}
				all.want(t, want)
				defer all.want(t, "")
			}
			close(hold)
		})
	}
}

// The second stands behind the first, whom the store tells.
func TestAllWhoWaitHearOfItWhenTheFirstDoes(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		var all told
		other := mustLock(t, l.Another(), locker.WithHolder("other"))
		l.Link().Delay(900 * time.Millisecond)
		seen := locker.Observe(l, all.observe)
		first := asking(t.Context(), seen)
		time.Sleep(time.Millisecond)
		second := asking(t.Context(), seen)
		time.Sleep(1700 * time.Millisecond)
		all.want(t, "")
		time.Sleep(200 * time.Millisecond)
		all.want(t, "waiting 0") // the second; the store is being asked whom the first waits for
		time.Sleep(2 * time.Second)
		all.want(t, "waiting 0 other")
		l.Link().Delay(0)
		mustUnlock(t, other)
		time.Sleep(2 * time.Second) // the message for the waiter is on its way
		mustUnlock(t, granted(t, first))
		mustUnlock(t, granted(t, second))
	})
}

// The writer came while its process asked for the readers' lock, and learns that it has it.
func TestWriterHearsThatItsOwnProcessReads(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		var all told
		l.Link().Delay(time.Second)
		reader := asking(t.Context(), l, locker.WithShared(), locker.WithHolder("reader"))
		time.Sleep(time.Second)
		writer := asking(t.Context(), l, locker.WithObserver(all.observe))
		time.Sleep(900 * time.Millisecond)
		all.want(t, "")
		time.Sleep(200 * time.Millisecond)
		all.want(t, "waiting 0 reader")
		l.Link().Delay(0)
		time.Sleep(2 * time.Second)
		mustUnlock(t, granted(t, reader))
		time.Sleep(2 * time.Second)
		mustUnlock(t, granted(t, writer))
	})
}

func TestPanicsOfTheClientAreTold(t *testing.T) {
	var all told
	p := &probe{}
	l, seen := driver.New("probe", p, driver.Options{}), locker.WithObserver(all.observe)
	lock, err := l.Lock(t.Context(), "a", seen)
	if err != nil {
		t.Fatal(err)
	}
	p.release = func() error { panic("a hook of the client's") }
	p.acquire = func(context.Context, driver.Wait) error { panic("a hook of the client's") }
	for _, f := range []func(){
		func() { _ = lock.Unlock(t.Context()) },
		func() { _, _ = l.Lock(t.Context(), "b", seen) },
	} {
		func() {
			defer func() { _ = recover() }()
			f()
		}()
	}
	_ = l.Close() // waits for the observers
	events := slices.DeleteFunc(all.events, func(e locker.Event) bool { return e.Type == locker.EventCleanedUp })
	if len(all.events)-len(events) != 2 {
		t.Errorf("of %d clean-ups observers were told of %d", 2, len(all.events)-len(events))
	}
	if got, want := words(events), fmt.Sprintf("granted %d, released %d!, failed 0!", lock.Token(), lock.Token()); got != want {
		t.Errorf("told  %s\nwant %s", got, want)
	}
}

func TestObserverIsToldOfRenewalsThatFailOrAreLate(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		var all told
		lock := mustLock(t, l, locker.WithObserver(all.observe))
		all.want(t, fmt.Sprintf("granted %d", lock.Token()))
		time.Sleep(12 * time.Second)
		all.want(t, "") // a renewal in time
		l.Link().Refuse(errors.New("no"))
		time.Sleep(20 * time.Second)
		l.Link().Refuse(nil)
		time.Sleep(5 * time.Second)
		failed := all.take()
		late := failed[len(failed)-1]
		for _, e := range failed[:len(failed)-1] {
			if e.Type != locker.EventNotRenewed || e.Err == nil || e.Left <= 0 || e.Left+e.Took > 30*time.Second || e.Took < 10*time.Second {
				t.Errorf("%+v", e)
			}
		}
		if late.Type != locker.EventRenewedLate || late.Err != nil || late.Took < 20*time.Second || len(failed) < 2 {
			t.Errorf("the last of %s", words(failed))
		}
		l.Link().Cut()
		<-lock.Lost()
		lost := all.take()
		if e := lost[len(lost)-1]; e.Type != locker.EventLost || e.Reason != locker.ReasonUnreachable || !errors.Is(e.Err, locker.ErrLost) || e.Took < 40*time.Second {
			t.Errorf("the last of %s", words(lost))
		}
		l.Link().Heal()
		time.Sleep(time.Minute)
		if events := all.take(); len(events) != 1 || events[0].Type != locker.EventCleanedUp {
			t.Errorf("after the loss: %s", words(events))
		}
		if err := lock.Unlock(t.Context()); !errors.Is(err, locker.ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
		all.want(t, "") // the end is told once
	})
}

func TestObserverIsToldWhyALockWasLost(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		var all told
		lock := mustLock(t, l, locker.WithObserver(all.observe), locker.WithMaxHold(3*time.Second))
		time.Sleep(4 * time.Second)
		n := lock.Token()
		all.want(t, fmt.Sprintf("granted %d, lost %d 3s max_hold!, cleaned_up 0", n, n))
		lock = mustLock(t, l, locker.WithObserver(all.observe))
		if broken, err := l.Break(t.Context(), "a"); !broken || err != nil {
			t.Fatal(broken, err)
		}
		err := lock.Unlock(t.Context()) // the store says it
		n = lock.Token()
		all.want(t, fmt.Sprintf("granted %d, lost %d forced!", n, n))
		if !errors.Is(err, locker.ErrLost) {
			t.Error(err)
		}
	})
}

func TestObserverIsToldOfReadersAndSlots(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		var all told
		seen := locker.Observe(l, all.observe)
		a, b := mustLock(t, seen, locker.WithShared()), mustLock(t, seen, locker.WithShared())
		n := uint64(a.SharedToken())
		mustUnlock(t, a)
		mustUnlock(t, b)
		all.want(t, fmt.Sprintf("granted %d, passed %d, released %d, released %d", n, n, n, n))
		a, b = mustLock(t, seen, locker.WithSlots(2)), mustLock(t, seen, locker.WithSlots(2))
		events := all.want(t, fmt.Sprintf("granted %d, granted %d", a.Token(), b.Token()))
		if events[0].Slot != 0 || events[1].Slot != 1 || events[0].Kind != locker.KindSlots {
			t.Errorf("%+v", events)
		}
		mustUnlock(t, a)
		mustUnlock(t, b)
	})
}

func TestUnlockThatFailsIsTold(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		var all told
		lock := mustLock(t, l, locker.WithObserver(all.observe))
		l.Link().Cut()
		err := lock.Unlock(t.Context())
		n := lock.Token()
		if events := all.want(t, fmt.Sprintf("granted %d, released %d 2s!", n, n)); events[1].Err.Error() != err.Error() {
			t.Errorf("Unlock: %v, told %v", err, events[1].Err)
		}
		time.Sleep(time.Minute)
		if events := all.take(); len(events) != 1 || events[0].Type != locker.EventCleanedUp || !errors.Is(events[0].Err, locker.ErrOutcomeUnknown) {
			t.Errorf("after a minute: %s", words(events))
		}
	})
}

// The observer hangs from its first event on, and the one beside it panics at each.
func TestObserverThatHangsOrPanicsHurtsNoLock(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		hold := make(chan struct{})
		var late, missed told
		hangs := locker.Observe(l, func(e locker.Event) { <-hold; late.observe(e) })
		seen := locker.Observe(hangs, func(e locker.Event) {
			if missed.observe(e); e.Type == locker.EventGranted {
				panic("a defect")
			}
		})
		began := time.Now()
		const locks = 2 * locker.MaxEvents
		for i := range locks {
			if i%1000 == 0 {
				synctest.Wait() // the one that panics is to miss nothing else
			}
			mustUnlock(t, mustLock(t, seen))
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the locks took %v", took)
		}
		events := missed.take()
		if len(events) != 2*locks {
			t.Errorf("%d events were told, want %d", len(events), 2*locks)
		}
		for i, e := range events {
			if want := i % 2; e.Missed != uint64(want) {
				t.Fatalf("event %d, %v, says that %d were missed", i, e.Type, e.Missed)
			}
		}
		if err := l.Close(); err != nil || time.Since(began) != 2*time.Second {
			t.Errorf("Close: %v after %v", err, time.Since(began))
		}
		close(hold)
		if n := len(late.take()); n < locker.MaxEvents || n > locker.MaxEvents+1 { // what waited, and the one that was being told
			t.Errorf("%d of %d events were told late", n, 2*locks)
		}
	})
}

func TestEventThatComesAfterMissedOnesSaysHowMany(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		hold := make(chan struct{})
		var late told
		seen := locker.Observe(l, func(e locker.Event) { <-hold; late.observe(e) })
		mustUnlock(t, mustLock(t, seen))
		synctest.Wait() // it is told of the first, and the second waits
		for range locker.MaxEvents/2 + 3 {
			mustUnlock(t, mustLock(t, seen))
		}
		close(hold)
		late.take()
		mustUnlock(t, mustLock(t, seen))
		if events := late.take(); len(events) != 2 || events[0].Missed != 7 || events[1].Missed != 0 {
			t.Errorf("%+v", events)
		}
	})
}

func TestObservedLockerIsWhatItWas(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		lock := mustLock(t, l, locker.WithHolder("me"))
		for _, wrapped := range []locker.Locker{locker.Observe(l, func(locker.Event) {}), locker.WithCounter(l, nil, 0)} {
			info, err := wrapped.(locker.Inspector).Inspect(t.Context(), "a")
			if err != nil || info.Holder != "me" {
				t.Errorf("Inspect: %+v, %v", info, err)
			}
			infos, err := wrapped.(locker.Lister).List(t.Context(), "")
			if err != nil || len(infos) != 1 {
				t.Errorf("List: %+v, %v", infos, err)
			}
			if infos, err := wrapped.(locker.Lister).List(t.Context(), "b"); err != nil || len(infos) != 0 {
				t.Errorf("List of what begins with b: %+v, %v", infos, err)
			}
			if broken, err := wrapped.(locker.Breaker).BreakHolder(t.Context(), "a", locker.Number(lock.Token())+1); broken || err != nil {
				t.Errorf("Break of a token that nobody has: %v, %v", broken, err)
			}
		}
		seen := locker.Observe(struct{ locker.Locker }{l}, func(locker.Event) {})
		_, inspect := seen.(locker.Inspector).Inspect(t.Context(), "a")
		_, broken := seen.(locker.Breaker).Break(t.Context(), "a")
		_, list := seen.(locker.Lister).List(t.Context(), "")
		for _, err := range []error{inspect, broken, list} {
			if !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("of a Locker that can do no more: %v", err)
			}
		}
	})
}

func TestNoObserverIsRefused(t *testing.T) {
	l := lockertest.New()
	if _, err := locker.Observe(l, nil).Lock(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "no observer") {
		t.Error(err)
	}
}

// Observers cost nothing where there are none.
func TestLockWithoutObserverAllocatesNoMoreForThem(t *testing.T) {
	p := &probe{}
	l := driver.New("probe", p, driver.Options{})
	ctx := context.Background()
	allocations := func(opts ...locker.Option) float64 {
		return testing.AllocsPerRun(1000, func() {
			lock, err := l.Lock(ctx, "a", opts...)
			if err != nil {
				t.Fatal(err)
			}
			_ = lock.Unlock(ctx)
		})
	}
	const most = 15 // as many as there were before there were observers
	if n := allocations(); n > most {
		t.Errorf("%v allocations for a lock and an unlock, want %d at most", n, most)
	}
}

func TestPanicsOfAnObserverAreCounted(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		var all told
		n := 0
		seen := locker.Observe(l, func(e locker.Event) {
			if n++; n <= 3 {
				panic("a defect")
			}
			all.observe(e)
		})
		mustUnlock(t, mustLock(t, seen))
		mustUnlock(t, mustLock(t, seen))
		if events := all.take(); len(events) != 1 || events[0].Missed != 3 {
			t.Errorf("%+v", events)
		}
	})
}
