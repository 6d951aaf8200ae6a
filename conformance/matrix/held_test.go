package matrix

import (
	"testing"
	"testing/synctest"
	"time"
)

// holdingNet is a network that holds back so many bytes of each direction.
type holdingNet struct {
	Network
	requests, replies int
}

func (n holdingNet) Held() (int, int) { return n.requests, n.replies }

// Goal: what nobody held back was not late.
func TestAStoryInWhichNothingIsHeldBackDoesNotGoOn(t *testing.T) {
	for _, c := range []struct {
		name     string
		net      holdingNet
		of       func(Network) int
		answered bool
		goesOn   bool
	}{
		{"a request", holdingNet{requests: 1}, requests, false, true},
		{"a reply", holdingNet{replies: 1}, replies, false, true},
		{"either", holdingNet{replies: 1}, anything, false, true},
		{"either, the other way", holdingNet{requests: 1}, anything, false, true},
		{"nothing", holdingNet{}, anything, false, false},
		{"a reply only", holdingNet{replies: 1}, requests, false, false},
		{"a request only", holdingNet{requests: 1}, replies, false, false},
		{"something else", holdingNet{requests: 1}, requests, true, false},
	} {
		p := &Play{ctx: t.Context(), History: &History{}, TTL: 10 * time.Millisecond}
		answer := make(chan report, 1)
		if c.answered {
			answer <- report{Err: "lost"}
		}
		w := &Worker{Name: "A", Net: c.net, play: p}
		if err := p.step(func() { w.heldBack("it", c.of, func() <-chan report { return answer }) }); (err == nil) != c.goesOn {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// attempts returns a worker of whose attempts each gets the next answer, and the
// last one again and again.
func attempts(t *testing.T, ttl time.Duration, answers ...report) *Worker {
	w := &Worker{Name: "C", waiting: make(map[int]chan report), gone: make(chan struct{})}
	w.play = &Play{ctx: t.Context(), System: &System{}, History: &History{}, TTL: ttl}
	w.out = newLines(writerFunc(func() {
		r := answers[0]
		if len(answers) > 1 {
			answers = answers[1:]
		}
		r.ID = w.last
		w.hear(r)
	}))
	return w
}

// Goal: only a store that says that the lock is taken has kept it from others.
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
			if err := w.play.step(func() { w.play.nobodyElse(w) }); (err != nil) != c.missed {
				t.Errorf("%s: %v", c.name, err)
			}
			if took := time.Since(begin); c.missed && (took < w.play.long() || took > w.play.long()+2*w.play.TTL) {
				t.Errorf("%s: given up after %v", c.name, took)
			}
		})
	}
}

// Goal: a lock that was refused for another reason says nothing about replicas.
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
	if err := refused.play.step(func() { refused.tryUnheard() }); err == nil {
		t.Error("a refusal at once passes for a replica that was waited for")
	}
	lucky := attempts(t, time.Second, report{Kind: kindGranted, Name: "n", Token: 1})
	if g, granted := lucky.tryUnheard(); !granted || g.Token != 1 {
		t.Errorf("%+v, granted: %v", g, granted)
	}
}
