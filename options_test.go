package locker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/lockertest"
)

// asked is one call of Do with two options, on a store in memory.
type asked struct {
	*testing.T
	locks, other *lockertest.Locker
	guard        fencing.Memory
	opts         []locker.Option
	began        time.Time
	events       []locker.EventType
}

// promise is what an option promises.
type promise struct {
	name   string
	option func(*asked) locker.Option
	before func(*asked)               // nothing is held; time may pass
	held   func(*asked, *locker.Lock) // right after the grant
	end    func(*asked, *locker.Lock) // time may pass
	after  func(*asked)               // right after Unlock
}

const ttl, least, most, wait, stays = 28 * time.Second, 26 * time.Second, time.Minute, 2 * time.Second, 5 * time.Second

var promises = []promise{
	{name: "WithTTL", option: func(*asked) locker.Option { return locker.WithTTL(ttl) }, held: func(x *asked, l *locker.Lock) {
		if left := time.Until(l.Deadline()); left > ttl || left < ttl-time.Second {
			x.Errorf("%v of the TTL of %v are left at the grant", left, ttl)
		}
	}},
	{name: "WithoutRenewal", option: func(*asked) locker.Option { return locker.WithoutRenewal() }, end: func(x *asked, l *locker.Lock) {
		deadline := l.Deadline()
		time.Sleep(11 * time.Second)
		if !l.Deadline().Equal(deadline) {
			x.Errorf("it was renewed: valid until %v, then %v", deadline, l.Deadline())
		}
	}},
	{name: "WithMaxHold", option: func(*asked) locker.Option { return locker.WithMaxHold(most) }, end: func(x *asked, l *locker.Lock) {
		<-l.Context().Done()
		var lost *locker.LostError
		errors.As(l.Err(), &lost)
		// Without renewal it ends with its lease, which is shorter.
		if held := time.Since(x.began); held > most || lost.Reason != locker.ReasonMaxHold && held > 30*time.Second {
			x.Errorf("it ended after %v: %v", held, lost)
		}
	}},
	{name: "WithMinValidity", option: func(*asked) locker.Option { return locker.WithMinValidity(least) }, before: func(x *asked) {
		x.locks.Link().Delay(2 * time.Second)
		defer func() {
			x.locks.Link().Delay(0)
			time.Sleep(time.Minute) // what is on its way arrives
		}()
		if err := x.do(nil); !errors.Is(err, locker.ErrUnavailable) {
			x.Errorf("granted with less than %v left: %v", least, err)
		}
	}},
	{name: "WithHolder", option: func(*asked) locker.Option { return locker.WithHolder("me") }, held: func(x *asked, _ *locker.Lock) {
		info, err := x.other.Inspect(x.Context(), "n")
		text := info.Holder
		if len(info.Holders) == 1 {
			text = info.Holders[0].Text
		}
		if text != "me" || err != nil {
			x.Errorf("Inspect shows %+v, %v", info, err)
		}
	}},
	{name: "WithGuard", option: func(x *asked) locker.Option { return locker.WithGuard(&x.guard, x.resources()...) }, held: func(x *asked, l *locker.Lock) {
		resource := "n"
		if l.Slot() >= 0 {
			resource = fmt.Sprintf("n/%d", l.Slot()) // in every release: a guard's store knows it
		}
		if err := x.guard.Check(x.Context(), resource, 1); !errors.Is(err, fencing.ErrStale) {
			x.Errorf("an earlier holder's write to %q: %v", resource, err)
		}
	}},
	{name: "WithWait", option: func(*asked) locker.Option { return locker.WithWait(wait) }, before: func(x *asked) {
		rivals := x.takeAll()
		began := time.Now()
		if err := x.do(nil); !errors.Is(err, locker.ErrTaken) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != wait {
			x.Errorf("a name that is taken, after %v: %v", time.Since(began), err)
		}
		for _, rival := range rivals {
			_ = rival.Unlock(x.Context())
		}
	}},
	{name: "WithMinHold", option: func(*asked) locker.Option { return locker.WithMinHold(stays) }, after: func(x *asked) {
		if time.Since(x.began) >= stays {
			return
		}
		_, err := x.other.TryLock(x.Context(), "n")
		lock, _ := x.other.Lock(x.Context(), "n")
		if held := time.Since(x.began); !errors.Is(err, locker.ErrTaken) || held < stays {
			x.Errorf("it was free after %v: %v", held, err)
		}
		_ = lock.Unlock(x.Context())
	}},
	{name: "WithShared", option: func(*asked) locker.Option { return locker.WithShared() }, held: func(x *asked, l *locker.Lock) {
		if l.SharedToken() == 0 || l.Token() != 0 {
			x.Errorf("number %d, token %d", l.SharedToken(), l.Token())
		}
	}},
	{name: "WithSlots", option: func(*asked) locker.Option { return locker.WithSlots(2) }, held: func(x *asked, l *locker.Lock) {
		if l.Slot() != 0 || l.Token() == 0 {
			x.Errorf("slot %d, token %d", l.Slot(), l.Token())
		}
	}},
	{name: "WithObserver", option: func(x *asked) locker.Option {
		return locker.WithObserver(func(e locker.Event) { x.events = append(x.events, e.Type) })
	}, held: func(x *asked, _ *locker.Lock) {
		if synctest.Wait(); !slices.Contains(x.events, locker.EventGranted) {
			x.Errorf("told of %v", x.events)
		}
	}, after: func(x *asked) {
		if synctest.Wait(); !slices.Contains(x.events, locker.EventReleased) && !slices.Contains(x.events, locker.EventLost) {
			x.Errorf("told of %v", x.events)
		}
	}},
}

// do calls Do with the two options.
func (x *asked) do(f func(*locker.Lock)) error {
	return locker.Do(x.Context(), x.locks, "n", func(_ context.Context, l *locker.Lock) error {
		if f != nil {
			f(l)
		}
		return nil
	}, x.opts...)
}

// resources are what the guard is to claim: with slots there are none to name.
func (x *asked) resources() []string {
	if strings.Contains(x.Name(), "WithSlots") {
		return nil
	}
	return []string{"n"}
}

// takeAll takes the name from x, with all its slots if x wants one.
func (x *asked) takeAll() (all []*locker.Lock) {
	opts, n := []locker.Option(nil), 1
	if strings.Contains(x.Name(), "WithSlots") {
		opts, n = []locker.Option{locker.WithSlots(2)}, 2
	}
	for range n {
		l, err := x.other.TryLock(x.Context(), "n", opts...)
		if err != nil {
			x.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

// refused are the pairs that contradict each other, and what the error says.
var refused = map[[2]string]string{
	{"WithMinHold", "WithShared"}: "works with exclusive locks only",
	{"WithMinHold", "WithSlots"}:  "works with exclusive locks only",
	{"WithShared", "WithSlots"}:   "exclude each other",
}

func TestEveryPairOfOptionsWorksOrIsRefused(t *testing.T) {
	for i, first := range promises {
		for _, second := range promises[i+1:] {
			t.Run(first.name+"+"+second.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { pair(t, first, second) })
			})
		}
	}
}

func pair(t *testing.T, first, second promise) {
	locks := lockertest.New()
	x := &asked{T: t, locks: locks, other: locks.Another()}
	x.opts = []locker.Option{first.option(x), second.option(x)}
	if words, ok := refused[[2]string{first.name, second.name}]; ok {
		if err := x.do(nil); err == nil || !strings.Contains(err.Error(), words) || locks.Link().Requests() != 0 {
			t.Errorf("%v, after %d requests", err, locks.Link().Requests())
		}
		return
	}
	both := []promise{first, second}
	for range 3 { // so that earlier holders' tokens are not the first
		if l, err := x.other.TryLock(t.Context(), "n"); err != nil || l.Unlock(t.Context()) != nil {
			t.Fatal(err)
		}
	}
	for _, p := range both {
		if p.before != nil {
			p.before(x)
		}
	}
	x.began = time.Now()
	err := x.do(func(l *locker.Lock) {
		for _, p := range both {
			if p.held != nil {
				p.held(x, l)
			}
		}
		for _, p := range both {
			if p.end != nil && l.Err() == nil {
				p.end(x, l)
			}
		}
	})
	if err != nil && !errors.Is(err, locker.ErrLost) {
		t.Error(err)
	}
	for _, p := range both {
		if p.after != nil {
			p.after(x)
		}
	}
}

func TestALockerThatIsWrappedCanDoWhatItCouldBefore(t *testing.T) {
	locks, name := lockertest.New(), "n"
	for what, wrap := range map[string]func(locker.Locker) locker.Locker{
		"an observer": func(l locker.Locker) locker.Locker { return locker.Observe(l, func(locker.Event) {}) },
		"a counter":   func(l locker.Locker) locker.Locker { return locker.WithCounter(l, new(fencing.Memory), 0) },
	} {
		held := must[*locker.Lock](t)(locks.TryLock(t.Context(), name))
		type all interface {
			locker.Inspector
			locker.Breaker
			locker.Lister
		}
		l, bare := wrap(locks).(all), wrap(steps{Locker: locks}).(all)
		info, err := l.Inspect(t.Context(), name)
		if other, unsupported := bare.Inspect(t.Context(), name); !info.Held || err != nil || other.Held || !errors.Is(unsupported, errors.ErrUnsupported) {
			t.Errorf("with %s: Inspect: %+v, %v; of a Locker without it: %+v, %v", what, info, err, other, unsupported)
		}
		list, err := l.List(t.Context(), "")
		if other, unsupported := bare.List(t.Context(), ""); len(list) != 1 || err != nil || other != nil || !errors.Is(unsupported, errors.ErrUnsupported) {
			t.Errorf("with %s: List: %+v, %v; of a Locker without it: %+v, %v", what, list, err, other, unsupported)
		}
		if broken, unsupported := bare.Break(t.Context(), name); broken || !errors.Is(unsupported, errors.ErrUnsupported) {
			t.Errorf("with %s: Break of a Locker without it: %v, %v", what, broken, unsupported)
		}
		for token, want := range map[fencing.Token]bool{held.Token() + 1: false, held.Token(): true} {
			if broken, err := l.BreakHolder(t.Context(), name, locker.Number(token)); broken != want || err != nil {
				t.Errorf("with %s: Break of %d, and %d has the lock: %v, %v", what, token, held.Token(), broken, err)
			}
		}
		wantFree(t, locks.Another(), name)
		_ = held.Unlock(t.Context()) // it is lost
	}
}

// A reader's number comes from the counter, too, so readers of one process each draw their
// own, and no lease is shared in memory.
func TestCounterNumbersReadersAndSlots(t *testing.T) {
	var counter fencing.Memory
	locks := locker.WithCounter(lockertest.New(), &counter, 0)
	first, err := locks.TryLock(t.Context(), "n", locker.WithShared())
	if err != nil {
		t.Fatal(err)
	}
	second, err := locks.TryLock(t.Context(), "n", locker.WithShared())
	if err != nil {
		t.Fatal(err)
	}
	if first.SharedToken() != 1 || second.SharedToken() != 2 || first.Token() != 0 {
		t.Errorf("readers have numbers %d and %d, and token %d", first.SharedToken(), second.SharedToken(), first.Token())
	}
	slot, err := locks.TryLock(t.Context(), "slots", locker.WithSlots(2))
	if err != nil {
		t.Fatal(err)
	}
	if next, _ := counter.Next(t.Context(), "slots"); slot.Token() != 1 || slot.SharedToken() != 0 || slot.Slot() != 0 || next != 2 {
		t.Errorf("slot %d has token %d, number %d", slot.Slot(), slot.Token(), slot.SharedToken())
	}
}
