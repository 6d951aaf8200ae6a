package matrix

import (
	"fmt"
	"time"

	"github.com/lockstile/locker/proof/matrix/internal/history"
	"github.com/lockstile/locker/proof/matrix/internal/judge"
)

// Verdict is how a subject came through a scenario.
type Verdict = judge.Verdict

const (
	// Kept: one holder at a time, tokens in order.
	Kept Verdict = judge.Kept
	// Unavailable: kept, but nobody could lock for a while.
	Unavailable Verdict = judge.Unavailable
	// Fenced: two holders believed at once, or a stale write was made,
	// or an update was lost without the guard, as declared; the guard refused
	// every stale write that came after the next holder's claim. It cannot
	// refuse earlier ones.
	Fenced Verdict = judge.Fenced
	// Broken: a stale write got past the guard, or tokens went back, as
	// declared; or an update was lost with the guard; or any of this was seen
	// without it, and there is no token by which a guard could tell.
	Broken Verdict = judge.Broken
	// FalseClaim: something broke that the declaration promises, or nobody
	// could lock any more though no assumption was broken, or a caller was
	// told that it holds nothing although it did.
	FalseClaim Verdict = judge.FalseClaim
	// Skipped: this fault cannot be injected here, or the server is missing.
	Skipped Verdict = judge.Skipped
	// NotPlayed: something that has nothing to do with the fault went wrong,
	// so the run shows nothing.
	NotPlayed Verdict = judge.NotPlayed
)

// Cell is one scenario on one subject.
type Cell struct {
	Scenario string        `json:"scenario"`
	Subject  string        `json:"subject"`
	Verdict  Verdict       `json:"verdict"`
	Why      string        `json:"why"`
	Overlap  time.Duration `json:"overlap"`
	Stale    int           `json:"stale"`  // stale writes that storage without a guard took
	Passed   int           `json:"passed"` // those that passed the guard
	Waited   time.Duration `json:"waited"` // until the next lock after the fault
	// Standstill says that nobody could lock any more.
	Standstill bool `json:"standstill,omitempty"`
	// History is what happened; nil if there was nothing to play on. Its Text says it in words.
	History *history.History `json:"history"`

	scenario Scenario // as it was played: a round decides what it breaks
}

// cell judges the play. still is the error of a store that granted nothing until patience ended, or nil.
func (p *play) cell(cell Cell, sub Subject, still *standstill) Cell {
	h, breaks := p.History, p.scenario.Breaks
	cell.scenario = p.scenario
	f := judge.Find(sub.Guarantees, breaks, h)
	cell.History, cell.Waited, cell.Overlap, cell.Stale, cell.Passed = h, p.Waited, f.Overlap, f.Stale, f.Passed
	cell.Verdict, cell.Why = f.Verdict, f.Why
	switch {
	case cell.Verdict == FalseClaim:
	case still != nil && (breaks == 0 || h.Faults == 0): // before its fault a scenario has broken nothing
		cell.Verdict, cell.Why = FalseClaim, fmt.Sprintf("no lock for %v though nothing that it assumes is broken: %v", patience, still)
	case cell.Verdict != Kept:
	case still != nil:
		cell.Verdict, cell.Waited, cell.Standstill, cell.Why = Unavailable, patience, true, fmt.Sprintf("nobody could lock for more than %v: %v", patience, still)
	case p.Waited > unavailableAfter:
		cell.Verdict, cell.Why = Unavailable, fmt.Sprintf("nobody could lock for %v", p.Waited.Round(10*time.Millisecond))
	}
	cell.Why = judge.Joined(cell.Why, h.LostUpdates())
	return cell
}

// unavailableAfter is how long the next lock may take before the verdict is unavailable:
// as long as a busy machine needs for a lock that is free, and less than any wait for
// the store, such as the half second that a waiter has to claim its turn.
const unavailableAfter = 400 * time.Millisecond
