package fencing

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestTokensAreWrittenAndReadInDecimal(t *testing.T) {
	for text, token := range map[string]Token{
		"0":                    0,
		"1":                    1,
		"1763700000000000":     1763700000000000,
		"18446744073709551615": 1<<64 - 1,
	} {
		if got := token.String(); got != text {
			t.Errorf("String of %d is %q", uint64(token), got)
		}
		if got, err := ParseToken(text); err != nil || got != token {
			t.Errorf("Parse(%q) = %d, %v; want %d", text, got, err, token)
		}
	}
}

func TestParseRefusesWhatIsNoToken(t *testing.T) {
	for _, text := range []string{"", " 1", "1 ", "+1", "-1", "0x1f", "1_000", "1.0", "1e3", "18446744073709551616", "token"} {
		token, err := ParseToken(text)
		if err == nil || token != 0 {
			t.Errorf("Parse(%q) = %d, %v; want an error", text, token, err)
		} else if !strings.HasPrefix(err.Error(), "fencing: ") {
			t.Errorf("Parse(%q): error %q does not say who speaks", text, err)
		}
	}
}

func TestAGuardAcceptsEqualAndGreaterTokensAndRefusesSmallerOnes(t *testing.T) {
	var m Memory
	for i, step := range []struct {
		resource string
		token    Token
		seen     Token // what a refusal must name; 0 for none
	}{
		{"a", 5, 0},
		{"a", 5, 0}, // the same holder's next write
		{"a", 4, 5},
		{"a", 7, 0},
		{"a", 5, 7},
		{"a", 6, 7},
		{"b", 1, 0}, // another resource has seen nothing
		{"a", 1<<64 - 1, 0},
		{"a", 7, 1<<64 - 1},
	} {
		err := m.Check(t.Context(), step.resource, step.token)
		var stale *StaleError
		switch {
		case step.seen == 0 && err != nil:
			t.Errorf("step %d: token %d was refused: %v", i, step.token, err)
		case step.seen != 0 && !errors.Is(err, ErrStale):
			t.Errorf("step %d: token %d gave %v, want ErrStale", i, step.token, err)
		case step.seen != 0 && (!errors.As(err, &stale) || *stale != StaleError{Resource: step.resource, Token: step.token, Seen: step.seen}):
			t.Errorf("step %d: refused with %+v, want resource %q, token %d, seen %d", i, stale, step.resource, step.token, step.seen)
		}
	}
}

func TestZeroTokenIsRefusedAndWritesNothing(t *testing.T) {
	var m Memory
	written := false
	if err := m.Write(t.Context(), "r", 0, func() error { written = true; return nil }); !errors.Is(err, ErrZeroToken) || written {
		t.Errorf("a write: %v, written %t", err, written)
	}
	if err := m.Check(t.Context(), "r", 0); !errors.Is(err, ErrZeroToken) || errors.Is(err, ErrStale) {
		t.Errorf("a check of what was never seen: %v", err)
	}
	if err := m.Check(t.Context(), "r", 1); err != nil {
		t.Errorf("the first token after it: %v", err)
	}
}

func TestStaleErrorSaysWhatIsWrong(t *testing.T) {
	err := &StaleError{Resource: "orders/7", Token: 3, Seen: 9}
	const want = `stale fencing token: "orders/7" has seen token 9, this writer has 3: the lock has had another holder since`
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}

func TestWriteRunsOnlyWithATokenThatIsNotStale(t *testing.T) {
	var m Memory
	written := ""
	write := func(s string) func() error {
		return func() error { written += s; return nil }
	}
	for _, c := range []struct {
		token Token
		text  string
		stale bool
	}{{1, "a", false}, {3, "b", false}, {2, "x", true}, {3, "c", false}} {
		if err := m.Write(t.Context(), "r", c.token, write(c.text)); errors.Is(err, ErrStale) != c.stale {
			t.Errorf("write with token %d: %v", c.token, err)
		}
	}
	if written != "abc" {
		t.Errorf("written %q, want %q", written, "abc")
	}
}

func TestAFailedWriteStillTellsTheGuardItsToken(t *testing.T) {
	var m Memory
	disk := errors.New("disk full")
	if err := m.Write(t.Context(), "r", 5, func() error { return disk }); err != disk {
		t.Fatalf("Write returned %v, want what write returned", err)
	}
	if err := m.Check(t.Context(), "r", 4); !errors.Is(err, ErrStale) {
		t.Errorf("an earlier token after a failed write: %v", err)
	}
}

func TestAWriteThatPanicsLeavesTheGuardUsable(t *testing.T) {
	var m Memory
	func() {
		defer func() { _ = recover() }()
		_ = m.Write(t.Context(), "r", 5, func() error { panic("write") })
	}()
	if err := m.Check(t.Context(), "r", 5); err != nil {
		t.Error(err)
	}
}

func TestCountersCountEachNameByItself(t *testing.T) {
	var m Memory
	for _, step := range []struct {
		name string
		want Token
	}{{"a", 1}, {"a", 2}, {"b", 1}, {"a", 3}} {
		if got, err := m.Next(t.Context(), step.name); err != nil || got != step.want {
			t.Errorf("Next(%q) = %d, %v; want %d", step.name, got, err, step.want)
		}
	}
	if err := m.Check(t.Context(), "a", 1); err != nil {
		t.Errorf("what the counter gave out counted as seen by the guard: %v", err)
	}
}

func TestMemoryDoesNothingWhenTheContextIsOver(t *testing.T) {
	var m Memory
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Write(ctx, "r", 5, func() error { t.Error("written"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("Write: %v", err)
	}
	if err := m.Check(t.Context(), "r", 1); err != nil {
		t.Errorf("the token of a write that did not happen was remembered: %v", err)
	}
	if n, err := m.Next(ctx, "r"); !errors.Is(err, context.Canceled) || n != 0 {
		t.Errorf("Next = %d, %v", n, err)
	}
	if n, _ := m.Next(t.Context(), "r"); n != 1 {
		t.Errorf("a refused Next used up a number: the first is %d", n)
	}
}

// Writers draw tokens and write with them after a random delay, so that many
// come late. Whatever was written must be in the order of its tokens.
func TestConcurrentWritesAreInTheOrderOfTheirTokens(t *testing.T) {
	const writers, rounds = 16, 500
	var m Memory
	var log []Token // written under the Memory's mutex alone
	var wg sync.WaitGroup
	drawn := make([][]Token, writers)
	for w := range writers {
		wg.Go(func() {
			for range rounds {
				token, err := m.Next(t.Context(), "n")
				if err != nil {
					t.Error(err)
				}
				drawn[w] = append(drawn[w], token)
				late := drawn[w][rand.IntN(len(drawn[w]))]
				err = m.Write(t.Context(), "n", late, func() error { log = append(log, late); return nil })
				if err != nil && !errors.Is(err, ErrStale) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	seen := make(map[Token]bool)
	for _, tokens := range drawn {
		for _, token := range tokens {
			if seen[token] {
				t.Fatalf("token %d was given out twice", token)
			}
			seen[token] = true
		}
	}
	for i := 1; i < len(log); i++ {
		if log[i] < log[i-1] {
			t.Fatalf("write with token %d came after %d", log[i], log[i-1])
		}
	}
	if len(seen) != writers*rounds || len(log) == 0 {
		t.Errorf("%d tokens and %d writes", len(seen), len(log))
	}
}

// A later holder's write waits for the end of one that was checked before it.
func TestNoWriteComesBetweenACheckAndItsWrite(t *testing.T) {
	var m Memory
	later := make(chan error, 1)
	err := m.Write(t.Context(), "r", 1, func() error {
		go func() { later <- m.Write(t.Context(), "r", 2, func() error { return nil }) }()
		select {
		case err := <-later:
			t.Errorf("the later write came between (%v)", err)
			later <- nil
		case <-time.After(100 * time.Millisecond): // it would have come at once
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := <-later; err != nil {
		t.Error(err)
	}
}
