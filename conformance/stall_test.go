package conformance

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/contract"
	"github.com/lockstile/locker/internal/specimen"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/lockertest"
)

// standsStill is the meter of a machine that stands still for so long, from now on.
func standsStill(d time.Duration) *meter {
	return &meter{stalls: []stall{{time.Now(), d}}, left: replays}
}

// always is the meter of a machine that never does anything else.
func always() *meter {
	return &meter{stalls: []stall{{time.Now().Add(-time.Hour), 1000 * time.Hour}}, left: 1000}
}

// seldom plays a clause with a meter, on virtual time, and returns how often it was played and
// what was said aloud. check is told by how much to be late: 1s in the first play, then not.
func seldom(t *testing.T, m func() *meter, check func(x *trial, late time.Duration)) (plays int, said string, err error) {
	t.Helper()
	var out bytes.Buffer
	stderr = &out
	defer func() { stderr = os.Stderr }()
	synctest.Test(t, func(t *testing.T) {
		c := Clause{"a-clause", "It matters.", func(x *trial) {
			late := time.Second
			if plays++; plays > 1 {
				late = -time.Second
			}
			check(x, late)
		}}
		err = c.verify(t, Harness{New: func(testing.TB) Process { return Process{} }, meter: m()})
		synctest.Wait()
	})
	return plays, out.String(), err
}

// fakeHeld is a lock that has ended for a reason, or was unlocked.
type fakeHeld struct {
	contract.Held
	end    time.Time
	reason locker.Reason
}

func (f fakeHeld) Name() string                 { return "a name" }
func (f fakeHeld) Deadline() time.Time          { return f.end }
func (f fakeHeld) Unlock(context.Context) error { return f.Err() }

func (f fakeHeld) Err() error {
	if f.reason == 0 {
		return &contract.Unlocked{Name: "a name"}
	}
	return &locker.LostError{Name: "a name", Reason: f.reason}
}

// slowUnlock is a lock whose store answers Unlock after a time.
type slowUnlock struct {
	fakeHeld
	after time.Duration
	err   error
}

func (s slowUnlock) Unlock(context.Context) error {
	time.Sleep(s.after)
	return s.err
}

// fakeLocker grants after a time, unless the context or its deadline comes before.
type fakeLocker struct {
	locker.Locker
	after time.Duration
	held  contract.Held
}

func (f fakeLocker) Lock(ctx context.Context, _ string, _ ...locker.Option) (*locker.Lock, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	deadline, _ := ctx.Deadline()
	select {
	case <-time.After(time.Until(deadline)): // as the clients of many stores do
		return nil, context.DeadlineExceeded
	case <-time.After(f.after):
		return locker.NewLock(contract.Key{}, f.held), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// bounds has something come late, or in time where late is negative, for everything that
// bounds a time from above.
var bounds = map[string]func(x *trial, late time.Duration){
	"an event": func(x *trial, late time.Duration) {
		done := make(chan struct{})
		time.AfterFunc(x.h.patience+late, func() { close(done) })
		x.event(done, "it comes")
	},
	"what becomes true": func(x *trial, late time.Duration) {
		at := time.Now().Add(x.h.patience + late)
		x.eventually("it comes", func() bool { return time.Now().After(at) })
	},
	"a time that was measured": func(x *trial, late time.Duration) {
		began := time.Now()
		time.Sleep(10*time.Second + late)
		x.inTime(began, time.Since(began), 10*time.Second, "it comes")
	},
	"Lock": func(x *trial, late time.Duration) {
		x.lock(fakeLocker{after: x.h.patience + late, held: fakeHeld{}}, "a name")
	},
	"a waiter": func(x *trial, late time.Duration) {
		w := x.wait(x.patient(), fakeLocker{after: x.h.patience + late, held: fakeHeld{}}, "a name")
		time.Sleep(10 * time.Second) // the event counts from here, and the context from its begin
		x.served(w, "after a while")
	},
	"a lock that was to be unlocked before its end": func(x *trial, late time.Duration) {
		for _, reason := range []locker.Reason{locker.ReasonExpired, locker.ReasonMaxHold} {
			ends := fakeHeld{end: time.Now().Add(2 * time.Second), reason: reason}
			lock := x.lock(fakeLocker{held: ends}, "a name", locker.WithoutRenewal())
			time.Sleep(2*time.Second + late)
			if late > 0 {
				x.unlock(lock)
			}
		}
	},
	"an Unlock that was to be answered": func(x *trial, late time.Duration) {
		var answers error
		if late > 0 {
			answers = fmt.Errorf("%w: %w", locker.ErrUnavailable, context.DeadlineExceeded)
		}
		x.unlock(x.lock(fakeLocker{held: slowUnlock{fakeHeld{}, unlockTime + late, answers}}, "a name"))
	},
	"a lock that was to be renewed": func(x *trial, late time.Duration) {
		if late < 0 {
			return
		}
		for _, reason := range []locker.Reason{locker.ReasonExpired, locker.ReasonUnreachable} { // two thirds of the lease are a second
			ends := fakeHeld{end: time.Now().Add(1500 * time.Millisecond), reason: reason}
			lock := x.lock(fakeLocker{held: ends}, "a name", locker.WithTTL(1500*time.Millisecond))
			time.Sleep(2 * time.Second)
			if !x.notRenewed(lock) {
				x.failf("it was lost")
			}
		}
	},
}

func TestNothingIsPlayedAgainThatCameInTime(t *testing.T) {
	for what, check := range bounds {
		for _, m := range []func() *meter{func() *meter { return &meter{left: replays} }, always} {
			plays, said, err := seldom(t, m, func(x *trial, _ time.Duration) { check(x, -time.Second) })
			if plays != 1 || said != "" || err != nil {
				t.Errorf("%s: it was played %d times, said %q and returned %v", what, plays, said, err)
			}
		}
	}
}

func TestTimeThatIsMissedWithoutAStallFailsAtOnce(t *testing.T) {
	for what, check := range bounds {
		plays, said, err := seldom(t, func() *meter { return &meter{left: replays} }, check)
		if plays != 1 || said != "" || err == nil || strings.Contains(err.Error(), "again") {
			t.Errorf("%s: it was played %d times, said %q and returned %v", what, plays, said, err)
		}
	}
}

func TestTimeThatIsMissedByMoreThanTheStallFailsAtOnce(t *testing.T) {
	for what, check := range bounds {
		plays, said, err := seldom(t, func() *meter { return standsStill(990 * time.Millisecond) }, check)
		if plays != 1 || said != "" || err == nil || strings.Contains(err.Error(), "again") {
			t.Errorf("%s: it was played %d times, said %q and returned %v", what, plays, said, err)
		}
	}
}

// A stall that was over before is no excuse.
func TestTimeThatIsMissedAfterTheStallFailsAtOnce(t *testing.T) {
	for what, check := range bounds {
		plays, said, err := seldom(t, func() *meter { return standsStill(time.Hour) }, func(x *trial, late time.Duration) {
			time.Sleep(time.Hour)
			check(x, late)
		})
		if plays != 1 || said != "" || err == nil {
			t.Errorf("%s: it was played %d times, said %q and returned %v", what, plays, said, err)
		}
	}
}

func TestTimeThatIsMissedByNoMoreThanTheStallIsPlayedAgainOnceAndAloud(t *testing.T) {
	for what, check := range bounds {
		plays, said, err := seldom(t, func() *meter { return standsStill(5 * time.Second) }, check)
		if plays != 2 || err != nil {
			t.Errorf("%s: it was played %d times and returned %v", what, plays, err)
		}
		want := `^stalled: ` + program() + ` clause "a-clause" missed [0-9.]+m?s by 1[0-9.]*s, the machine stood still for [0-9.]+s of it; played again\n$`
		if !regexp.MustCompile(want).MatchString(said) {
			t.Errorf("%s: it said %q", what, said)
		}
	}
}

func TestWhatIsLateAgainWhenItIsPlayedAgainFails(t *testing.T) {
	for what, check := range bounds {
		plays, _, err := seldom(t, always, func(x *trial, late time.Duration) { check(x, time.Second) })
		if plays != 2 || err == nil || !strings.Contains(err.Error(), "played again") {
			t.Errorf("%s: it was played %d times and returned %v", what, plays, err)
		}
	}
}

// A clause goes on after a time that it has missed, so that nothing else is missed.
func TestFailureAfterATimeThatWasMissedIsNotPlayedAgain(t *testing.T) {
	for what, check := range bounds {
		plays, said, err := seldom(t, always, func(x *trial, late time.Duration) {
			check(x, late)
			x.failf("two holders at once")
		})
		if plays != 1 || said != "" || err == nil || err.Error() != "two holders at once" {
			t.Errorf("%s: it was played %d times, said %q and returned %v", what, plays, said, err)
		}
	}
}

func TestFailureThatIsNotOfATimeIsNeverPlayedAgain(t *testing.T) {
	lost := func(reason locker.Reason) locker.Locker {
		return fakeLocker{held: fakeHeld{end: time.Now(), reason: reason}}
	}
	for what, check := range map[string]func(x *trial){
		"a failure":          func(x *trial) { x.failf("two holders at once") },
		"what never happens": func(x *trial) { x.event(nil, "it comes") },
		"what is never true": func(x *trial) { x.eventually("it comes", func() bool { return false }) },
		"what is left behind for too long": func(x *trial) {
			at := time.Now().Add(31 * time.Second)
			x.settles("it goes", func() bool { return time.Now().After(at) })
		},
		"a name that is left locked":        func(x *trial) { x.freeBeforeLease(fakeLocker{after: 19 * time.Second}, "a name", "after that") },
		"a lock that somebody else has got": func(x *trial) { x.unlock(x.lock(lost(locker.ReasonTakenOver), "a name")) },
		"a lock that was lost before it ended": func(x *trial) {
			ends := fakeHeld{end: time.Now().Add(time.Hour), reason: locker.ReasonExpired}
			x.unlock(x.lock(fakeLocker{held: ends}, "a name", locker.WithoutRenewal()))
		},
		"an Unlock that fails at once": func(x *trial) {
			x.unlock(x.lock(fakeLocker{held: slowUnlock{fakeHeld{}, time.Second, locker.ErrUnavailable}}, "a name"))
		},
		"an Unlock whose outcome is another": func(x *trial) {
			x.unlock(x.lock(fakeLocker{held: slowUnlock{fakeHeld{}, 3 * time.Second, locker.ErrTaken}}, "a name"))
		},
		"a loss that only Unlock says": func(x *trial) { // Err says that the lock was unlocked
			held := x.lock(lost(0), "a name")
			if !x.notRenewed(held) {
				x.failf("it was lost each time")
			}
		},
		"an error": func(x *trial) { x.served(x.wait(over(), fakeLocker{}, "a name"), "after that") },
		"a call whose context is not that of a wait": func(x *trial) {
			if _, err := (fakeLocker{after: x.h.patience + time.Second}).Lock(x.patient(), "a name"); err != nil {
				x.failf("%w", err)
			}
		},
	} {
		var took time.Duration
		plays, said, err := seldom(t, always, func(x *trial, _ time.Duration) {
			begun := time.Now()
			defer func() { took = time.Since(begun) }()
			check(x)
		})
		if plays != 1 || said != "" || err == nil || took > time.Minute+time.Second { // twice the patience
			t.Errorf("%s: it was played %d times, said %q and returned %v after %v", what, plays, said, err, took)
		}
	}
}

// What backends make of a context of the suite ends as those of package context do: clauses tell
// a deadline that has passed from a wait that was cancelled.
func TestContextMadeOfAClausesEndsWithItsDeadline(t *testing.T) {
	_, _, err := seldom(t, func() *meter { return new(meter) }, func(x *trial, _ time.Duration) {
		for _, ctx := range []context.Context{x.patient(), mustCome(x.patient())} {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			<-child.Done()
			if err := child.Err(); !errors.Is(err, context.DeadlineExceeded) {
				x.failf("it ends with %w", err)
			}
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// Goal: a waiter that hears of nothing any more, once its connections have broken, is found.
func TestWaiterThatHangsAfterACutIsFound(t *testing.T) {
	store := lockertest.New()
	i := slices.IndexFunc(Clauses(), func(c Clause) bool { return c.Name == "cut-while-waiting" })
	err := Clauses()[i].verify(t, Harness{patience: 2 * time.Second, meter: new(meter), New: func(testing.TB) Process {
		cut, heard := make(chan struct{}), make(chan struct{}, 1)
		return Process{Locker: deaf{store, cut, heard}, Network: cutOnce{Proxies{}, sync.OnceFunc(func() {
			close(cut)
			<-heard
		})}}
	}})
	if err == nil || isSkip(err) {
		t.Errorf("it was not found: %v", err)
	}
}

// cutOnce is a network without servers.
type cutOnce struct {
	Network
	cut func()
}

func (n cutOnce) Cut() { n.cut() }

// deaf asks in a context made of its caller's, as backends do, and not again after a cut.
type deaf struct {
	locker.Locker
	cut, heard chan struct{}
}

func (d deaf) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ask, end := context.WithCancel(ctx)
	defer end()
	go func() {
		select {
		case <-d.cut:
			end()
		case <-ask.Done():
		}
	}()
	if lock, err := d.Locker.Lock(ask, name, opts...); err == nil {
		return lock, nil
	}
	d.heard <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

// Method: a wall clock that is set back notes ten stalls at one time.
func TestNoTimeIsExcusedTwice(t *testing.T) {
	from, m := time.Now(), new(meter)
	for range 10 {
		m.note(stall{from, time.Second}, false)
	}
	if got := m.sum(from, from.Add(time.Second)); got > time.Second {
		t.Errorf("of a second the machine stood still for %v", got)
	}
}

func TestBudgetOfReplaysHasAnEnd(t *testing.T) {
	m := standsStill(1000 * time.Hour)
	for round := range replays + 2 {
		plays, said, err := seldom(t, func() *meter { m.stalls[0].begun = time.Now(); return m }, bounds["an event"])
		if within := round < replays; within != (err == nil) || within != (plays == 2) || within != (said != "") ||
			!within && !strings.Contains(err.Error(), "no more than 3") {
			t.Errorf("in round %d it was played %d times, said %q and returned %v", round, plays, said, err)
		}
	}
}

// Method: many clauses at once, one of which is played again while others want to begin.
func TestClauseIsPlayedAgainAlone(t *testing.T) {
	var now, most, again atomic.Int32
	play := func(x *trial, d time.Duration) {
		if x.h.meter.stalls == nil { // played again
			again.Add(1)
			if others := now.Load(); others != 0 {
				t.Errorf("it is played again beside %d clauses", others)
			}
		}
		most.Store(max(most.Load(), now.Add(1)))
		began := time.Now()
		time.Sleep(d)
		now.Add(-1)
		if x.h.meter.stalls != nil {
			x.inTime(began, time.Since(began), d/2, "it comes")
		}
	}
	var out bytes.Buffer
	stderr = &out
	defer func() { stderr = os.Stderr }()
	m := always()
	t.Run("clauses", func(t *testing.T) {
		for k := range 20 {
			t.Run(fmt.Sprint(k), func(t *testing.T) {
				t.Parallel()
				c := Clause{"a-clause", "It matters.", func(x *trial) { play(x, time.Duration(k)*time.Millisecond+time.Millisecond) }}
				if err := c.verify(t, Harness{New: func(testing.TB) Process { return Process{} }, meter: m}); err != nil {
					t.Error(err)
				}
			})
		}
	})
	if again.Load() != 20 {
		t.Errorf("%d clauses were played again, want 20", again.Load())
	}
}

// sleepy are the locks of a holder whose Err does not look at the clock, but waits for a timer,
// which a stall holds up.
type sleepy struct{ locker.Locker }

type sleepyHeld struct{ contract.Held }

func (s sleepy) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	lock, err := s.Locker.Lock(ctx, name, opts...)
	if err != nil {
		return nil, err
	}
	return locker.NewLock(contract.Key{}, sleepyHeld{locker.HeldOf(contract.Key{}, lock)}), nil
}

func (s sleepyHeld) Err() error {
	if time.Since(s.Deadline()) < 30*time.Second { // longer than any machine may take to ask
		return nil
	}
	return s.Held.Err()
}

func TestErrThatDoesNotLookAtTheClockIsFoundInAStallAndNotPlayedAgain(t *testing.T) {
	srv := testserver.Redis(t)
	for _, c := range Clauses() {
		if c.Name != "expiry" && c.Name != "early" && c.Name != "silence" && c.Name != "turns-loss" {
			continue
		}
		for what, m := range map[string]*meter{"in a stall": always(), "without": {}} {
			t.Run(c.Name+" "+what, func(t *testing.T) {
				t.Parallel()
				h := hasty(srv.Addr(), "")
				h.meter = m
				h.New = func(t testing.TB) Process {
					p := NewProxy(t, srv.Addr())
					l, end := specimen.New(p.Addr(), "")
					t.Cleanup(end)
					return Process{Locker: sleepy{l}, Network: p}
				}
				left := m.left
				if err := c.verify(t, h); err == nil || isSkip(err) || m.left != left ||
					!strings.Contains(err.Error(), "was given") {
					t.Errorf("%d replays left of %d, and %v", m.left, left, err)
				}
			})
		}
	}
}

func TestNothingIsPlayedAgainWhereLinesAreBrokenOnPurpose(t *testing.T) {
	t.Setenv(noReplay, "1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m := newMeter(self)
	m.note(stall{time.Now().Add(-time.Hour), time.Hour}, false)
	if now := time.Now(); m.sum(now.Add(-time.Minute), now) < 50*time.Second || m.excuse(now.Add(-time.Minute), now) != 0 {
		t.Errorf("a stall of a minute excuses %v, want nothing", m.excuse(now.Add(-time.Minute), now))
	}
}

func TestSuiteWithoutATickerSaysSoAndExcusesNothing(t *testing.T) {
	var out bytes.Buffer
	stderr = &out
	defer func() { stderr = os.Stderr }()
	for _, self := range []string{"/nonexistent", "/bin/true", "/bin/echo"} {
		out.Reset()
		m := newMeter(self)
		if now := time.Now(); m.excuse(now.Add(-time.Hour), now) != 0 || m.factor != 1 {
			t.Errorf("%s: it excuses %v, with a factor of %d", self, m.excuse(now.Add(-time.Hour), now), m.factor)
		}
		if !strings.Contains(out.String(), "no clause is played again: ") {
			t.Errorf("%s: it said %q", self, out.String())
		}
	}
}

func TestTickerAnswersAndEndsWithItsQuestions(t *testing.T) {
	questions, asks := io.Pipe()
	heard, says := io.Pipe()
	ended := make(chan struct{})
	go func() {
		tick(questions, says)
		says.Close()
		close(ended)
	}()
	lines := bufio.NewScanner(heard)
	if !lines.Scan() || lines.Text() != "begins" {
		t.Errorf("at first it says %q", lines.Text())
	}
	fmt.Fprintln(asks, "until when?")
	answered := 0
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "upto ") {
			answered++
			asks.Close()
		}
	}
	<-ended
	if answered != 1 {
		t.Errorf("it answered %d times, want once", answered)
	}
}

func TestLeasesAreLongerOnASlowMachine(t *testing.T) {
	for _, test := range []struct {
		slow   time.Duration
		factor int
	}{{20 * time.Millisecond, 1}, {499 * time.Millisecond, 1}, {500 * time.Millisecond, 2}, {2 * time.Second, 4}} {
		if got := factorOf(test.slow); got != test.factor {
			t.Errorf("where it takes %v to start a process the factor is %d, want %d", test.slow, got, test.factor)
		}
	}
	for _, test := range []struct {
		ttl    time.Duration
		factor int
		want   time.Duration
	}{
		{0, 1, time.Second}, {0, 4, 4 * time.Second}, {500 * time.Millisecond, 2, time.Second},
		{3 * time.Second, 2, 4 * time.Second}, {5 * time.Second, 4, 5 * time.Second}, {time.Second, 0, time.Second},
	} {
		if got := scaled(test.ttl, test.factor); got != test.want {
			t.Errorf("a lease of %v is %v with a factor of %d, want %v", test.ttl, got, test.factor, test.want)
		}
	}
	seen := errors.New("seen")
	c := Clause{"a-clause", "It matters.", func(x *trial) { x.failf("%w: %v", seen, x.h.TTL) }}
	if err := c.verify(t, Harness{New: func(testing.TB) Process { return Process{} }, meter: &meter{factor: 2}}); err == nil || err.Error() != "seen: 2s" {
		t.Errorf("with a factor of 2: %v", err)
	}
}
