package matrix

import (
	"context"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/local"
)

// stale is a history in which A writes after B was granted the lock, and both
// believe for a while.
func stale(tokenless bool) *History {
	h := &History{Began: 0, Ended: 100, Tokenless: tokenless}
	now := locker.Now()
	h.granted(Span{Worker: "A", Name: "n", Token: 1, Asked: now, From: now + 1})
	h.claim("A", "n", 1)
	h.granted(Span{Worker: "B", Name: "n", Token: 1 + token(tokenless), Asked: now + 2, From: now + 3})
	h.claim("B", "n", 1+token(tokenless))
	h.write(Write{Worker: "A", Name: "n", Token: 1, At: locker.Now()})
	return h
}

// token is what B's is greater by than A's: without tokens both are a worker's
// first grant.
func token(tokenless bool) fencing.Token {
	if tokenless {
		return 0
	}
	return 1
}

func TestAStaleWriteWithoutATokenIsBrokenAndWithOneIsFenced(t *testing.T) {
	leaning := locker.Guarantees{Exclusion: locker.PromptHolder, Tokens: locker.Unpromised}
	for _, c := range []struct {
		name      string
		g         locker.Guarantees
		broken    locker.Assumptions
		tokenless bool
		want      Verdict
	}{
		{"no token, as declared", leaning, locker.PromptHolder, true, Broken},
		{"no token, and it leans on something else", leaning, locker.DurableServer, true, FalseClaim},
		{"no token, and nothing is broken", leaning, 0, true, FalseClaim},
		{"a token", locker.Guarantees{Exclusion: locker.PromptHolder}, locker.PromptHolder, false, BrokenFenced},
		{"a promise of tokens that are not there", locker.Guarantees{Exclusion: locker.PromptHolder}, locker.PromptHolder, true, Broken},
	} {
		if got, why := judge(c.g, c.broken, stale(c.tokenless)); got != c.want {
			t.Errorf("%s: %q (%s), not %q", c.name, got, why, c.want)
		}
	}
}

func TestTwoHoldersWithoutTokensAreNotFencedThoughNobodyWrites(t *testing.T) {
	h := &History{Ended: locker.Instant(time.Second), Tokenless: true}
	h.granted(Span{Worker: "A", Name: "n", Token: 1, From: 1})
	h.granted(Span{Worker: "B", Name: "n", Token: 1, From: 2})
	g := locker.Guarantees{Exclusion: locker.SteadyClocks, Tokens: locker.Unpromised}
	if got, why := judge(g, locker.SteadyClocks, h); got != Broken {
		t.Errorf("%q (%s), not %q", got, why, Broken)
	}
}

func TestASubjectThatPromisesTokensIsNotTakenForTokenless(t *testing.T) {
	if (Subject{}).Tokenless() || !(Subject{Guarantees: locker.Guarantees{Tokens: locker.Unpromised}}).Tokenless() {
		t.Error("a subject is tokenless if, and only if, it does not promise tokens")
	}
}

func TestAStoppedProcessBelievesNothing(t *testing.T) {
	second := locker.Instant(time.Second)
	h := &History{Ended: 10 * second}
	h.granted(Span{Worker: "A", Name: "n", Token: 1, From: 1 * second})
	h.granted(Span{Worker: "B", Name: "n", Token: 2, From: 4 * second})
	h.away = []absence{{worker: "A", from: 2 * second, until: 9 * second}, {worker: "C", from: 0}}
	if got := h.Overlap(); got != time.Second { // from A's waking to the end
		t.Errorf("two holders for %v, not 1s", got)
	}
	h.away[0].until = 0
	if got := h.Overlap(); got != 0 {
		t.Errorf("two holders for %v though one never wakes", got)
	}
}

// Grants without a token are told apart by their number, and one that was refused
// is none.
func TestAWorkerNumbersGrantsThatHaveNoToken(t *testing.T) {
	l, err := local.New(t.TempDir(), local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	peer := AsPeer(l)
	req := &locker.Request{Name: "n", TTL: time.Second, Renew: true}
	real, err := peer.TryLock(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	defer real.Unlock(context.Background())
	if refused, err := peer.TryLock(context.Background(), req); err == nil || refused != nil {
		t.Errorf("a refused lock is %v with the error %v", refused, err)
	}
	w := &worker{held: make(map[string]Holding)}
	w.keep("n", blank{real})
	if got := w.keep("n", blank{real}).Token(); got != 2 {
		t.Errorf("the second grant has the number %d", got)
	}
	if got := w.keep("n", real).Token(); got != real.Token() {
		t.Errorf("token %d became %d", real.Token(), got)
	}
}

// blank is a lock without a token.
type blank struct{ Holding }

func (blank) Token() fencing.Token { return 0 }
