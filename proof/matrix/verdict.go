package matrix

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockstile/locker"
)

// Verdict is how a subject came through a scenario.
type Verdict string

const (
	// Kept: one holder at a time, tokens in order.
	Kept Verdict = "kept"
	// Unavailable: kept, but nobody could lock for a while.
	Unavailable Verdict = "unavailable"
	// Fenced: two holders believed at once, or a stale write was made,
	// or an update was lost without the guard, as declared; the guard refused
	// every stale write that came after the next holder's claim. It cannot
	// refuse earlier ones.
	Fenced Verdict = "fenced"
	// Broken: a stale write got past the guard, or tokens went back, as
	// declared; or an update was lost with the guard; or any of this was seen
	// without it, and there is no token by which a guard could tell.
	Broken Verdict = "broken"
	// FalseClaim: something broke that the declaration promises, or nobody
	// could lock any more though no assumption was broken, or a caller was
	// told that it holds nothing although it did.
	FalseClaim Verdict = "FALSE CLAIM"
	// Skipped: this fault cannot be injected here, or the server is missing.
	Skipped Verdict = "skipped"
	// NotPlayed: something that has nothing to do with the fault went wrong,
	// so the run shows nothing.
	NotPlayed Verdict = "not played"
)

// Cell is one scenario on one subject.
type Cell struct {
	Scenario string        `json:"scenario"`
	Subject  string        `json:"subject"`
	Verdict  Verdict       `json:"verdict"`
	Why      string        `json:"why"`
	Overlap  time.Duration `json:"overlap"`
	Stale    int           `json:"stale"`   // stale writes that storage without a guard took
	Passed   int           `json:"passed"`  // those that passed the guard
	Waited   time.Duration `json:"waited"`  // until the next lock after the fault
	History  *History      `json:"history"` // nil if there was nothing to play on

	scenario Scenario // as it was played: a round decides what it breaks
}

// slack is by how much the times that two processes read may differ.
const slack = 5 * time.Millisecond

// judge compares what happened with what was declared. Only broken was broken. That a holder was
// stopped excuses its late writes, and no second holder: a stopped process believes nothing,
// unless it is midway. A late write excuses nothing else.
func judge(g locker.Guarantees, broken locker.Assumptions, h *History) (v Verdict, why string) {
	broken |= locker.Unpromised
	stale, passed := h.Stale()
	overlap, awake := h.overlap()
	if stale > 0 && overlap <= slack && h.unrenewed() { // see [locker.Guarantees]
		g.Exclusion |= locker.PromptHolder
	}
	exclusionMay, tokensMay := g.Exclusion&broken != 0, g.Tokens&broken != 0 || h.Tokenless
	storeMay := g.Exclusion&broken&^locker.PromptHolder != 0 // grant a lock that somebody has
	heldMay := storeMay || exclusionMay && overlap > awake
	first, second, disorder := h.disorder(!storeMay || tokensMay) // a doubt blames nobody for what is promised
	victim, takenAway := h.TakenAway()
	unlawful, lawful := h.unlawful(!heldMay, !tokensMay)
	lost := h.Updates.lost()
	twoHeld := overlap > slack || stale > 0 || len(lost.Unguarded) > 0
	hindered := stale > 0 && h.hindered() && overlap <= slack && len(lost.Unguarded) == 0 && !exclusionMay && g.Exclusion.Has(locker.PromptHolder)
	switch {
	case !h.Linearizable():
		return FalseClaim, "the guarded register is not linearizable"
	case h.Untrue != "": // no fault excuses a false statement
		return FalseClaim, h.Untrue
	case len(lost.Guarded) > 0 && !tokensMay:
		return FalseClaim, "the guard let an update be lost"
	case h.Updates.lostInCalm() && !g.Exclusion.Has(locker.Unpromised):
		return FalseClaim, "an update was lost before anybody was paused"
	case disorder && !tokensMay:
		return FalseClaim, fmt.Sprintf("token %d of %s came after token %d of %s", second.Token, second.Worker, first.Token, first.Worker)
	case passed > 0 && !tokensMay:
		return FalseClaim, count(passed, "stale write") + " got past the guard"
	case h.misled() > 0 && !storeMay:
		return FalseClaim, count(h.misled(), "holder") + " looked at the lock and believed, though somebody else had been granted it"
	case twoHeld && !exclusionMay && !hindered, awake > slack && !storeMay:
		return FalseClaim, said(overlap, stale, "")
	case lawful == porcupine.Illegal:
		return FalseClaim, "no order of the calls on " + unlawful + " is one that a lock with tokens allows"
	case lawful == porcupine.Unknown:
		return NotPlayed, fmt.Sprintf("whether there is a lawful order of the calls on %s was not found out in %v", unlawful, checkTime)
	case takenAway && broken == locker.Unpromised && !exclusionMay: // a server that forgot its data takes a lock away, too, and gives it to nobody
		return FalseClaim, fmt.Sprintf("the store gave the lock of %s away while it was valid", victim.Worker)
	case hindered:
		return NotPlayed, count(stale, "stale write") + " took long from the look at the lock to the storage, which no fault was to cause"
	case h.Tokenless && twoHeld:
		return Broken, said(overlap, stale, "there is no token to refuse by")
	case disorder || passed > 0 || len(lost.Guarded) > 0:
		return Broken, said(overlap, stale, "tokens were out of order")
	case overlap > slack || stale > 0:
		return Fenced, said(overlap, stale, fenced(stale, h.early()))
	case twoHeld:
		return Fenced, "the guard lost no update"
	}
	return Kept, ""
}

// fenced says why stale writes did no harm. Some of them were early.
func fenced(stale, early int) string {
	switch {
	case stale == 0:
		return "nobody wrote out of turn"
	case early == 0:
		return "the guard refused"
	case early == stale:
		return "before the next holder's claim, so that no guard could refuse"
	}
	return fmt.Sprintf("the guard refused, except %d before the next holder's claim, which no guard could refuse", early)
}

// count puts a number before what is counted.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// said puts what was seen before what it means.
func said(overlap time.Duration, stale int, meaning string) string {
	var held, wrote string
	if overlap > slack {
		held = fmt.Sprintf("two holders for %v", overlap.Round(time.Millisecond))
	}
	if stale > 0 {
		wrote = count(stale, "stale write")
	}
	return joined(held, wrote, meaning)
}

// joined puts together what there is to say.
func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
}
