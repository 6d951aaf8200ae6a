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
	"github.com/lockstile/locker/internal/contract"
	"github.com/lockstile/locker/lockertest"
)

// probe is a Store with functions that a test sets.
type probe struct {
	mu      sync.Mutex
	begun   int
	ended   int
	with    int
	left    bool
	none    bool // a bug: no grant and no error
	token   uint64
	acquire func(ctx context.Context, wait driver.Wait) error
	release func() error
	refusal error // of each Withdraw
}

type att struct{ req *driver.Request }

func (p *probe) Guarantees() locker.Guarantees { return locker.Guarantees{} }
func (p *probe) Begin(req *driver.Request) (*att, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun++
	return &att{req}, nil
}
func (p *probe) Acquire(ctx context.Context, _ *att, wait driver.Wait) (driver.Grant, driver.Left, error) {
	left := driver.Nothing
	if p.left {
		left = driver.Unsure
	}
	since := driver.Now()
	if p.acquire != nil {
		if err := p.acquire(ctx, wait); err != nil {
			return driver.Grant{}, left, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.none {
		return driver.Grant{}, left, nil
	}
	p.token += 64
	return driver.Grant{First: p.token - 63, Count: 64, Since: since}, left, nil
}
func (p *probe) Renew(_ context.Context, hs []*att) []error { return make([]error, len(hs)) }
func (p *probe) Release(context.Context, *att, time.Duration) error {
	if p.release != nil {
		return p.release()
	}
	return nil
}
func (p *probe) Withdraw(context.Context, *att) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.with++
	return p.refusal
}
func (p *probe) End(*att) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended++
}

func TestEndForAnAttemptWhoseCtxHadEnded(t *testing.T) {
	p := &probe{}
	l := driver.New("probe", p, driver.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = l.Lock(ctx, "a")
	_ = l.Close()
	_, _ = l.TryLock(t.Context(), "a")
	if p.begun != p.ended {
		t.Errorf("%d attempts begun, %d ended", p.begun, p.ended)
	}
}

// picky is a Store that cannot do what it is asked for.
type picky struct{ *probe }

var errPicky = errors.New("not with this store")

func (picky) Begin(*driver.Request) (*att, error) { return nil, errPicky }

func TestRequestThatTheStoreCannotMeetAsksNothing(t *testing.T) {
	p := &probe{acquire: func(context.Context, driver.Wait) error {
		t.Error("the store was asked")
		return nil
	}}
	l := driver.New("picky", picky{p}, driver.Options{})
	if lock, err := l.TryLock(t.Context(), "a"); lock != nil || !errors.Is(err, errPicky) || errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("got %v, %v", lock, err)
	}
}

func TestPanicInAcquireLetsTheNextOneAsk(t *testing.T) {
	p := &probe{left: true}
	p.acquire = func(context.Context, driver.Wait) error { panic("a hook of the client's") }
	l := driver.New("probe", p, driver.Options{})
	func() {
		defer func() { _ = recover() }() // as net/http does
		_, _ = l.Lock(context.Background(), "a")
	}()
	p.acquire = nil
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if lock, err := l.TryLock(ctx, "a"); err != nil {
		t.Errorf("TryLock: %v", err)
	} else {
		mustUnlock(t, lock)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := l.Lock(ctx, "a"); err != nil {
		t.Errorf("Lock: %v", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.with == 0 {
		t.Error("what the attempt may have left was not withdrawn")
	}
}

func TestPanicInReleaseIsCleanedUp(t *testing.T) {
	p := &probe{left: true}
	p.release = func() error { panic("a hook of the client's") }
	l := driver.New("probe", p, driver.Options{})
	lock, err := l.Lock(context.Background(), "a")
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = lock.Unlock(context.Background())
	}()
	time.Sleep(100 * time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.with == 0 || p.ended == 0 {
		t.Errorf("the lock is left in the store for its TTL: withdrawn %d times, ended %d times", p.with, p.ended)
	}
}

// Nobody holds the lock, and no caller that was told so is there any more.
func TestSilenceIsNotCalledTakenForHours(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		held := mustLock(t, l, locker.WithTTL(10*time.Second))
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { // a new caller each second, with three seconds of patience
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Second):
				}
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
					defer cancel()
					_, _ = l.Lock(ctx, "a")
				})
			}
		})
		time.Sleep(2 * time.Second)
		l.Link().Cut()
		time.Sleep(time.Hour)
		if held.Err() == nil {
			t.Error("held?")
		}
		_, err := l.TryLock(t.Context(), "a")
		if errors.Is(err, locker.ErrTaken) || !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("TryLock an hour after the store went silent: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		if _, err = l.Lock(ctx, "a"); errors.Is(err, locker.ErrTaken) {
			t.Errorf("Lock an hour after the store went silent: %v", err)
		}
		close(stop)
		wg.Wait()
		l.Link().Heal()
	})
}

func TestTryLockIsNotStarvedByImpatientLocks(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		l.Link().Cut()
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Millisecond):
				}
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					_, _ = l.Lock(ctx, "a")
				})
			}
		})
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		once := trying(ctx, l)
		asked := l.Link().Requests()
		time.Sleep(10 * time.Minute)
		select {
		case o := <-once:
			t.Logf("returned: %v", o.err)
		default:
			t.Errorf("TryLock is not back after 10 minutes; %d requests were sent by others meanwhile", l.Link().Requests()-asked)
		}
		cancel()
		close(stop)
		wg.Wait()
		l.Link().Heal()
	})
}

func TestLoseIsForItsOwnLocks(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		b := l.Another()
		held := mustLock(t, b)
		if l.Lose("a") {
			t.Error("Lose says that a goroutine of this Locker held it")
		}
		if lock, err := l.TryLock(t.Context(), "a"); err == nil && held.Err() == nil {
			t.Errorf("two holders: %d and %d", held.Token(), lock.Token())
		}
	})
}

func TestLoseLeavesWhatTakeTook(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		l.Take("a")
		if l.Lose("a") {
			t.Error("there was none")
		}
		if _, err := l.TryLock(t.Context(), "a"); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("taken until Free: %v", err)
		}
	})
}

func TestLockWhoseMaxHoldIsOverIsNotGranted(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		l.Link().Delay(50 * time.Millisecond)
		lock, err := l.TryLock(t.Context(), "a", locker.WithMaxHold(80*time.Millisecond))
		l.Link().Delay(0)
		if err == nil {
			t.Errorf("a lock is granted and is already: %v", lock.Err())
		}
	})
}

var _ = synctest.Wait

// Two clean-ups of a lease meet: the second waits at a mutex for the first, which
// waits for the store, and a bubble's clock stands still for ever. Run it with a
// -timeout.
func TestTwoCleanUpsOfALeaseHoldNoMutex(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		lock := mustLock(t, l, locker.WithTTL(time.Second), locker.WithoutRenewal())
		l.Link().Delay(600 * time.Millisecond)
		_ = lock.Renew(t.Context()) // answered after 1.2 s: lost at 0.99 s, and renewed in the store
		time.Sleep(30 * time.Second)
		l.Link().Delay(0)
	})
}

func TestStoreThatCannotLookSaysSo(t *testing.T) {
	l := driver.New("probe", &probe{}, driver.Options{})
	_, inspected := l.Inspect(t.Context(), "a")
	_, broken := l.Break(t.Context(), "a")
	_, listed := l.List(t.Context(), "")
	for _, err := range []error{inspected, broken, listed} {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("got %v", err)
		}
	}
}

// seer is a Store that can look.
type seer struct {
	*probe
	asked []string
	err   error
}

func (s *seer) Inspect(_ context.Context, name string) (locker.Info, error) {
	s.asked = append(s.asked, "inspect "+name)
	return locker.Info{Held: true, Token: 7}, s.err
}

func (s *seer) Break(_ context.Context, name string, number locker.Number) (bool, error) {
	s.asked = append(s.asked, fmt.Sprint("break ", name, number))
	return true, s.err
}

func (s *seer) List(_ context.Context, prefix string) ([]locker.Info, error) {
	s.asked = append(s.asked, "list "+prefix)
	return []locker.Info{{Name: "jobs/b"}, {Name: "jobs/a"}}, s.err
}

func TestStoreIsAskedForWhatItSeesAndItsErrorsAreHandedOn(t *testing.T) {
	s := &seer{probe: &probe{}}
	l := driver.New("seer", s, driver.Options{})
	if info, err := l.Inspect(t.Context(), "a"); err != nil || info.Name != "a" || info.Token != 7 || len(info.Holders) != 1 || info.Holders[0].Number != 7 || info.Holders[0].Slot != -1 {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	if broken, err := l.Break(t.Context(), "a"); !broken || err != nil {
		t.Errorf("Break: %v, %v", broken, err)
	}
	if broken, err := l.BreakHolder(t.Context(), "a", 7); !broken || err != nil {
		t.Errorf("BreakHolder: %v, %v", broken, err)
	}
	if broken, err := l.BreakHolder(t.Context(), "a", 0); broken || err == nil || !strings.Contains(err.Error(), "number 0") {
		t.Errorf("BreakHolder of nobody: %v, %v", broken, err)
	}
	if infos, err := l.List(t.Context(), "jobs/"); err != nil || len(infos) != 2 || infos[0].Name != "jobs/a" {
		t.Errorf("List is not in the order of names: %v, %v", infos, err)
	}
	if want := []string{"inspect a", "break a0", "break a7", "list jobs/"}; !slices.Equal(s.asked, want) {
		t.Errorf("the store was asked for %q, want %q", s.asked, want)
	}
	s.asked, s.err = nil, errors.New("down")
	info, inspected := l.Inspect(t.Context(), "a")
	broken, other := l.Break(t.Context(), "a")
	infos, listed := l.List(t.Context(), "")
	for _, err := range []error{inspected, other, listed} {
		if !errors.Is(err, s.err) || !errors.Is(err, locker.ErrUnavailable) || info.Held || broken || len(infos) > 0 {
			t.Errorf("the store is away: %+v, %v, %v, %v", info, broken, infos, err)
		}
	}
	s.asked, s.err = nil, nil
	_, inspected = l.Inspect(t.Context(), "")
	if _, err := l.Break(t.Context(), ""); err == nil || inspected == nil || len(s.asked) > 0 {
		t.Errorf("a name that no lock may have: %v, %v, and the store was asked %q", inspected, err, s.asked)
	}
}

func TestEndForAnAttemptThatHasLeftNothing(t *testing.T) {
	p := &probe{acquire: func(context.Context, driver.Wait) error { return locker.ErrTaken }}
	l := driver.New("probe", p, driver.Options{})
	if _, err := l.TryLock(t.Context(), "a"); !errors.Is(err, locker.ErrTaken) {
		t.Fatal(err)
	}
	if p.begun != 1 || p.ended != 1 {
		t.Errorf("%d attempts have begun and %d ended", p.begun, p.ended)
	}
}

func TestBackendThatReturnsNothingGrantsNothing(t *testing.T) {
	l := driver.New("probe", &probe{none: true}, driver.Options{})
	lock, err := l.Lock(t.Context(), "a")
	if lock != nil || err == nil || !strings.Contains(err.Error(), "neither a grant nor an error") {
		t.Errorf("got %v, %v", lock, err)
	}
}

// Goal: Close ends the context of a wait, and the error says so, whatever the store makes of it.
func TestCloseEndsAWaitWhateverTheStoreSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probe{acquire: func(_ context.Context, wait driver.Wait) error {
			<-wait().Done()
			return errors.New("the connection is gone")
		}}
		l := driver.New("probe", p, driver.Options{})
		got := asking(t.Context(), l)
		_ = l.Close()
		failed(t, got, locker.ErrClosed, locker.ErrUnavailable, locker.ErrTaken)
	})
}

// A store that looks each millisecond calls wait as often.
func TestContextOfAWaitIsTheSameHoweverOftenTheStoreAsksForIt(t *testing.T) {
	p := &probe{}
	p.acquire = func(_ context.Context, wait driver.Wait) error {
		if first := wait(); wait() != first {
			t.Error("the second wait has another context than the first")
		}
		return nil
	}
	mustUnlock(t, mustLock(t, driver.New("probe", p, driver.Options{})))
}

// After Close a clean-up is tried once, so the caller hears at once that it has failed.
func TestCleanUpThatIsGivenUpIsAnUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probe{left: true, refusal: errors.New("no")}
		p.acquire = func(_ context.Context, wait driver.Wait) error {
			<-wait().Done()
			return context.Cause(wait())
		}
		l := driver.New("probe", p, driver.Options{})
		got := asking(t.Context(), l)
		_ = l.Close()
		failed(t, got, locker.ErrOutcomeUnknown)
	})
}

// The store has said "taken", and then the connection is refused at once each time.
func TestWaiterAsksAStoreThatFailsAfterLongerPausesUpToASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pauses []time.Duration
		last := time.Now()
		l := driver.New("probe", &probe{acquire: func(_ context.Context, wait driver.Wait) error {
			wait()
			pauses, last = append(pauses, time.Since(last)), time.Now()
			return errors.New("connection refused")
		}}, driver.Options{})
		got := asking(t.Context(), l)
		time.Sleep(4 * time.Second)
		pending(t, got)
		want := []time.Duration{0, 50, 100, 200, 400, 800, 1000, 1000}
		for i := range want {
			want[i] *= time.Millisecond
		}
		if !slices.Equal(pauses, want) {
			t.Errorf("the pauses were %v, want %v", pauses, want)
		}
		_ = l.Close()
		failed(t, got, locker.ErrClosed) // at once
	})
}

// A client that has deadlines of its own says "i/o timeout".
func TestErrorOfAWaitThatIsOverSaysSoWhateverTheStoreSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := driver.New("probe", &probe{acquire: func(_ context.Context, wait driver.Wait) error {
			<-wait().Done()
			return errors.New("i/o timeout")
		}}, driver.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Lock(ctx, "a"); !errors.Is(err, locker.ErrTaken) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the lock was taken until the context ended: %v", err)
		}
	})
}

// slow takes so long to withdraw, and heeds its context.
type slow struct {
	*probe
	takes time.Duration
}

func (s slow) Withdraw(ctx context.Context, _ *att) error {
	select {
	case <-time.After(s.takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestCallThatFailedWaitsForAQuarterOfASecondToHearThatNothingIsLeft(t *testing.T) {
	for takes, unknown := range map[time.Duration]bool{249 * time.Millisecond: false, 251 * time.Millisecond: true} {
		synctest.Test(t, func(t *testing.T) {
			p := &probe{left: true, acquire: func(context.Context, driver.Wait) error { return errors.New("no answer") }}
			_, err := driver.New("slow", slow{p, takes}, driver.Options{}).TryLock(t.Context(), "a")
			if !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrOutcomeUnknown) != unknown {
				t.Errorf("after a clean-up that takes %v: %v", takes, err)
			}
			time.Sleep(time.Second)
		})
	}
}

func TestCloseWaitsForCleanUpsForTwoSecondsAtMost(t *testing.T) {
	for takes, want := range map[time.Duration]time.Duration{time.Second: time.Second, time.Minute: 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			l := driver.New("probe", &probe{}, driver.Options{})
			l.Go(func() { time.Sleep(takes) })
			began := time.Now()
			if err := l.Close(); err != nil || time.Since(began) != want {
				t.Errorf("a clean-up takes %v, and Close %v: %v", takes, time.Since(began), err)
			}
			time.Sleep(takes)
		})
	}
}

// A waiter that Close ends begins its clean-up only when the store's client lets go of it. A
// Close that returned before would let a backend end the connection that the clean-up needs.
//
//	a waiter waits; Close ends it; the client returns later; the clean-up takes as long again
func TestCloseWaitsForTheCleanUpOfAWaiterThatItEnds(t *testing.T) {
	const takes = 200 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		p := &probe{left: true, acquire: func(_ context.Context, wait driver.Wait) error {
			<-wait().Done()
			time.Sleep(takes)
			return errors.New("closed")
		}}
		l := driver.New("slow", slow{p, takes}, driver.Options{})
		got := asking(t.Context(), l)
		began := time.Now()
		if err := l.Close(); err != nil || time.Since(began) != 2*takes {
			t.Errorf("Close: %v after %v, want %v", err, time.Since(began), 2*takes)
		}
		failed(t, got, locker.ErrClosed)
	})
}

// elses is a lock that knows nothing of leases.
type elses struct{ contract.Held }

func TestLeaseOfALockThatKnowsNoneIsItsToken(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		for _, opts := range [][]locker.Option{nil, {locker.WithShared()}} {
			lock := mustLock(t, l, opts...)
			want := uint64(lock.Token()) + uint64(lock.SharedToken()) // one of them is 0
			if got := driver.LeaseOf(locker.NewLock(contract.Key{}, elses{locker.HeldOf(contract.Key{}, lock)})); got != want {
				t.Errorf("the lease is %d, want %d", got, want)
			}
			mustUnlock(t, lock)
		}
	})
}

func TestCallWithoutTimeSaysNothingOfTheStore(t *testing.T) {
	l := driver.New("probe", &probe{}, driver.Options{})
	why := errors.New("the caller's own reason")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	for name, lock := range map[string]func(context.Context, string, ...locker.Option) (*locker.Lock, error){"Lock": l.Lock, "TryLock": l.TryLock} {
		if _, err := lock(ctx, "a"); !errors.Is(err, context.Canceled) || !errors.Is(err, why) || errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrTaken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTryLockRefusesAWait(t *testing.T) {
	l := driver.New("probe", &probe{}, driver.Options{})
	if lock, err := l.TryLock(t.Context(), "a", locker.WithWait(time.Second)); err == nil {
		t.Errorf("TryLock with a wait returned %v", lock)
	}
}
