// Package judge compares what happened in a scenario with what was declared.
package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

// Verdict is how a subject came through a scenario. Package matrix says what each means.
type Verdict string

const (
	Kept        Verdict = "kept"
	Unavailable Verdict = "unavailable"
	Fenced      Verdict = "fenced"
	Broken      Verdict = "broken"
	FalseClaim  Verdict = "FALSE CLAIM"
	Skipped     Verdict = "skipped"
	NotPlayed   Verdict = "not played"
)

// NoSuchKind is why a cell is skipped whose subject does not declare a kind of lock that the scenario asks for.
const NoSuchKind = "no such kind"

// Finding is what a judge has found.
type Finding struct {
	Verdict Verdict
	Why     string
	Overlap time.Duration // for which two holders believed at once that exclude each other
	Stale   int           // stale writes that storage without a guard took
	Passed  int           // those that passed the guard
}

// Find compares h with the declaration g. broken are the assumptions that the scenario broke.
func Find(g locker.Guarantees, broken locker.Assumptions, h *history.History) (f Finding) {
	f.Overlap, _ = overlap(h)
	storeMay, tokensMay := excused(g, broken, h)
	f.Stale, f.Passed = staleWrites(h, !storeMay || tokensMay)
	f.Verdict, f.Why = judge(g, broken, h)
	return f
}

// excused says what may happen after such a fault: the store may grant a lock that somebody has, and tokens may go back.
func excused(g locker.Guarantees, broken locker.Assumptions, h *history.History) (storeMay, tokensMay bool) {
	broken |= locker.Unpromised
	return g.Exclusion&broken&^locker.PromptHolder != 0, g.Tokens&broken != 0 || h.Tokenless
}

// Slack is by how much the times that two processes read may differ.
const Slack = 5 * time.Millisecond

// judge compares what happened with what was declared. Only broken was broken. That a holder was
// stopped excuses its late writes, and no second holder: a stopped process believes nothing,
// unless it is midway. A late write excuses nothing else.
func judge(g locker.Guarantees, broken locker.Assumptions, h *history.History) (v Verdict, why string) {
	broken |= locker.Unpromised
	storeMay, tokensMay := excused(g, broken, h)
	apart := !storeMay || tokensMay // a doubt blames nobody for what is promised
	late, passed := staleWrites(h, apart)
	longest, awake := overlap(h)
	if late > 0 && longest <= Slack && unrenewed(h) { // see [locker.Guarantees]
		g.Exclusion |= locker.PromptHolder
	}
	exclusionMay := g.Exclusion&broken != 0
	heldMay := storeMay || exclusionMay && longest > awake
	first, second, backwards := disorder(h, apart)
	victim := slices.IndexFunc(h.Spans, func(s history.Span) bool { return s.TakenAway })
	name, lawful := unlawful(h, !heldMay, !tokensMay)
	lost := h.Updates.Lost()
	twoHeld := longest > Slack || late > 0 || len(lost.Unguarded) > 0
	hindered := late > 0 && allHindered(h) && longest <= Slack && len(lost.Unguarded) == 0 && !exclusionMay && g.Exclusion.Has(locker.PromptHolder)
	switch {
	case !linearizable(h):
		return FalseClaim, "the guarded register is not linearizable"
	case h.Untrue != "": // no fault excuses a false statement
		return FalseClaim, h.Untrue
	case len(lost.Guarded) > 0 && !tokensMay:
		return FalseClaim, "the guard let an update be lost"
	case h.Updates.LostInCalm() && !g.Exclusion.Has(locker.Unpromised):
		return FalseClaim, "an update was lost before anybody was paused"
	case backwards && !tokensMay:
		return FalseClaim, fmt.Sprintf("token %d of %s came after token %d of %s", second.Token, second.Worker, first.Token, first.Worker)
	case passed > 0 && !tokensMay:
		return FalseClaim, Count(passed, "stale write") + " got past the guard"
	case misled(h) > 0 && !storeMay:
		return FalseClaim, Count(misled(h), "holder") + " looked at the lock and believed, though somebody else had been granted it"
	case twoHeld && !exclusionMay && !hindered, awake > Slack && !storeMay:
		return FalseClaim, said(longest, late, "")
	case lawful == porcupine.Illegal:
		return FalseClaim, "no order of the calls on " + name + " is one that a lock with tokens allows"
	case lawful == porcupine.Unknown:
		return NotPlayed, fmt.Sprintf("whether there is a lawful order of the calls on %s was not found out in %v", name, checkTime)
	case victim >= 0 && broken == locker.Unpromised && !exclusionMay: // a server that forgot its data takes a lock away, too, and gives it to nobody
		return FalseClaim, fmt.Sprintf("the store gave the lock of %s away while it was valid", h.Spans[victim].Worker)
	case hindered:
		return NotPlayed, Count(late, "stale write") + " took long from the look at the lock to the storage, which no fault was to cause"
	case h.Tokenless && twoHeld:
		return Broken, said(longest, late, "there is no token to refuse by")
	case backwards || passed > 0 || len(lost.Guarded) > 0:
		return Broken, said(longest, late, "tokens were out of order")
	case longest > Slack || late > 0:
		return Fenced, said(longest, late, fenced(late, taken(h)))
	case twoHeld:
		return Fenced, "the guard lost no update"
	}
	return Kept, ""
}

// fenced says why stale writes did no harm. Some of them were taken.
func fenced(stale, taken int) string {
	switch {
	case stale == 0:
		return "nobody wrote out of turn"
	case taken == 0:
		return "the guard refused"
	case taken == stale:
		return "no guard could refuse, for nobody who certainly came later had claimed"
	}
	return fmt.Sprintf("the guard refused, except %d that no guard could refuse", taken)
}

// Count puts a number before what is counted.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// said puts what was seen before what it means.
func said(overlap time.Duration, stale int, meaning string) string {
	var held, wrote string
	if overlap > Slack {
		held = fmt.Sprintf("two holders for %v", overlap.Round(time.Millisecond))
	}
	if stale > 0 {
		wrote = Count(stale, "stale write")
	}
	return Joined(held, wrote, meaning)
}

// Joined puts together what there is to say.
func Joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
}
