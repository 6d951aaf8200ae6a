package judge

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

// overlap is the longest time for which two holders believed at once that exclude each other, and
// the longest such time of two neither of whom was stopped midway. Slots have names of their own.
func overlap(h *history.History) (longest, awake time.Duration) {
	spans := inOrder(h)
	for i, a := range spans {
		for _, b := range spans[i+1:] {
			if b.From >= h.EndOf(a) {
				break
			}
			if a.Name != b.Name || a.Shared && b.Shared {
				continue
			}
			from, until := max(a.From, b.From), min(h.EndOf(a), h.EndOf(b))
			both := until.Sub(from) - stoppedFor(h, from, until, a.Worker, b.Worker)
			longest = max(longest, both)
			if !midway(h, a) && !midway(h, b) {
				awake = max(awake, both)
			}
		}
	}
	return longest, awake
}

// midway reports whether a holder was stopped between a look and a write while it believed.
func midway(h *history.History, s history.Span) bool {
	return slices.ContainsFunc(h.Pauses, func(p history.Pause) bool {
		return p.Midway && p.Worker == s.Worker && p.From < h.EndOf(s) && (p.Until == 0 || p.Until > s.From)
	})
}

// stoppedFor returns for how long, between two instants, one of the workers was stopped.
// A stopped process believes nothing, and what it believes when it wakes counts from
// then, except midway. A lock whose deadline was known beforehand needs no such allowance.
func stoppedFor(h *history.History, from, until driver.Instant, workers ...string) (sum time.Duration) {
	all := slices.Clone(h.Pauses)
	slices.SortFunc(all, func(a, b history.Pause) int { return cmp.Compare(a.From, b.From) })
	for _, p := range all {
		if p.Until == 0 {
			p.Until = until
		}
		if begin, end := max(p.From, from), min(p.Until, until); slices.Contains(workers, p.Worker) && !p.Midway && begin < end {
			sum += end.Sub(begin)
			from = end // a time in which both were stopped counts once
		}
	}
	return sum
}

// disorder returns two grants of a name, the later of which does not have the greater
// token; ok is false if there are none. exclusion says whether the store must have kept holders apart.
func disorder(h *history.History, exclusion bool) (first, second history.Span, ok bool) {
	if h.Tokenless {
		return first, second, false
	}
	spans := leases(h)
	for i, a := range spans {
		for _, b := range spans[i+1:] {
			if a.Name == b.Name && (a.Token == b.Token && !leftBefore(a, b) || b.Token < a.Token && after(b, a, exclusion)) {
				return a, b, true
			}
		}
	}
	return first, second, false
}

// inOrder returns the spans that count, in the order in which they began.
func inOrder(h *history.History) []history.Span {
	return slices.SortedFunc(slices.Values(h.Counting()), func(a, b history.Span) int { return cmp.Compare(a.From, b.From) })
}

// leases returns the spans that count, in the order in which they began, without those that a
// reader's process added to a lease that it had: they have its number.
func leases(h *history.History) (spans []history.Span) {
	for _, s := range inOrder(h) {
		joined := func(had history.Span) bool {
			return s.Shared && had.Worker == s.Worker && had.Name == s.Name && had.Token == s.Token
		}
		if !slices.ContainsFunc(spans, joined) {
			spans = append(spans, s)
		}
	}
	return spans
}

// leftBefore reports whether both are readers of whom s had left before the other was granted. Then
// they may have one number: neither excludes the other, and a writer between them has another one.
func leftBefore(s, other history.Span) bool {
	return s.Shared && other.Shared && s.Until != 0 && s.Until < other.From
}

// after reports whether b was certainly granted after a. The answers to two requests
// that were under way at once may come in either order. But if one came after the other
// lock had ended, and they exclude each other, it was granted later: a lock that is valid
// when its answer comes has been held in the store since its grant. That is so while exclusion
// holds: a store that forgot the lock meanwhile may have granted others before the answer came.
func after(b, a history.Span, exclusion bool) bool {
	return b.Asked > a.From || exclusion && a.Until != 0 && b.From > a.Until && !over(b) && (!a.Shared || !b.Shared)
}

// over reports whether the lock was over when its answer came: nobody ever believed in it.
func over(s history.Span) bool { return s.Until != 0 && s.Until < s.From }

// staleWrites counts the stale writes that storage without a guard took, and those that got past the guard.
// exclusion is as in after.
func staleWrites(h *history.History, exclusion bool) (unguarded, guarded int) {
	for _, w := range h.Writes {
		if w.Stale {
			unguarded++
			if !w.Refused && !w.Early && passed(h, w, exclusion) {
				guarded++
			}
		}
	}
	return unguarded, guarded
}

// passed reports whether a guard took a stale write that it had to refuse. It could take the write if everybody who
// had claimed by then may have been granted the lock before the writer, and only heard of it later. A write
// that was committed in a transaction has no guard, and nobody claims there.
func passed(h *history.History, w history.Write, exclusion bool) bool {
	own, _ := h.HolderOf(w)
	claimed := false
	for _, s := range h.Spans {
		if s.Claimed != 0 && s.Claimed <= w.At && s.Later(own) {
			if after(s, own, exclusion) {
				return true
			}
			claimed = true
		}
	}
	return !claimed
}

// allHindered reports whether each stale write took longer than two clocks may differ from its
// holder's look at its lock to the storage. Where no fault was meant to do that, the machine did.
func allHindered(h *history.History) bool {
	return !slices.ContainsFunc(h.Writes, func(w history.Write) bool { return w.Stale && (w.Looked == 0 || w.At.Sub(w.Looked) <= Slack) })
}

// unrenewed reports whether each stale write is of a lock that nobody was to renew.
func unrenewed(h *history.History) bool {
	return !slices.ContainsFunc(h.Writes, func(w history.Write) bool {
		own, _ := h.HolderOf(w)
		return w.Stale && !own.NoRenew
	})
}

// misled counts the writes whose holders began to look at their lock when somebody else had been granted
// it: the look was wrong, and nothing that happened between it and the write explains that.
func misled(h *history.History) (n int) {
	for _, w := range h.Writes {
		own, ok := h.HolderOf(w)
		if ok && w.Stale && slices.ContainsFunc(h.Spans, func(s history.Span) bool { return s.Later(own) && s.From < w.Looked.Add(-Slack) }) {
			n++
		}
	}
	return n
}

// taken counts the stale writes that no guard refused. If none of them passed one, none could: nobody
// who had certainly come later had claimed.
func taken(h *history.History) (n int) {
	for _, w := range h.Writes {
		if w.Stale && !w.Refused {
			n++
		}
	}
	return n
}
