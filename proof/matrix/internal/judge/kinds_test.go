package judge

import (
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

// atOnce is a history of two who believed at the same time, the second a little later.
func atOnce(a, b history.Span) *history.History {
	h := &history.History{Ended: 10 * second}
	for i, s := range []history.Span{a, b} {
		s.Worker, s.ID = string(rune('A'+i)), 1
		s.Asked, s.From, s.Until = driver.Instant(i+1)*second, driver.Instant(i+1)*second+1, driver.Instant(i+5)*second
		h.Granted(s)
	}
	return h
}

func TestOnlyThoseWhoExcludeEachOtherMustNotHoldAtOnce(t *testing.T) {
	for _, c := range []struct {
		name          string
		first, second history.Span
		want          Verdict
	}{
		{"two readers", history.Span{Name: "n", Token: 1, Shared: true}, history.Span{Name: "n", Token: 2, Shared: true}, Kept},
		{"a writer beside a reader", history.Span{Name: "n", Token: 1, Shared: true}, history.Span{Name: "n", Token: 2}, FalseClaim},
		{"a reader beside a writer", history.Span{Name: "n", Token: 1}, history.Span{Name: "n", Token: 2, Shared: true}, FalseClaim},
		{"two slots", history.Span{Name: "n/0", Token: 1}, history.Span{Name: "n/1", Token: 2}, Kept},
		{"two slots, with tokens of their own", history.Span{Name: "n/0", Token: 2}, history.Span{Name: "n/1", Token: 1}, Kept},
		{"one slot", history.Span{Name: "n/0", Token: 1}, history.Span{Name: "n/0", Token: 2}, FalseClaim},
	} {
		if got, why := judge(locker.Guarantees{}, 0, atOnce(c.first, c.second)); got != c.want {
			t.Errorf("%s: %s (%s), not %s", c.name, got, why, c.want)
		}
	}
}

func TestReadersNumbersAreInOrderLeaseByLease(t *testing.T) {
	for _, c := range []struct {
		name  string
		spans []history.Span
		want  bool // in order
	}{
		{"a reader after a reader", []history.Span{{Worker: "A", Token: 1, Asked: 1, From: 2}, {Worker: "C", Token: 2, Asked: 3, From: 4}}, true},
		{"with a smaller number", []history.Span{{Worker: "A", Token: 2, Asked: 1, From: 2}, {Worker: "C", Token: 1, Asked: 3, From: 4}}, false},
		{"with the same number", []history.Span{{Worker: "A", Token: 1, Asked: 1, From: 2}, {Worker: "C", Token: 1, Asked: 3, From: 4}}, false},
		{"with the number of one who has left", []history.Span{{Worker: "A", Token: 1, Asked: 1, From: 2, Until: 3}, {Worker: "C", Token: 1, Asked: 1, From: 4}}, true},
		{"with the number of one who leaves", []history.Span{{Worker: "A", Token: 1, Asked: 1, From: 2, Until: 5}, {Worker: "C", Token: 1, Asked: 1, From: 4}}, false},
		{"answers in another order", []history.Span{{Worker: "A", Token: 2, Asked: 1, From: 3, Until: 4}, {Worker: "C", Token: 1, Asked: 2, From: 5}}, true},
		{"joined, and noted in another order", []history.Span{{Worker: "A", Token: 1, Asked: 1, From: 3}, {Worker: "A", Token: 1, Asked: 2, From: 2}}, true},
		{"joined later", []history.Span{{Worker: "A", Token: 1, Asked: 1, From: 2}, {Worker: "C", Token: 2, Asked: 3, From: 4}, {Worker: "A", Token: 1, Asked: 5, From: 6}}, true},
	} {
		h := &history.History{Ended: 10}
		for _, s := range c.spans {
			s.Name, s.Shared = "n", true
			h.Granted(s)
		}
		if _, _, disorder := disorder(h, true); disorder == c.want {
			t.Errorf("%s: in order is %v", c.name, !disorder)
		}
	}
}

// Goal: an answer that a network held back while the server forgot the lock and granted others is
// late, and its token is not out of order. Without such an excuse it is.
func TestALateAnswerIsNoDisorderAfterAServerForgot(t *testing.T) {
	g := locker.Guarantees{Exclusion: locker.DurableServer}
	for broken, want := range map[locker.Assumptions]Verdict{locker.DurableServer: Kept, 0: FalseClaim} {
		h := &history.History{Ended: 10 * second}
		h.Granted(history.Span{Worker: "A", Name: "n", Token: 2, Asked: 3 * second, From: 4 * second, Until: 5 * second})
		h.Granted(history.Span{Worker: "D", Name: "n", Token: 1, Asked: 1 * second, From: 6 * second, Until: 7 * second})
		if got, why := judge(g, broken, h); got != want {
			t.Errorf("%v is broken: %s (%s), not %s", broken, got, why, want)
		}
	}
}

// Goal: locks that were over when their answers came say nothing about the order of grants. A wait
// in the server, as that of a transaction, may be longer than the TTL, and answers may overtake.
func TestLocksThatWereOverWhenTheirAnswersCameAreInNoDisorder(t *testing.T) {
	h := &history.History{Ended: 10 * second}
	h.Granted(history.Span{Worker: "B", Name: "n", Token: 2, ID: 1, Asked: 1 * second, From: 6 * second, Until: 4 * second})
	h.Granted(history.Span{Worker: "B", Name: "n", Token: 1, ID: 2, Asked: 2 * second, From: 7 * second, Until: 5 * second})
	if got, why := judge(locker.Guarantees{}, 0, h); got != Kept {
		t.Errorf("%s (%s), not %s", got, why, Kept)
	}
}

// lateBy is a history in which A acts after B was granted the lock and claimed the storage.
func lateBy(a, b history.Write) *history.History {
	h, now := &history.History{}, driver.Now()
	a.Worker, a.Name, b.Worker, b.Name = "A", "n", "B", "n"
	h.Granted(history.Span{Worker: "A", Name: "n", Token: a.Token, Shared: a.Shared, Asked: now, From: now + 1, Until: now + 2})
	h.Claim(a)
	h.Granted(history.Span{Worker: "B", Name: "n", Token: b.Token, Shared: b.Shared, Asked: now + 3, From: now + 4, Until: now + 5})
	h.Claim(b)
	a.At = now + 6
	h.Put(a, nil)
	return h
}

func TestALateReadIsStaleAndRefusedAsALateWriteIs(t *testing.T) {
	g := locker.Guarantees{Exclusion: locker.PromptHolder}
	for _, c := range []struct {
		name           string
		a, b           history.Write
		stale, refused bool
		want           Verdict
	}{
		{"a read after a writer's claim", history.Write{Token: 1, Shared: true}, history.Write{Token: 2}, true, true, Fenced},
		{"a write after a reader's claim", history.Write{Token: 1}, history.Write{Token: 2, Shared: true}, true, true, Fenced},
		{"a read after a reader's claim", history.Write{Token: 1, Shared: true}, history.Write{Token: 2, Shared: true}, false, false, Kept},
		{"a write, and the reader's number is smaller", history.Write{Token: 2}, history.Write{Token: 1, Shared: true}, true, false, FalseClaim},
	} {
		h := lateBy(c.a, c.b)
		if w := h.Writes[0]; w.Stale != c.stale || w.Refused != c.refused {
			t.Errorf("%s: stale %v, refused %v", c.name, w.Stale, w.Refused)
		}
		if got, why := judge(g, locker.PromptHolder, h); got != c.want {
			t.Errorf("%s: %s (%s), not %s", c.name, got, why, c.want)
		}
		if read := strings.Contains(h.Text(), "A reads with"); read != c.a.Shared {
			t.Errorf("%s: the text is\n%s", c.name, h.Text())
		}
	}
}

// Goal: guards that look right are found, whatever the holders do.
func TestAGuardWithoutBothMarksIsNotLinearizable(t *testing.T) {
	reader := func(n fencing.Token, refused bool) history.Write {
		return history.Write{Name: "n", Token: n, Shared: true, Refused: refused}
	}
	writer := func(n fencing.Token, refused bool) history.Write {
		return history.Write{Name: "n", Token: n, Refused: refused}
	}
	for _, c := range []struct {
		name   string
		writes []history.Write
		want   bool
	}{
		{"two marks", []history.Write{reader(1, false), reader(3, false), reader(1, false), writer(2, true), writer(4, false), reader(3, true)}, true},
		{"one mark, which readers raise", []history.Write{reader(1, false), reader(2, false), reader(1, true)}, false},
		{"a mark of writers alone", []history.Write{writer(1, false), reader(2, false), writer(1, false)}, false},
		{"no guard for readers", []history.Write{reader(1, false), writer(2, false), reader(1, false)}, false},
	} {
		h := new(history.History)
		for i, w := range c.writes {
			h.Ops = append(h.Ops, history.Op{Write: w, Called: driver.Instant(2 * i), Returned: driver.Instant(2*i + 1)})
		}
		if got := linearizable(h); got != c.want {
			t.Errorf("%s: linearizable is %v", c.name, got)
		}
	}
}
