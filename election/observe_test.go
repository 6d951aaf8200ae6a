package election_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/election"
	"github.com/lockstile/locker/internal/contract"
	"github.com/lockstile/locker/lockertest"
)

// told is what an observer was told, in order.
type told struct {
	mu  sync.Mutex
	all []telling
}

type telling struct {
	leader election.Leader
	err    error
	at     time.Time
}

// observe collects what c tells. A slow observer takes so long over each of them.
func observe(t *testing.T, c *election.Candidate, slow time.Duration) *told {
	var o told
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(ended)
		for leader, err := range c.Observe(ctx) {
			o.mu.Lock()
			o.all = append(o.all, telling{leader, err, time.Now()})
			o.mu.Unlock()
			time.Sleep(slow)
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return &o
}

func (o *told) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.all)
}

func (o *told) last() telling {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all[len(o.all)-1]
}

func passive(t *testing.T, locks *lockertest.Locker) *election.Candidate {
	t.Helper()
	c, err := election.New(locks, "leader")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Goal: what etcd's Observe never tells, that nobody leads, and what it told wrongly
// (etcd-io/etcd#18163), one who only stands.
func TestObserversHearOfOthersAndOfNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		o := observe(t, passive(t, locks.Another()), 0)
		is := func(want election.Leader) func() bool {
			return func() bool { return o.len() > 0 && o.last().err == nil && o.last().leader == want }
		}
		within(t, time.Second, "nobody leads", is(election.Leader{}))
		a := start(t, locks, nil, locker.WithHolder("a"))
		within(t, 1100*time.Millisecond, "a leads", func() bool { return a.IsLeader() && is(election.Leader{a.Term().Token(), "a"})() })
		b := start(t, locks.Another(), nil, locker.WithHolder("b"))
		own := observe(t, b.Candidate, 0)
		time.Sleep(time.Minute)
		if n := o.len(); n != 2 || b.IsLeader() {
			t.Errorf("%+v, and b leads: %v", o.all, b.IsLeader())
		}
		if leader, err := b.Leader(t.Context()); err != nil || leader.Holder != "a" {
			t.Errorf("b says that %+v leads, %v", leader, err)
		}
		end(t, a)
		within(t, 1100*time.Millisecond, "b leads", func() bool { return b.IsLeader() && is(election.Leader{b.Term().Token(), "b"})() })
		time.Sleep(time.Minute)
		now := election.Leader{b.Term().Token(), "b"}
		another := func(x telling) bool { return x.leader.Token == now.Token && x.leader != now }
		if leader, err := b.Leader(t.Context()); err != nil || leader != now || own.last().leader != now || slices.ContainsFunc(own.all, another) {
			t.Errorf("b says that %+v leads, %v, and tells %+v", leader, err, own.all)
		}
		end(t, b)
		within(t, 1100*time.Millisecond, "nobody leads", is(election.Leader{}))
	})
}

// Goal: no change is merged with the next, as in River's relay, and none overtakes another.
// Method: the observer is slower than the terms are.
func TestASlowObserverHearsOfEachTermAndItsEndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		var terms []*locker.Lock
		a := start(t, locks, func(ctx context.Context, term *locker.Lock) error {
			terms = append(terms, term)
			switch len(terms) % 2 {
			case 0:
				locks.Lose("leader")
				<-ctx.Done()
			case 1:
				time.Sleep(time.Second)
			}
			return nil
		})
		o := observe(t, a.Candidate, time.Hour)
		time.Sleep(time.Minute)
		end(t, a)
		time.Sleep(100 * time.Hour)
		var heard []telling
		for _, x := range o.all {
			if x.leader != (election.Leader{}) || x.err != nil {
				heard = append(heard, x)
			}
		}
		if len(terms) < 6 || len(heard) != 2*len(terms) {
			t.Fatalf("%d terms, heard %+v", len(terms), heard)
		}
		for i, term := range terms {
			if x := heard[2*i]; x.leader.Token != term.Token() || x.err != nil {
				t.Errorf("term %d begins: %+v", i, x)
			}
			if x := heard[2*i+1]; x.leader != (election.Leader{}) || x.err != term.Err() {
				t.Errorf("term %d ends: %+v, want %v", i, x, term.Err())
			}
		}
	})
}

// Goal: the end of a term is told at the end of its validity, though its function runs on
// and the store does not answer; and the store's old answer is not taken for a leader.
func TestACandidateThatWasCutOffHearsAtOnceThatItLeadsNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		a := start(t, locks, func(ctx context.Context, _ *locker.Lock) error {
			<-ctx.Done()
			time.Sleep(time.Hour)
			return nil
		})
		within(t, time.Second, "it leads", a.IsLeader)
		o := observe(t, a.Candidate, 0)
		locks.Link().Cut()
		term := a.Term()
		<-term.Lost()
		ended := time.Now()
		synctest.Wait()
		if x := o.last(); x.leader != (election.Leader{}) || !errors.Is(x.err, locker.ErrLost) || !x.at.Equal(ended) {
			t.Errorf("told %+v, it ended at %v", x, ended)
		}
		if _, err := a.Leader(t.Context()); !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("Leader says %v while the store does not answer", err)
		}
		time.Sleep(time.Minute)
		if n := o.len(); n != 2 {
			t.Errorf("told %+v", o.all)
		}
		locks.Link().Heal()
		within(t, 7*time.Second, "nobody leads", func() bool { return o.last().leader == (election.Leader{}) && o.last().err == nil })
		end(t, a)
	})
}

// looking is a Locker whose Inspect is the test's.
type looking struct {
	locker.Locker
	inspect func(ctx context.Context, name string) (locker.Info, error)
}

func (l looking) Inspect(ctx context.Context, name string) (locker.Info, error) {
	return l.inspect(ctx, name)
}

// Method: the term ends while its locker is cut off from the store, so the store has the lock
// until the lease ends. A look gets there in another way. The term was passed on within the
// process: what the store shows is the first token of the lease, and the term has a later one.
func TestTheEntryOfATermThatIsOverIsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		within := looking{locks, locks.Another().Inspect}
		a, errA := election.New(within, "leader")
		b, errB := election.New(within, "leader", locker.WithMaxHold(time.Second))
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		var second sync.WaitGroup
		_ = a.Run(t.Context(), func(context.Context, *locker.Lock) error {
			second.Go(func() {
				_ = b.Run(t.Context(), func(_ context.Context, term *locker.Lock) error {
					locks.Link().Cut()
					<-term.Lost()
					info, err := locks.Another().Inspect(t.Context(), "leader")
					leader, unknown := b.Leader(t.Context())
					if err != nil || unknown != nil || !info.Held || info.Token >= term.Token() || leader != (election.Leader{}) {
						t.Errorf("the store has %+v, %v, and %+v leads, %v", info, err, leader, unknown)
					}
					locks.Link().Heal()
					_ = locks.Close() // and Run ends
					return nil
				})
			})
			synctest.Wait() // b waits
			return errStopped
		})
		second.Wait()
	})
}

// Method: the answer to a look says who led after this candidate, and comes late, when all of
// the candidate's term is over.
func TestALookThatTookLongDoesNotOvertakeWhatTheCandidateHasDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, late := lockertest.New(), make(chan struct{})
		later := locker.Info{Held: true, Token: 1 << 40, Holder: "later"}
		c, err := election.New(looking{locks, func(context.Context, string) (locker.Info, error) {
			<-late
			return later, nil
		}}, "leader")
		if err != nil {
			t.Fatal(err)
		}
		o := observe(t, c, 0)
		synctest.Wait()
		_ = c.Run(t.Context(), func(context.Context, *locker.Lock) error { return errStopped })
		close(late)
		within(t, time.Minute, "the later one leads", func() bool { return o.len() > 0 && o.last().leader.Holder == "later" })
		if o.len() != 3 || o.all[0].leader.Token != 1 || o.all[1].err == nil {
			t.Errorf("told %+v", o.all)
		}
	})
}

// Nobody would be a guess.
func TestLeaderOfAStoreThatIsAwayIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		c, err := election.New(locks, "leader")
		if err != nil {
			t.Fatal(err)
		}
		locks.Link().Cut()
		if leader, err := c.Leader(t.Context()); !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("%+v leads, %v", leader, err)
		}
		locks.Link().Heal()
	})
}

// noInspector hides the optional methods.
type noInspector struct{ locker.Locker }

func TestALockerThatCannotSayWhoLeadsTellsOwnTermsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := election.New(noInspector{lockertest.New()}, "leader")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Leader(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Leader says %v", err)
		}
		o := observe(t, c, 0)
		time.Sleep(time.Minute)
		ctx, stop := context.WithCancel(t.Context())
		_ = c.Run(ctx, func(_ context.Context, term *locker.Lock) error {
			if leader, err := c.Leader(ctx); err != nil || leader.Token != term.Token() {
				t.Errorf("%+v leads, %v", leader, err)
			}
			time.Sleep(time.Minute)
			stop()
			return nil
		})
		time.Sleep(time.Minute)
		if o.len() != 3 || o.all[0].err == nil || o.all[1].leader == (election.Leader{}) || !errors.Is(o.all[2].err, locker.ErrUnlocked) {
			t.Errorf("told %+v", o.all)
		}
	})
}

func TestObserveEndsWithItsLoop(t *testing.T) {
	for leader, err := range passive(t, lockertest.New()).Observe(t.Context()) {
		if leader != (election.Leader{}) || err != nil {
			t.Errorf("%+v, %v", leader, err)
		}
		break
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for leader, err := range passive(t, lockertest.New()).Observe(ended) {
		t.Errorf("told %+v, %v after the end", leader, err)
	}
}

// deaf is a Locker whose locks' contexts do not end: what depends on them comes too late.
type deaf struct{ *lockertest.Locker }

func (d deaf) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	lock, err := d.Locker.Lock(ctx, name, opts...)
	if err != nil {
		return nil, err
	}
	return locker.NewLock(contract.Key{}, deafHold{locker.HeldOf(contract.Key{}, lock)}), nil
}

type deafHold struct{ contract.Held }

func (deafHold) Context() context.Context { return context.Background() }

func deafCandidate(t *testing.T) (*lockertest.Locker, *election.Candidate) {
	t.Helper()
	locks := lockertest.New()
	t.Cleanup(func() { _ = locks.Close() })
	c, err := election.New(deaf{locks}, "leader", locker.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	return locks, c
}

func TestTheEndOfATermIsToldBeforeTheNextOneThoughNobodyHearsOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := deafCandidate(t)
		o := observe(t, c, 0)
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		terms := 0
		_ = c.Run(ctx, func(context.Context, *locker.Lock) error {
			terms++
			time.Sleep(300 * time.Millisecond)
			return nil
		})
		time.Sleep(time.Second)
		synctest.Wait() // a sleep alone orders nothing
		begun, ended := 0, 0
		for _, x := range o.all {
			switch {
			case x.err != nil:
				ended++
			case x.leader != (election.Leader{}):
				begun++
			}
			if begun < ended || begun > ended+1 {
				t.Fatalf("%d terms have begun and %d have ended: %+v", begun, ended, o.all)
			}
		}
		if terms < 3 || begun != terms || ended != terms {
			t.Errorf("of %d terms %d beginnings and %d ends were told", terms, begun, ended)
		}
	})
}

func TestWhoSeesThatItsTermIsOverTellsItAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, c := deafCandidate(t)
		o := observe(t, c, 0)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = c.Run(ctx, func(ctx context.Context, _ *locker.Lock) error { <-ctx.Done(); return nil }) }()
		synctest.Wait()
		locks.Lose("leader")
		if c.IsLeader() {
			t.Error("it leads without its term")
		}
		synctest.Wait()
		if !slices.ContainsFunc(o.all, func(x telling) bool { return x.leader == (election.Leader{}) && x.err != nil }) {
			t.Errorf("observers were told %+v", o.all)
		}
	})
}

// Two candidates of one process hand over to each other in memory: the store goes on naming the
// lease that the first one had.
func TestWhoHasResignedNamesTheNextLeaderOfItsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		resign := make(chan struct{})
		first := start(t, locks, func(context.Context, *locker.Lock) error { <-resign; return errors.New("enough") })
		synctest.Wait()
		second := start(t, locks, nil)
		synctest.Wait()
		close(resign) // within 25 ms of the grant
		<-first.done
		synctest.Wait()
		if !second.IsLeader() {
			t.Fatal("the second candidate does not lead")
		}
		for range 3 {
			leader, err := first.Leader(t.Context())
			if err != nil || leader == (election.Leader{}) {
				t.Errorf("the one that has resigned says that %+v leads: %v", leader, err)
			}
			time.Sleep(time.Hour)
		}
		end(t, second)
	})
}
