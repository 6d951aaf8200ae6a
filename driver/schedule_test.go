package driver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/contract"
)

func TestLocksAcquiredAtDifferentTimesShareTheirRenewals(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		var locks []*locker.Lock
		for i := range 1000 {
			locks = append(locks, b.grant(t, fmt.Sprint(i)))
			time.Sleep(20 * time.Millisecond) // 20 s, two intervals, for all of them
		}
		pass(30 * time.Second) // the first rounds
		before := b.renewed()
		pass(100 * time.Second)
		rounds := b.renewals[before:]
		if len(rounds) != 10 {
			t.Errorf("%d renewals in ten intervals, want 10", len(rounds))
		}
		for i, names := range rounds {
			if len(names) != len(locks) {
				t.Errorf("round %d renewed %d locks, want all %d", i, len(names), len(locks))
			}
		}
		for _, l := range locks {
			wantHeld(t, l)
		}
	})
}

func TestALockIsNotRenewedBeforeHalfAnIntervalIsOver(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.grant(t, "first")
		pass(5 * time.Second)
		b.grant(t, "half")
		pass(time.Nanosecond)
		b.grant(t, "later")
		pass(5 * time.Second)
		if len(b.renewals) != 1 {
			t.Fatalf("renewed %v", b.renewals)
		}
		slices.Sort(b.renewals[0])
		if !slices.Equal(b.renewals[0], []string{"first", "half"}) {
			t.Errorf("the first round renewed %v", b.renewals[0])
		}
	})
}

func TestLocksWithoutRenewalAreNotTakenIntoABatch(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.grant(t, "by hand", locker.WithoutRenewal())
		b.grant(t, "renewed")
		pass(25 * time.Second)
		for _, names := range b.renewals {
			if !slices.Equal(names, []string{"renewed"}) {
				t.Errorf("renewed %v", names)
			}
		}
	})
}

func TestHeldLocksCostNoGoroutineAndLittleMemory(t *testing.T) {
	const n = 10_000
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprint(i)
		}
		locks := make([]*locker.Lock, n)
		goroutines, bytes := runtime.NumGoroutine(), liveBytes()
		for i, name := range names {
			locks[i] = b.grant(t, name)
		}
		each := (int64(liveBytes()) - int64(bytes)) / n
		if more := runtime.NumGoroutine() - goroutines; more > 5 {
			t.Errorf("%d goroutines more for %d locks", more, n)
		}
		t.Logf("%d bytes for each held lock", each)
		if each > 2048 {
			t.Errorf("%d bytes for each held lock, want under 2048", each)
		}
		pass(time.Minute)
		for _, l := range locks {
			wantHeld(t, l)
		}
	})
}

// liveBytes is the memory in use. What other tests have left is collected first.
func liveBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestEveryLockEndsAtItsOwnTimeAmongMany(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		type planned struct {
			lock *locker.Lock
			end  time.Time
		}
		var locks []planned
		start := time.Now()
		for i, ms := range rand.Perm(60_000)[:500] { // no two alike
			ttl := locker.MinTTL + time.Duration(ms)*time.Millisecond
			locks = append(locks, planned{b.grant(t, fmt.Sprint(i), locker.WithTTL(ttl), locker.WithoutRenewal()), start.Add(ttl - Drift(ttl))})
		}
		rand.Shuffle(len(locks), func(i, j int) { locks[i], locks[j] = locks[j], locks[i] })
		for _, p := range locks[:100] { // out of the middle of the heap
			if err := p.lock.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			if place(p.lock) != -1 {
				t.Fatalf("an unlocked lock is at %d of the heap", place(p.lock))
			}
			checkHeap(t, b.l)
		}
		locks = locks[100:]
		slices.SortFunc(locks, func(a, b planned) int { return a.end.Compare(b.end) })
		for _, p := range locks {
			lost := p.lock.Lost()
			if d := time.Until(p.end) - time.Nanosecond; d > 0 {
				time.Sleep(d)
			}
			select {
			case <-lost:
				t.Fatalf("lost %v early", time.Until(p.end))
			default:
			}
			<-lost
			if !time.Now().Equal(p.end) {
				t.Fatalf("lost %v late", time.Since(p.end))
			}
			checkHeap(t, b.l)
		}
		if len(b.l.schedule.heap) != 0 {
			t.Errorf("%d locks are left", len(b.l.schedule.heap))
		}
	})
}

// place is where l's lease is among its Locker's.
func place(l *locker.Lock) int {
	a := locker.HeldOf(contract.Key{}, l).(*turn[*hold]).lease
	a.locker.mu.Lock()
	defer a.locker.mu.Unlock()
	return a.index
}

// checkHeap fails the test unless every lock knows its place and no lock comes
// before the one above it.
func checkHeap(t *testing.T, l *Locker[*hold]) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, a := range l.schedule.heap {
		if a.index != i {
			t.Fatalf("the lease at %d believes that it is at %d", i, a.index)
		}
		if i > 0 && a.due < l.schedule.heap[(i-1)/2].due {
			t.Fatalf("the lease at %d comes before the one above it", i)
		}
		if lock := a.what.(*lease[*hold]); a.over || lock.turn.err != nil || a.due == 0 {
			t.Fatalf("lock %q is in the heap: error %v, next %v", lock.req.Name, lock.turn.err, a.due)
		}
	}
}

// Every operation at random times, with a store that is slow, refuses, forgets
// and hangs. What was lost must be lost at the latest when its validity ended.
func TestManyLocksUnderEverythingThatCanHappen(t *testing.T) {
	virtual(t, func(t *testing.T, c *clock) {
		b := newBackend()
		b.onRenew = func(ctx context.Context, _ string) error {
			switch rand.IntN(1000) {
			case 0:
				return &locker.LostError{Reason: locker.ReasonTakenOver}
			case 1:
				return silent(ctx, "")
			}
			time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
			if rand.IntN(4) == 0 {
				return errors.New("down")
			}
			return nil
		}
		var locks []*locker.Lock
		for i := range 3000 {
			switch n := rand.IntN(20); {
			case n < 10 || len(locks) == 0:
				ttl := time.Duration(100+rand.IntN(20_000)) * time.Millisecond
				opts := []locker.Option{locker.WithTTL(ttl)}
				if rand.IntN(4) == 0 {
					opts = append(opts, locker.WithoutRenewal())
				}
				if rand.IntN(4) == 0 {
					opts = append(opts, locker.WithMaxHold(time.Duration(1+rand.IntN(20_000))*time.Millisecond))
				}
				lasting := rand.IntN(4) == 0
				b.lasting = lasting
				locks = append(locks, b.grant(t, fmt.Sprint(i), opts...))
			case n < 13:
				_ = locks[rand.IntN(len(locks))].Unlock(t.Context())
			case n < 15:
				lose(locks[rand.IntN(len(locks))], locker.ReasonSessionEnded, nil)
			case n < 18:
				l := locks[rand.IntN(len(locks))]
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					_ = l.Renew(ctx)
				}()
			case n < 19 && i%100 == 0:
				c.jump(time.Duration(rand.IntN(5000)) * time.Millisecond)
			default:
				time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
			}
			checkHeap(t, b.l)
			checkEnds(t, b.l, locks)
		}
		b.answerRenewals(always(&locker.LostError{Reason: locker.ReasonForced}))
		pass(locker.MaxTTL)
		for _, l := range locks {
			if l.Err() == nil {
				t.Errorf("lock %q is held for ever", l.Name())
			}
		}
		if len(b.l.schedule.heap) != 0 {
			t.Errorf("%d locks are left", len(b.l.schedule.heap))
		}
	})
}

// checkEnds fails the test if a lock is believed in without a reason.
func checkEnds(t *testing.T, l *Locker[*hold], locks []*locker.Lock) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lock := range locks {
		held := locker.HeldOf(contract.Key{}, lock).(*turn[*hold])
		a := held.lease
		lasts := a.grant.Lasting && a.req.Renew
		switch end := a.req.Deadline(a.since); {
		case held.err != nil:
		case !lasts && (a.ends() == 0 || a.ends() > end):
			t.Fatalf("lock %q is believed in until %v, its lease is good until %v", lock.Name(), a.ends(), end)
		case held.maxEnd != 0 && (a.ends() == 0 || a.ends() > held.maxEnd):
			t.Fatalf("lock %q is believed in until %v, WithMaxHold allows %v", lock.Name(), a.ends(), held.maxEnd)
		case a.index < 0 && a.ends() != 0:
			t.Fatalf("nobody watches over lock %q", lock.Name())
		}
	}
}

func TestAnIdleLockerIsNotWokenUp(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		for range 3 {
			l := b.grant(t, "a")
			pass(3 * time.Second)
			if b.l.schedule.fires == 0 {
				t.Fatal("no timer watches over a held lock")
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			pass(longestSleep)
			if b.l.schedule.fires != 0 || b.l.schedule.timer.Stop() {
				t.Error("the timer runs though there are no locks")
			}
		}
	})
}

func TestLocksUnlockedSoonDoNotTouchTheTimer(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		_ = b.grant(t, "first").Unlock(t.Context())
		fires := b.l.schedule.fires
		for i := range 10 {
			time.Sleep(time.Millisecond)
			_ = b.grant(t, fmt.Sprint(i)).Unlock(t.Context())
		}
		if b.l.schedule.fires != fires {
			t.Errorf("the timer was moved from %v to %v", fires, b.l.schedule.fires)
		}
	})
}
