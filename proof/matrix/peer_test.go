package matrix

import (
	"context"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/local"
)

// staleWrite is a history in which A writes with token 1 after B was granted the lock.
func staleWrite(tokenless bool, tokenOfB fencing.Token) *History {
	h := &History{Tokenless: tokenless}
	now := locker.Now()
	h.granted(Span{Worker: "A", Name: "n", Token: 1, Asked: now, From: now + 1, Until: now + 2})
	h.claim(Write{Worker: "A", Name: "n", Token: 1})
	h.granted(Span{Worker: "B", Name: "n", Token: tokenOfB, Asked: now + 3, From: now + 4, Until: now + 5})
	h.claim(Write{Worker: "B", Name: "n", Token: tokenOfB})
	h.write(Write{Worker: "A", Name: "n", Token: 1, At: now + 6})
	return h
}

func TestAStaleWriteWithoutATokenIsBrokenAndWithOneIsFenced(t *testing.T) {
	none := locker.Guarantees{Exclusion: locker.PromptHolder, Tokens: locker.Unpromised}
	some := locker.Guarantees{Exclusion: locker.PromptHolder}
	for _, c := range []struct {
		name   string
		g      locker.Guarantees
		broken locker.Assumptions
		h      *History
		want   Verdict
	}{
		{"no token, as declared", none, locker.PromptHolder, staleWrite(true, 1), Broken},
		{"no token, and it leans on something else", none, locker.DurableServer, staleWrite(true, 1), FalseClaim},
		{"no token, and nothing is broken", none, 0, staleWrite(true, 1), FalseClaim},
		{"a token", some, locker.PromptHolder, staleWrite(false, 2), Fenced},
		{"a token is promised, and there is none", some, locker.PromptHolder, staleWrite(false, 1), FalseClaim},
	} {
		if got, why := judge(c.g, c.broken, c.h); got != c.want {
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

func TestNothingRefusesAWriteWithoutAToken(t *testing.T) {
	h := staleWrite(true, 2) // the numbers of grants are no tokens
	h.write(Write{Worker: "B", Name: "n", Token: 2, At: locker.Now()})
	h.write(Write{Worker: "A", Name: "n", Token: 1, At: locker.Now()})
	if h.Writes[2].Refused || len(h.ops) > 0 {
		t.Errorf("there was a guard: %+v", h.Writes)
	}
}

func TestOneHolderAfterAnotherIsKeptWithoutTokens(t *testing.T) {
	h := &History{Tokenless: true}
	for from, worker := range []string{"A", "B"} {
		h.granted(Span{Worker: worker, Name: "n", Token: 1, From: locker.Instant(10*from + 1), Until: locker.Instant(10*from + 5)})
	}
	if got, why := judge(locker.Guarantees{Tokens: locker.Unpromised}, 0, h); got != Kept {
		t.Errorf("%q (%s), not %q", got, why, Kept)
	}
}

func TestASubjectThatPromisesTokensIsNotTakenForTokenless(t *testing.T) {
	if (Subject{}).Tokenless() || !(Subject{Guarantees: locker.Guarantees{Tokens: locker.Unpromised}}).Tokenless() {
		t.Error("a subject is tokenless if, and only if, it does not promise tokens")
	}
}

func TestWhatIsNotPromisedIsNeitherModestNorUntried(t *testing.T) {
	g := locker.Guarantees{Tokens: locker.Unpromised}
	if modest, untried := found(g, Kept, Kept, Kept).unproven(nil); len(modest)+len(untried) > 0 {
		t.Errorf("modest %v, not tried %v", modest, untried)
	}
}

func TestAStoppedProcessBelievesNothing(t *testing.T) {
	second := locker.Instant(time.Second)
	h := &History{Ended: 10 * second}
	h.granted(Span{Worker: "A", Name: "n", Token: 1, From: 1 * second})
	h.granted(Span{Worker: "B", Name: "n", Token: 2, From: 4 * second})
	h.Pauses = []Pause{{Worker: "A", From: 2 * second, Until: 9 * second}, {Worker: "C", From: 0}}
	if got := h.Overlap(); got != time.Second { // from A's waking to the end
		t.Errorf("two holders for %v, not 1s", got)
	}
	h.Pauses[0].Until = 0
	if got := h.Overlap(); got != 0 {
		t.Errorf("two holders for %v though one never wakes", got)
	}
	h.Pauses[0].Midway = true
	if got := h.Overlap(); got != 6*time.Second {
		t.Errorf("two holders for %v, one of them about to write, not 6s", got)
	}
}

// Goal: grants without a token are told apart by their number, and a refusal has none.
func TestAWorkerNumbersGrantsThatHaveNoToken(t *testing.T) {
	l, err := local.New(t.TempDir(), local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	peer := AsPeer(l)
	req := &locker.Request{Name: "n", TTL: time.Second, Renew: true}
	lock, err := peer.TryLock(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock(context.Background())
	if refused, err := peer.TryLock(context.Background(), req); err == nil || refused != nil {
		t.Errorf("a refused lock is %v with the error %v", refused, err)
	}
	w := &worker{held: make(map[int]numbered)}
	for _, c := range []struct {
		lock Holding
		want fencing.Token
	}{{blank{lock}, 1}, {blank{lock}, 2}, {lock, lock.Token()}} {
		if got, err := w.keep(order{Name: "n"}, c.lock); err != nil || got.Token() != c.want {
			t.Errorf("the number is %d, not %d (%v)", got.Token(), c.want, err)
		}
	}
}

// blank is a lock without a token.
type blank struct{ Holding }

func (blank) Token() fencing.Token { return 0 }
