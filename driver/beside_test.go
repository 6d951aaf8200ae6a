package driver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/contract"
)

// read locks name as a reader.
func (b *backend) read(t testing.TB, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	return b.grant(t, name, append(opts, locker.WithShared())...)
}

// line is a call of Lock in a goroutine of its own, with what it returned.
func (b *backend) lockLater(t testing.TB, name string, opts ...locker.Option) <-chan *locker.Lock {
	granted := make(chan *locker.Lock, 1)
	go func() {
		lock, err := b.l.Lock(t.Context(), name, opts...)
		if err != nil {
			t.Error(err)
		}
		granted <- lock
	}()
	return granted
}

func unlock(t testing.TB, locks ...*locker.Lock) {
	t.Helper()
	for _, l := range locks {
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestReadersJoinALeaseForAShortTimeAndTheLastGivesItBack(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		first := b.read(t, "a")
		pass(shareTime - time.Millisecond)
		second := b.read(t, "a")
		pass(time.Millisecond)
		third := b.read(t, "a")
		if LeaseOf(first) != LeaseOf(second) || first.SharedToken() != second.SharedToken() || first.SharedToken() == 0 || first.Token() != 0 {
			t.Errorf("readers within %v have numbers %d and %d", shareTime, first.SharedToken(), second.SharedToken())
		}
		if LeaseOf(first) == LeaseOf(third) || b.token != 2 {
			t.Errorf("a reader after %v has lease %d, as the first; the store has granted %d", shareTime, LeaseOf(third), b.token)
		}
		unlock(t, first)
		pass(time.Second)
		if second.Err() != nil || b.releases() != 0 {
			t.Errorf("when one of two readers had unlocked, the other says %v, and the store saw %d releases", second.Err(), b.releases())
		}
		unlock(t, second, third)
		if want := []string{"a", "a"}; !slices.Equal(b.released, want) || len(b.l.lines) != 0 {
			t.Errorf("the store saw releases of %q, want %q; %d names are left", b.released, want, len(b.l.lines))
		}
	})
}

// own1000 is a counter with numbers that no lease here has.
type own1000 struct{}

func (own1000) Next(context.Context, string) (fencing.Token, error) { return 1000, nil }

func TestReadersWithOtherOptionsAskForALeaseOfTheirOwn(t *testing.T) {
	own := func(opts ...locker.Option) func(*backend) locker.Locker {
		return func(b *backend) locker.Locker { return locker.With(b.l, opts...) }
	}
	for _, other := range []func(*backend) locker.Locker{
		own(locker.WithTTL(time.Minute)), own(locker.WithoutRenewal()), own(locker.WithHolder("x")), own(locker.WithMaxHold(time.Hour)),
		func(b *backend) locker.Locker { return locker.WithCounter(b.l, own1000{}, 0) },
	} {
		virtual(t, func(t *testing.T, _ *clock) {
			b := newBackend()
			first := b.read(t, "a")
			pass(10 * time.Millisecond)
			second, err := other(b).Lock(t.Context(), "a", locker.WithShared())
			if err != nil {
				t.Fatal(err)
			}
			pass(10 * time.Millisecond)
			third := b.read(t, "a") // the latest lease is not its own, and it does not look further
			if LeaseOf(first) == LeaseOf(second) || LeaseOf(second) == LeaseOf(third) {
				t.Errorf("readers with different options have leases %d, %d, %d", LeaseOf(first), LeaseOf(second), LeaseOf(third))
			}
			unlock(t, first, second, third)
		})
	}
}

func TestReadersBehindOneThatAsksJoinItsLeaseUpToTheFirstWriter(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.onAcquire = func(context.Context) error { time.Sleep(time.Second); return nil }
		var readers []<-chan *locker.Lock
		for range 3 {
			readers = append(readers, b.lockLater(t, "a", locker.WithShared()))
			pass(time.Millisecond)
		}
		writer := b.lockLater(t, "a")
		pass(time.Millisecond)
		late := b.lockLater(t, "a", locker.WithShared())
		tried := make(chan error, 2)
		for _, opts := range [][]locker.Option{{locker.WithShared()}, nil} {
			pass(time.Millisecond)
			go func() {
				_, err := b.l.TryLock(t.Context(), "a", opts...)
				tried <- err
			}()
		}
		first := <-readers[0]
		for _, granted := range readers[1:] {
			lock := <-granted
			if LeaseOf(lock) != LeaseOf(first) {
				t.Errorf("a reader behind one that asked has lease %d, want %d", LeaseOf(lock), LeaseOf(first))
			}
			unlock(t, lock)
		}
		for range 2 {
			if err := <-tried; !errors.Is(err, locker.ErrTaken) {
				t.Errorf("TryLock behind a writer that waits for readers: %v", err)
			}
		}
		unlock(t, first)
		lock := <-writer
		if len(late) != 0 {
			t.Error("a reader passed a writer that came first")
		}
		unlock(t, lock)
		unlock(t, <-late)
	})
}

func TestWriterBesideReadersOfItsProcessIsToldAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		first := b.read(t, "a")
		alone := b.grant(t, "alone")
		asked := b.token
		if _, err := b.l.TryLock(t.Context(), "alone"); !errors.Is(err, locker.ErrTaken) || strings.Contains(err.Error(), "shares") {
			t.Errorf("TryLock of a lock that this process does not share: %v", err)
		}
		if _, err := b.l.TryLock(t.Context(), "a"); !errors.Is(err, locker.ErrTaken) || !strings.Contains(err.Error(), "this process shares it") || b.token != asked {
			t.Errorf("TryLock beside a reader: %v, after %d requests", err, b.token-asked)
		}
		b.onAcquire = func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.l.Lock(ctx, "a"); !errors.Is(err, locker.ErrTaken) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock beside a reader, whose context ended in the silence of the store: %v", err)
		}
		b.onAcquire = func(context.Context) error { return Mismatch(&Request{Name: "a"}, locker.KindSlots, 2) }
		if _, err := b.l.Lock(t.Context(), "a"); !errors.Is(err, locker.ErrMismatch) { // it does not ask again
			t.Errorf("Lock beside a reader, where the store has slots: %v", err)
		}
		unlock(t, first, alone)
	})
}

// A writer stands behind a reader that asks. When that is granted, the writer knows that
// the lock is taken, whatever the store may say to it.
func TestWriterBehindAReaderHearsThatTheLockIsTaken(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		asked := 0
		b.onAcquire = func(ctx context.Context) error {
			if asked++; asked > 1 {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			time.Sleep(time.Second)
			return nil
		}
		reader := b.lockLater(t, "a", locker.WithShared())
		pass(time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := b.l.Lock(ctx, "a"); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("Lock behind a reader, whose context ended in the silence of the store: %v", err)
		}
		b.l.NotYet("a", nil, errors.New("of nobody")) // nobody is in front
		unlock(t, <-reader)
	})
}

func TestLossOfASharedLeaseIsThatOfAllItsReadersAndOfNobodyElse(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		first, joined, other := b.read(t, "a"), b.read(t, "a"), b.read(t, "a", locker.WithHolder("x"))
		gone := b.read(t, "a", locker.WithHolder("x"))
		unlock(t, gone)
		lose(joined, locker.ReasonTakenOver, nil)
		wantReason(t, first, locker.ReasonTakenOver)
		wantReason(t, joined, locker.ReasonTakenOver)
		if other.Err() != nil || !errors.Is(gone.Err(), locker.ErrUnlocked) {
			t.Errorf("another lease's reader says %v, one that had unlocked %v", other.Err(), gone.Err())
		}
		pass(time.Second)
		next := b.read(t, "a", locker.WithHolder("x"))
		unlock(t, other, next)
		if len(b.l.lines) != 0 {
			t.Errorf("%d names are left", len(b.l.lines))
		}
	})
}

// A renewal is under way when the first reader unlocks, and the lease ends before it is
// answered. The store has the share again then, and nobody believes in it.
func TestRenewalOfASharedLeaseThatWasLostMeanwhileIsCleanedUp(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		first, joined := b.read(t, "a"), b.read(t, "a")
		b.answerRenewals(func(context.Context, string) error { time.Sleep(time.Minute); return nil })
		pass(11 * time.Second)
		unlock(t, first)
		pass(time.Minute)
		wantReason(t, joined, locker.ReasonExpired)
		pass(time.Minute)
		if b.releases() != 2 { // at the loss, and of what the renewal has left
			t.Errorf("the store saw %d clean-ups, want 2", b.releases())
		}
	})
}

func TestReaderThatHasUnlockedHearsNothingOfALossThatComesAfterwards(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		first, joined := b.read(t, "a"), b.read(t, "a")
		unlock(t, first)
		lose(joined, locker.ReasonTakenOver, nil)
		wantReason(t, joined, locker.ReasonTakenOver)
		if !errors.Is(first.Err(), locker.ErrUnlocked) || isLost(first) {
			t.Errorf("a reader that had unlocked says %v", first.Err())
		}
	})
}

// A writer of this process asks the store, and another one stands behind it, when a reader
// is lost or unlocks.
func TestEndOfAReaderLeavesTheLineAsItIs(t *testing.T) {
	for _, end := range []func(*locker.Lock){
		func(l *locker.Lock) { lose(l, locker.ReasonExpired, nil) },
		func(l *locker.Lock) { _ = l.Unlock(context.Background()) },
	} {
		endOfAReader(t, end)
	}
}

func endOfAReader(t *testing.T, end func(*locker.Lock)) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		reader := b.read(t, "a")
		asking := 0
		b.onAcquire = func(context.Context) error {
			asking++
			defer func() { asking-- }()
			if asking > 1 {
				t.Error("two calls of one line ask the store at the same time")
			}
			time.Sleep(time.Second)
			return nil
		}
		first := b.lockLater(t, "a")
		pass(time.Millisecond)
		second := b.lockLater(t, "a", locker.WithHolder("x"))
		pass(time.Millisecond)
		end(reader)
		unlock(t, <-first)
		unlock(t, <-second)
	})
}

// A backend that gives a reader many tokens does not know better.
func TestSharedLeaseIsNotPassedOn(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.count = 64
		first := b.grant(t, "a", locker.WithSlots(2))
		b.onAcquire = func(context.Context) error { time.Sleep(time.Second); return nil }
		asks := b.lockLater(t, "a", locker.WithSlots(2))
		pass(time.Millisecond)
		behind := b.lockLater(t, "a", locker.WithSlots(2))
		pass(time.Millisecond)
		unlock(t, first)
		if pass(0); len(asks)+len(behind) != 0 || b.releases() != 1 {
			t.Errorf("a slot was given to the next in line, and %d were given back", b.releases())
		}
		unlock(t, <-asks, <-behind)
	})
}

func TestSlotsOfOneProcessAreLeasesOfTheirOwn(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		slot := func() *locker.Lock { return b.grant(t, "a", locker.WithSlots(3)) }
		first, second, third := slot(), slot(), slot()
		if first.Token() == 0 || first.Token() >= second.Token() || first.Slot() != 0 || first.SharedToken() != 0 {
			t.Errorf("slot %d has token %d, the next grant %d", first.Slot(), first.Token(), second.Token())
		}
		lose(second, locker.ReasonForced, nil)
		wantReason(t, second, locker.ReasonForced)
		if err := errors.Join(first.Err(), third.Err()); err != nil {
			t.Errorf("the other slots: %v", err)
		}
		_, err := b.l.TryLock(t.Context(), "a", locker.WithSlots(4))
		if !errors.Is(err, locker.ErrMismatch) || !strings.Contains(err.Error(), "3 slots") || !strings.Contains(err.Error(), "4 slots") {
			t.Errorf("another number of slots: %v", err)
		}
		if _, err := b.l.TryLock(t.Context(), "a"); !errors.Is(err, locker.ErrMismatch) || !strings.Contains(err.Error(), "exclusive") {
			t.Errorf("no slot at all: %v", err)
		}
		unlock(t, first, third)
		unlock(t, b.grant(t, "a", locker.WithSlots(4)))
	})
}

// The store says that the name is held in another way. Those behind may want that way.
func TestMismatchEndsAWaitAndDoesNotFailThoseBehind(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		asked := 0
		b.onAcquire = func(context.Context) error {
			if asked++; asked > 1 {
				return nil
			}
			time.Sleep(time.Second)
			return Mismatch(&Request{Name: "a"}, locker.KindSlots, 2)
		}
		failed := make(chan error)
		go func() {
			_, err := b.l.Lock(t.Context(), "a")
			failed <- err
		}()
		pass(time.Millisecond)
		behind := b.lockLater(t, "a", locker.WithSlots(2))
		err := <-failed
		if !errors.Is(err, locker.ErrMismatch) || errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrTaken) {
			t.Errorf("Lock of a name with slots: %v", err)
		}
		unlock(t, <-behind)
	})
}

func TestKindThatTheStoreDoesNotHaveIsRefusedBeforeItIsAsked(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.exclusive = true
		for want, opt := range map[string]locker.Option{
			"no shared locks": locker.WithShared(), `"a/0" to "a/3"`: locker.WithSlots(4),
		} {
			if _, err := b.l.Lock(t.Context(), "a", opt); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), want) || len(b.ended) != 0 {
				t.Errorf("%v", err)
			}
		}
	})
}

func TestLimitCountsFromNow(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.keeps = true
		l := b.grant(t, "a")
		pass(time.Minute)
		req := &contract.Settings{MaxHold: time.Hour, MinHold: 30 * time.Minute}
		if err := locker.HeldOf(contract.Key{}, l).Limit(req); err != nil {
			t.Fatal(err)
		}
		pass(time.Hour - time.Second)
		if l.Err() != nil {
			t.Error(l.Err())
		}
		pass(time.Second)
		wantReason(t, l, locker.ReasonMaxHold)
		l = b.grant(t, "b")
		pass(time.Minute)
		if err := locker.HeldOf(contract.Key{}, l).Limit(req); err != nil {
			t.Fatal(err)
		}
		unlock(t, l)
		if last := b.kept[len(b.kept)-1]; last != 30*time.Minute {
			t.Errorf("the store was asked to keep the lock for %v", last)
		}
		l = b.grant(t, "c", locker.WithoutRenewal())
		least := 25 * time.Second
		pass(10 * time.Second)
		if err := locker.HeldOf(contract.Key{}, l).Limit(&contract.Settings{MinValidity: &least}); !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("Limit where 20 s are left and 25 s are wanted: %v", err)
		}
		b.keeps = false
		if err := locker.HeldOf(contract.Key{}, l).Limit(&contract.Settings{MinHold: 25 * time.Second}); !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("Limit where 20 s are left and are to be kept for 25 s: %v", err)
		}
		unlock(t, l)
		if err := locker.HeldOf(contract.Key{}, l).Limit(req); !errors.Is(err, locker.ErrUnlocked) {
			t.Errorf("Limit after Unlock: %v", err)
		}
	})
}

func TestLeaseOfReadersStaysWhileTheFirstOfThemReads(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		first, second := b.read(t, "a"), b.read(t, "a")
		unlock(t, second)
		pass(time.Minute)
		wantHeld(t, first)
		if b.releases() != 0 {
			t.Errorf("the store saw %d releases while a reader had the lock", b.releases())
		}
		unlock(t, first)
		if b.releases() != 1 {
			t.Errorf("the store saw %d releases in the end", b.releases())
		}
	})
}

func TestMaximumHoldOfALimitEndsTheLockInTime(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		l := b.grant(t, "a")
		if err := locker.HeldOf(contract.Key{}, l).Limit(&contract.Settings{MaxHold: time.Second}); err != nil {
			t.Fatal(err)
		}
		lost := l.Lost()
		pass(time.Second)
		select {
		case <-lost:
		default:
			t.Error("at the end of its maximum hold Lost is not closed")
		}
	})
}
