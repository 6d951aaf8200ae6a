package election_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/election"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/lockertest"
)

const ttl = 10 * time.Second

// candidate is a Candidate that runs in a process of its own.
type candidate struct {
	*election.Candidate
	locks *lockertest.Locker
	stop  context.CancelCauseFunc
	done  chan error // Run's
}

var errStopped = errors.New("stopped")

// start runs a candidate in a bubble. A nil lead leads until its context ends.
func start(t *testing.T, locks *lockertest.Locker, lead func(ctx context.Context, term *locker.Lock) error, opts ...locker.Option) *candidate {
	t.Helper()
	if lead == nil {
		lead = func(ctx context.Context, _ *locker.Lock) error { <-ctx.Done(); return nil }
	}
	c := &candidate{locks: locks, done: make(chan error, 1)}
	var err error
	if c.Candidate, err = election.New(locks, "leader", append(opts, locker.WithTTL(ttl))...); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	c.stop = stop
	go func() { c.done <- c.Run(ctx, lead) }()
	return c
}

// end stops candidates, and checks what their Runs return.
func end(t *testing.T, candidates ...*candidate) {
	t.Helper()
	for _, c := range candidates {
		c.stop(errStopped)
	}
	for _, c := range candidates {
		if err := <-c.done; !errors.Is(err, errStopped) || errors.Is(err, locker.ErrLost) {
			t.Errorf("Run returns %v", err)
		}
		_ = c.locks.Close() // waits for clean-ups
	}
}

// within waits until what is true, for d at most.
func within(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", d, what)
		}
	}
}

func TestOneCandidateLeadsAndTheNextWhenItResigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		type key struct{}
		var tokens []fencing.Token
		for range 3 {
			ctx, stop := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
			err := election.Run(ctx, locks.Another(), "leader", func(ctx context.Context, term *locker.Lock) error {
				if ctx.Value(key{}) != "value" || term.Err() != nil {
					t.Errorf("value %v, term %v", ctx.Value(key{}), term.Err())
				}
				tokens = append(tokens, term.Token())
				stop(errStopped)
				<-ctx.Done()
				return nil
			})
			if !errors.Is(err, errStopped) {
				t.Errorf("Run returns %v", err)
			}
		}
		if len(tokens) != 3 || tokens[0] >= tokens[1] || tokens[1] >= tokens[2] {
			t.Errorf("tokens %v", tokens)
		}
		a, b := start(t, locks, nil), (*candidate)(nil)
		within(t, time.Second, "a leads", a.IsLeader)
		b = start(t, locks.Another(), nil)
		synctest.Wait()
		if b.IsLeader() || b.Term() != nil || a.Term().Token() <= tokens[2] {
			t.Errorf("b leads: %v, a's term has the token %d", b.IsLeader(), a.Term().Token())
		}
		end(t, a)
		within(t, time.Second, "b leads", b.IsLeader)
		end(t, b)
	})
}

func TestAFunctionThatReturnsHasResigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		sorry := errors.New("sorry")
		var terms []*locker.Lock
		err := election.Run(t.Context(), locks, "leader", func(_ context.Context, term *locker.Lock) error {
			if terms = append(terms, term); len(terms) < 3 {
				return nil
			}
			return sorry
		})
		if err != sorry || len(terms) != 3 {
			t.Errorf("after %d terms Run returns %v", len(terms), err)
		}
		for _, term := range terms {
			if term.Err() == nil {
				t.Error("a term goes on")
			}
		}
	})
}

func TestALostTermIsNoReasonToEnd(t *testing.T) {
	for name, lose := range map[string]func(locks *lockertest.Locker, ctx context.Context) error{
		"with the cause": func(locks *lockertest.Locker, ctx context.Context) error {
			locks.Lose("leader")
			<-ctx.Done()
			return context.Cause(ctx)
		},
		"with what broke": func(locks *lockertest.Locker, ctx context.Context) error {
			locks.Lose("leader")
			return errors.New("the connection was closed")
		},
		"with what the guard says": func(*lockertest.Locker, context.Context) error { return fencing.ErrStale },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks := lockertest.New()
				var terms atomic.Int32
				a := start(t, locks, func(ctx context.Context, _ *locker.Lock) error {
					if terms.Add(1) == 1 {
						return lose(locks, ctx)
					}
					<-ctx.Done()
					return nil
				})
				within(t, time.Minute, "it leads again", func() bool { return a.IsLeader() && terms.Load() == 2 })
				end(t, a)
			})
		})
	}
}

// Goal: a guard that has seen a greater token does not end the candidacy: whoever had that
// token may be gone tomorrow. Method: the guard knows a token that the next terms reach.
func TestACandidateWhoseClaimIsRefusedStandsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, guard := lockertest.New(), new(fencing.Memory)
		before, err := locks.TryLock(t.Context(), "leader")
		if err != nil {
			t.Fatal(err)
		}
		seen := before.Token() + 150 // a term has 64
		if err := errors.Join(guard.Check(t.Context(), "leader", seen), before.Unlock(t.Context())); err != nil {
			t.Fatal(err)
		}
		a := start(t, locks, nil, locker.WithGuard(guard, "leader"))
		within(t, time.Minute, "it leads", a.IsLeader)
		if token := a.Term().Token(); token < seen {
			t.Errorf("it leads with token %d, and the guard has seen %d", token, seen)
		}
		end(t, a)
	})
}

// Goal: one lead at a time, also if it does not heed its context.
func TestACandidateDoesNotStandWhileItsFunctionRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		var running atomic.Int32
		a := start(t, locks, func(ctx context.Context, _ *locker.Lock) error {
			if running.Add(1) > 1 {
				t.Error("two at once")
			}
			defer running.Add(-1)
			<-ctx.Done()
			time.Sleep(time.Hour)
			return nil
		})
		within(t, time.Second, "it leads", a.IsLeader)
		locks.Lose("leader")
		if a.IsLeader() {
			t.Error("it leads without its lock")
		}
		time.Sleep(59 * time.Minute)
		if info, err := locks.Inspect(t.Context(), "leader"); err != nil || info.Held || info.Waiters > 0 {
			t.Errorf("it stands: %+v, %v", info, err)
		}
		within(t, 2*time.Minute, "it leads again", a.IsLeader)
		end(t, a)
	})
}

// Goal: the end of a term is told of that term alone. Method: two Runs of one Candidate; the
// first one's function goes on after its term was lost, and returns while the second leads.
func TestAFunctionThatReturnsLateEndsItsOwnTermAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		var terms atomic.Int32
		lead := func(ctx context.Context, _ *locker.Lock) error {
			first := terms.Add(1) == 1
			<-ctx.Done()
			if first {
				time.Sleep(time.Minute)
			}
			return nil
		}
		a := start(t, locks, lead)
		within(t, time.Second, "it leads", a.IsLeader)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx, lead) }()
		synctest.Wait()
		locks.Lose("leader")
		time.Sleep(30 * time.Second)
		o := observe(t, a.Candidate, 0)
		time.Sleep(2 * time.Minute)
		if !a.IsLeader() || o.len() != 1 {
			t.Errorf("while a term goes on (%v), the observer heard %+v", a.IsLeader(), o.all)
		}
		stop()
		<-done
		end(t, a)
	})
}

func TestACandidateOutlastsAStoreThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		locks.Link().Refuse(errors.New("no permission"))
		var asked atomic.Int64 // how often it stood
		a := start(t, locks, nil, locker.WithObserver(func(e locker.Event) {
			if e.Type == locker.EventFailed || e.Type == locker.EventGranted {
				asked.Add(1)
			}
		}))
		time.Sleep(time.Hour)
		locks.Link().Refuse(nil)
		within(t, 6*time.Second, "it leads", a.IsLeader)
		locks.Link().Cut()
		within(t, ttl, "it leads no longer", func() bool { return !a.IsLeader() })
		time.Sleep(time.Hour)
		locks.Link().Heal()
		within(t, 11*time.Second, "it leads again", a.IsLeader)
		end(t, a)
		if n := asked.Load(); n < 2*3600/6 || n > 2*2*3600/5 {
			t.Errorf("it stood %d times in two hours", n)
		}
	})
}

// Goal: not the busy loop of Curator's LeaderLatch (apache/curator#1161).
func TestAFunctionThatReturnsAtOnceIsCalledAtAPaceThatTheStoreBears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		terms := 0
		a := start(t, lockertest.New(), func(context.Context, *locker.Lock) error { terms++; return nil })
		time.Sleep(time.Hour)
		end(t, a)
		if terms < 3600/5 || terms > 2*3600/5+20 {
			t.Errorf("%d terms in an hour", terms)
		}
	})
}

// Goal: what failed long ago does not make a leader late.
func TestAfterALongTermThePauseIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended time.Time
		terms := 0
		err := election.Run(t.Context(), lockertest.New(), "leader", func(context.Context, *locker.Lock) error {
			if pause := time.Since(ended); terms > 0 && pause >= 100*time.Millisecond {
				t.Errorf("a pause of %v after term %d", pause, terms)
			}
			if terms++; terms > 8 {
				return errStopped
			}
			time.Sleep(time.Minute)
			ended = time.Now()
			return nil
		})
		if !errors.Is(err, errStopped) {
			t.Error(err)
		}
	})
}

// Goal: candidates that failed together do not ask together.
func TestPausesAreAtRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := make(map[time.Duration]bool)
		for range 20 {
			began, calls := time.Now(), 0
			ctx, cancel := context.WithCancel(t.Context())
			_ = election.Run(ctx, lockertest.New(), "leader", func(context.Context, *locker.Lock) error {
				if calls++; calls == 2 {
					first[time.Since(began)] = true
					cancel()
				}
				return nil
			})
		}
		if all := slices.Sorted(maps.Keys(first)); len(all) < 10 || all[len(all)-1]-all[0] < 10*time.Millisecond {
			t.Errorf("pauses %v", all)
		}
		for pause := range first {
			if pause < 50*time.Millisecond || pause >= 100*time.Millisecond {
				t.Errorf("a first pause of %v", pause)
			}
		}
	})
}

// Goal: not the node that a closed LeaderLatch leaves behind (apache/curator#524).
func TestACandidateThatEndsLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		a := start(t, locks, nil)
		within(t, time.Second, "a leads", a.IsLeader)
		b := start(t, locks.Another(), nil)
		waiters := func() int {
			info, err := locks.Inspect(t.Context(), "leader")
			if err != nil {
				t.Fatal(err)
			}
			return info.Waiters
		}
		within(t, time.Second, "b waits", func() bool { return waiters() == 1 })
		end(t, b)
		if n := waiters(); n > 0 {
			t.Errorf("%d candidates wait", n)
		}
		end(t, a)
		if lock, err := locks.Another().TryLock(t.Context(), "leader"); err != nil {
			t.Error(err)
		} else {
			_ = lock.Unlock(t.Context())
		}
	})
}

// Goal: not the phantom of etcd's Campaign, which returned nil to a node that had no lease
// any more: the answer that grants the lock arrives after its validity.
func TestAGrantThatComesTooLateIsNoTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		locks.Link().Delay(time.Second) // before the candidate asks
		a := start(t, locks, func(context.Context, *locker.Lock) error { t.Error("it leads"); return nil }, locker.WithMinValidity(9*time.Second))
		time.Sleep(time.Hour)
		end(t, a)
	})
}

// Goal: what resigns is the term, and not whoever leads by now (etcd-io/etcd#22082).
func TestATermThatWasLostResignsForNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		a := start(t, locks, nil)
		within(t, time.Second, "a leads", a.IsLeader)
		b := start(t, locks.Another(), nil)
		first := a.Term()
		locks.Link().Cut()
		within(t, ttl+time.Second, "b leads", b.IsLeader)
		locks.Link().Heal()
		for range 2 {
			if err := first.Unlock(t.Context()); !errors.Is(err, locker.ErrLost) {
				t.Errorf("the lost term resigns: %v", err)
			}
		}
		time.Sleep(ttl)
		if !b.IsLeader() || b.Term().Token() <= first.Token() {
			t.Errorf("b leads: %v, after token %d", b.IsLeader(), first.Token())
		}
		end(t, a, b)
	})
}

// Goal: not the two leaders of Curator's LeaderLatch (apache/curator#1018, #1137, #1169,
// #1211), where events that came in another order set a flag. Method: random faults on the
// links of three candidates, whose functions heed their contexts late.
func TestNeverDoTwoCandidatesLead(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			locks := lockertest.New()
			var mu sync.Mutex
			var last fencing.Token
			terms := 0
			var candidates []*candidate
			for range 3 {
				candidates = append(candidates, start(t, locks.Another(), func(ctx context.Context, term *locker.Lock) error {
					mu.Lock()
					if terms++; term.Token() <= last {
						t.Errorf("seed %d: a term has the token %d after %d", seed, term.Token(), last)
					}
					last = max(last, term.Token())
					mu.Unlock()
					<-ctx.Done()
					time.Sleep(3 * time.Second)
					return nil
				}))
			}
			for range 200 {
				link := candidates[random.IntN(3)].locks.Link()
				switch random.IntN(8) {
				case 0:
					link.Cut()
				case 1:
					link.CutReplies()
				case 2:
					link.Stall()
				case 3:
					link.Delay(time.Duration(random.IntN(4000)) * time.Millisecond)
				case 4:
					link.Delay(0)
				case 5:
					link.Deliver()
				default:
					link.Heal()
				}
				for range 20 {
					time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
					leaders := 0
					for _, c := range candidates {
						if c.IsLeader() {
							leaders++
						}
					}
					if leaders > 1 {
						t.Fatalf("seed %d: %d lead", seed, leaders)
					}
				}
			}
			for _, c := range candidates {
				c.locks.Link().Delay(0)
				c.locks.Link().Heal()
			}
			within(t, time.Minute, "one leads", func() bool {
				return candidates[0].IsLeader() || candidates[1].IsLeader() || candidates[2].IsLeader()
			})
			end(t, candidates...)
			if terms < 3 {
				t.Errorf("seed %d: only %d terms", seed, terms)
			}
		})
	}
}

func TestWhatWouldMakeSeveralLeadersIsRefused(t *testing.T) {
	locks := lockertest.New()
	lead := func(context.Context, *locker.Lock) error { t.Error("it leads"); return errStopped }
	for name, opt := range map[string]locker.Option{
		"shared": locker.WithShared(), "slots": locker.WithSlots(2), "minimum hold": locker.WithMinHold(time.Second),
		"zero": {}, "ttl": locker.WithTTL(1),
	} {
		if err := election.Run(t.Context(), locks, "leader", lead, opt); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := election.Run(t.Context(), locks, "", lead); err == nil {
		t.Error("no name: no error")
	}
	if n := locks.Link().Requests(); n > 0 {
		t.Errorf("%d requests were sent", n)
	}
	_ = locks.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // for one that asks again and again
	defer cancel()
	if err := election.Run(ctx, locks, "leader", lead); !errors.Is(err, locker.ErrClosed) || ctx.Err() != nil { // Run would add the last attempt's error
		t.Errorf("of a closed Locker: %v", err)
	}
}

func TestRunSaysWhatItMayHaveLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, sorry := lockertest.New(), errors.New("sorry")
		a := start(t, locks, func(ctx context.Context, _ *locker.Lock) error {
			<-ctx.Done()
			return sorry
		})
		within(t, time.Second, "it leads", a.IsLeader)
		locks.Link().Cut()
		a.stop(errStopped)
		if err := <-a.done; !errors.Is(err, sorry) || !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("Run returns %v", err)
		}
		locks.Link().Heal()
		_ = locks.Close()

		locks = lockertest.New()
		c := start(t, locks, nil)
		within(t, time.Second, "it leads", c.IsLeader)
		locks.Link().Cut()
		c.stop(errStopped)
		if err := <-c.done; !errors.Is(err, errStopped) || !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("Run returns %v", err)
		}
		locks.Link().Heal()
		_ = locks.Close()

		locks = lockertest.New()
		locks.Link().CutReplies()
		b := start(t, locks, nil)
		time.Sleep(time.Second)
		b.stop(errStopped)
		if err := <-b.done; !errors.Is(err, locker.ErrOutcomeUnknown) || !errors.Is(err, errStopped) {
			t.Errorf("Run returns %v", err)
		}
		locks.Link().Heal()
		_ = locks.Close()
	})
}

// shares is somebody's wrapper with a default that New does not see.
type shares struct{ locker.Locker }

func (s shares) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	return locker.With(s.Locker, locker.WithShared()).Lock(ctx, name, opts...)
}

func TestALockThatSeveralCanHoldIsNoTerm(t *testing.T) {
	lead := func(context.Context, *locker.Lock) error { t.Error("it leads"); return nil }
	err := election.Run(t.Context(), shares{lockertest.New()}, "leader", lead)
	if err == nil || !strings.Contains(err.Error(), "one candidate leads") {
		t.Error(err)
	}
}

func TestDefaultsOfTheLockerAreThoseOfATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.With(lockertest.New(), locker.WithTTL(time.Hour))
		ctx, cancel := context.WithCancel(t.Context())
		err := election.Run(ctx, l, "leader", func(_ context.Context, term *locker.Lock) error {
			if left := time.Until(term.Deadline()); left < 40*time.Second {
				t.Errorf("the term is valid for %v", left)
			}
			cancel()
			return nil
		}, locker.WithMinValidity(40*time.Second))
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
