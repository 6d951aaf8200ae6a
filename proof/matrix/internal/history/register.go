package history

import (
	"fmt"
	"slices"

	"github.com/lockstile/locker/fencing"
)

// Entry is a row of the register of a name: see matrix.Entry.
type Entry struct {
	ID     int64
	PID    int
	Token  fencing.Token
	Shared bool
	Claim  bool
	Value  int
	Saw    []int64
}

// Committed adds the writes that were committed, and marks the holders that committed
// nothing.
func (h *History) Committed(entries []Entry, name string, workers map[int]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.Spans {
		s := &h.Spans[i]
		if s.Name != name {
			continue
		}
		s.Void = !claimedBy(*s, h.Spans[i+1:], entries, workers)
		if s.Void {
			s.Until, s.End = h.EndOf(*s), "nothing of it was committed; "+s.End
		}
	}
	for _, e := range entries {
		if e.Claim {
			continue
		}
		w := Write{Worker: workers[e.PID], Name: name, Token: e.Token, Shared: e.Shared, Value: e.Value, Stale: outOfTurn(e, entries), At: h.Ended}
		for _, s := range h.Spans {
			if s.Wrote(w) && s.Until != 0 {
				w.At = s.Until // the commit was on its way
			}
		}
		h.Writes = append(h.Writes, w)
	}
}

// Missing returns an error if a commit was confirmed and is not in the register.
func (h *History) Missing() error {
	for _, s := range h.Spans {
		if s.Void && s.Unlocked {
			return fmt.Errorf("the register has no claim of %s with token %d, whose commit was confirmed", s.Worker, s.Token)
		}
	}
	return nil
}

// claimedBy reports whether a span has a claim in the register. After a failover a worker may be
// given a token again that it had had from the server that is lost: the claim is the later span's.
func claimedBy(s Span, later []Span, entries []Entry, workers map[int]string) bool {
	claims := 0
	for _, e := range entries {
		if e.Claim && workers[e.PID] == s.Worker && e.Token == s.Token {
			claims++
		}
	}
	for _, l := range later {
		if l.Name == s.Name && l.Worker == s.Worker && l.Token == s.Token {
			claims--
		}
	}
	return claims > 0
}

// outOfTurn reports whether a write was committed out of turn. The claims
// with a greater token must have seen the write, and no other claim. No clock is needed
// to tell. Readers may see one another's reads or not.
func outOfTurn(write Entry, entries []Entry) bool {
	return slices.ContainsFunc(entries, func(claim Entry) bool {
		return claim.Claim && (!claim.Shared || !write.Shared) && (claim.Token > write.Token) != slices.Contains(claim.Saw, write.ID)
	})
}
