package matrix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

// failing is a Locker whose attempts end with an error.
type failing struct {
	locker.Locker
	err error
}

func (f failing) TryLock(context.Context, string, ...locker.Option) (*locker.Lock, error) {
	return nil, f.err
}

// foreign is another library's lock: its errors are not those of the contract.
type foreign struct {
	Peer
	err error
}

func (f foreign) TryLock(context.Context, *driver.Request) (Holding, error) { return nil, f.err }

func TestOnlyALockerThatKnowsTheOutcomePromisesThatNothingIsHeld(t *testing.T) {
	silence := fmt.Errorf("%w: %w", locker.ErrUnavailable, context.DeadlineExceeded)
	unknown := fmt.Errorf("%w: %w", locker.ErrOutcomeUnknown, silence)
	for _, c := range []struct {
		name string
		peer Peer
		want bool
	}{
		{"a Locker, taken", AsPeer(failing{err: locker.ErrTaken}), true},
		{"a Locker, unavailable", AsPeer(failing{err: silence}), true},
		{"a Locker, before it asked", AsPeer(failing{err: errors.New("bad name")}), true},
		{"a Locker, unknown", AsPeer(failing{err: unknown}), false},
		{"another lock, taken", foreign{err: locker.ErrTaken}, false},
		{"another lock, silence", foreign{err: context.DeadlineExceeded}, false},
	} {
		w, r := &workerProcess{peer: c.peer, out: newLines(io.Discard), held: make(map[int]numbered)}, report{}
		if l := w.lock(t.Context(), order{Name: "n"}, c.peer.TryLock, &r); l != nil || r.Kind != kindRefused {
			t.Errorf("%s: %+v", c.name, r)
		}
		if r.Nothing != c.want {
			t.Errorf("%s: it promises that nothing is held: %v", c.name, r.Nothing)
		}
	}
}

// attempts returns a worker whose attempts get these answers, one after another, and
// then the last one again and again.
func attempts(t *testing.T, ttl time.Duration, answers ...report) *worker {
	w := &worker{Name: "C", waiting: make(map[int]chan report), gone: make(chan struct{})}
	w.play = &play{ctx: t.Context(), System: &System{}, History: &history.History{}, TTL: ttl}
	w.out = newLines(ordersFunc(func(o order) {
		r := answers[0]
		if len(answers) > 1 {
			answers = answers[1:]
		}
		r.ID = o.ID
		w.hear(r)
	}))
	return w
}

// Goal: only a store that calls the lock taken has refused it because it is held.
func TestOnlyTakenMeansThatNobodyElseCanHaveIt(t *testing.T) {
	taken := report{Kind: kindRefused, Err: "taken", Taken: true}
	other := report{Kind: kindRefused, Err: "wrong password", NoStore: true}
	for _, c := range []struct {
		name    string
		answers []report
		missed  bool
	}{
		{"taken", []report{taken}, false},
		{"something else, then taken", []report{other, taken}, false},
		{"something else for ever", []report{other}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, begin := attempts(t, time.Second, c.answers...), time.Now()
			if err := try(func() { w.play.nobodyElse(w) }); (err != nil) != c.missed {
				t.Errorf("%s: %v", c.name, err)
			}
			if took := time.Since(begin); c.missed && (took < w.play.long() || took > w.play.long()+2*w.play.TTL) {
				t.Errorf("%s: given up after %v", c.name, took)
			}
		})
	}
}

// Goal: a refusal for another reason says nothing about replicas.
func TestAReplicaIsWaitedForBeforeALockIsRefusedForWantOfIt(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer report
		took   time.Duration
		want   bool
	}{
		{"no confirmation", report{NoStore: true}, time.Second, true},
		{"outcome unknown", report{Unknown: true}, time.Second, true},
		{"at once", report{NoStore: true}, shortly / 2, false},
		{"taken", report{NoStore: true, Taken: true}, time.Second, false},
		{"something else", report{}, time.Second, false},
	} {
		if got := (&refusal{report: c.answer}).unconfirmed(c.took); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	refused := attempts(t, time.Second, report{Kind: kindRefused, Err: "wrong password"})
	if err := try(func() { refused.tryUnconfirmed() }); err == nil {
		t.Error("a refusal at once passes for a replica that was waited for")
	}
	lucky := attempts(t, time.Second, report{Kind: kindGranted, Name: "n", Token: 1})
	if g, granted := lucky.tryUnconfirmed(); !granted || g.Token != 1 {
		t.Errorf("%+v, granted: %v", g, granted)
	}
}
