package matrix

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// Span is the time for which one holder believed that it had the lock: from the grant
// until it unlocked, heard of a loss, or its validity ended.
type Span struct {
	Worker    string         `json:"worker"`
	Name      string         `json:"name"`
	Token     fencing.Token  `json:"token,string"`      // or the number of a shared lock
	Shared    bool           `json:"shared,omitempty"`  // with others who share it
	NoRenew   bool           `json:"noRenew,omitempty"` // it ends by itself, also where others have no lease
	Asked     locker.Instant `json:"asked"`             // when the request was made
	From      locker.Instant `json:"from"`
	Until     locker.Instant `json:"until"`     // 0: to the end of the scenario
	End       string         `json:"end"`       // how it ended
	TakenAway bool           `json:"takenAway"` // the store gave the lock away before its validity ended
	Lost      bool           `json:"lost"`      // the holder was told so
	Void      bool           `json:"void"`      // its transaction was never committed: see Writer

	// Claimed is when the guard had seen its token, accepted or not; 0: never.
	Claimed locker.Instant `json:"claimed,omitempty"`

	unlocked bool // the answer to its unlock said so
	id       int  // of the order that got the lock; of all that a worker got, none has the same
}

// Write is one write, or one read, that reached the storage.
type Write struct {
	Worker  string         `json:"worker"`
	Name    string         `json:"name"`
	Token   fencing.Token  `json:"token,string"`
	Shared  bool           `json:"shared,omitempty"` // it is a read, of somebody who shares the lock
	Value   int            `json:"value"`
	Adds    bool           `json:"adds,omitempty"`   // it writes a set back with the element Value
	Looked  locker.Instant `json:"looked,omitempty"` // when its holder began to look at its lock; 0: not known
	At      locker.Instant `json:"at"`
	Stale   bool           `json:"stale"`   // somebody else had been granted the lock since
	Refused bool           `json:"refused"` // by the guard; storage without one takes everything
	Early   bool           `json:"early"`   // stale, but the next holder had not claimed the storage yet: no guard could refuse it
}

// Mark is a fault, or something else that is worth a line in the history.
type Mark struct {
	At   locker.Instant `json:"at"`
	Text string         `json:"text"`
}

// Pause is the time for which a worker's process is stopped.
type Pause struct {
	Worker string         `json:"worker"`
	From   locker.Instant `json:"from"`
	Until  locker.Instant `json:"until"` // 0 while it lasts
	// Midway says that the process had looked at its lock and was about to write. It
	// counts as a believer all the while.
	Midway bool `json:"midway,omitempty"`
}

// History is what happened in one scenario on one subject.
type History struct {
	Began  locker.Instant `json:"began"`
	Ended  locker.Instant `json:"ended"`
	Spans  []Span         `json:"spans"`
	Writes []Write        `json:"writes"`
	Marks  []Mark         `json:"marks"`
	Pauses []Pause        `json:"pauses,omitempty"`
	// Tokenless says that the lock has no tokens: the storage cannot have a
	// guard, and Token counts the worker's grants.
	Tokenless bool `json:"tokenless,omitempty"`
	// Untrue is a false statement that a caller was given about its attempt, or a
	// loss for which there is no reason.
	Untrue string `json:"untrue,omitempty"`
	// Updates are those of a set, if the scenario has one.
	Updates *Updates `json:"updates,omitempty"`

	faults  int            // so far
	unknown int            // attempts of unknown outcome
	calm    locker.Instant // when the last fault of a round was over; 0 if it did not come to that
	mu      sync.Mutex
	guard   fencing.Memory
	ops     []writeOp
	sets    storage
}

func (h *History) mark(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Marks = append(h.Marks, Mark{locker.Now(), fmt.Sprintf(format, args...)})
}

// fault is a mark for what the scenario is about.
func (h *History) fault(format string, args ...any) {
	h.mark(format, args...)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults++
}

func (h *History) granted(s Span) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Spans = append(h.Spans, s)
}

// ended ends a span, unless it ended earlier.
func (h *History) ended(worker string, id int, at locker.Instant, how string) {
	h.amend(worker, id, func(s *Span) {
		if s.Until == 0 || at < s.Until {
			s.Until, s.End = at, how
		}
	})
}

// killed ends all spans of a worker: a process that is dead believes nothing, also if it is told
// to unlock after that.
func (h *History) killed(worker string, at locker.Instant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.Spans {
		if s := &h.Spans[i]; s.Worker == worker && (s.Until == 0 || s.Until > at) {
			s.Until, s.End = at, "its process was killed"
		}
	}
}

func (h *History) unlocked(worker string, id int) {
	h.amend(worker, id, func(s *Span) { s.unlocked = true })
}

func (h *History) takenAway(worker string, id int) {
	h.amend(worker, id, func(s *Span) { s.TakenAway = true })
}

// untrue notes a false statement that a caller was given, or a loss without a reason.
func (h *History) untrue(format string, args ...any) {
	h.mark(format, args...)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Untrue = fmt.Sprintf(format, args...)
}

// amend calls f for the span of a worker that an order began.
func (h *History) amend(worker string, id int, f func(*Span)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.Spans {
		if s := &h.Spans[i]; s.Worker == worker && s.id == id {
			f(s)
		}
	}
}

// TakenAway returns a holder whose lock the store gave away while it was valid; ok is
// false if there is none.
func (h *History) TakenAway() (s Span, ok bool) {
	i := slices.IndexFunc(h.Spans, func(s Span) bool { return s.TakenAway })
	if i < 0 {
		return Span{}, false
	}
	return h.Spans[i], true
}

// write is a write to the storage that the lock protects. It is checked by a guard, and
// taken by a storage that has none.
func (h *History) write(w Write) (refused bool) {
	called := locker.Now()
	claimed := h.claimedSince(w) // before the guard is asked: it has seen every claim that is found here
	refused = !h.Tokenless && h.check(w) != nil
	h.mu.Lock()
	defer h.mu.Unlock()
	w.Refused = refused
	own, ok := h.own(w)
	w.Stale = ok && slices.ContainsFunc(h.Spans, func(s Span) bool { return s.From < w.At && s.later(own) })
	w.Early = w.Stale && !claimed && !h.Tokenless
	h.Writes = append(h.Writes, w)
	if !h.Tokenless {
		h.ops = append(h.ops, writeOp{w, called, locker.Now()})
	}
	return refused
}

// claim is what Do does with a guard, right after a grant.
func (h *History) claim(w Write) {
	if h.Tokenless {
		return // there is nothing to claim it with
	}
	called := locker.Now() // before the guard is asked: others may be refused because of it at once
	w.Refused = h.check(w) != nil
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.Spans {
		if s := &h.Spans[i]; s.wrote(w) {
			s.Claimed = locker.Now()
		}
	}
	h.ops = append(h.ops, writeOp{w, called, locker.Now()})
}

// check asks the guard.
func (h *History) check(w Write) error {
	if w.Shared {
		return h.guard.CheckShared(noContext, w.Name, fencing.SharedToken(w.Token))
	}
	return h.guard.Check(noContext, w.Name, w.Token)
}

// claimedSince reports whether somebody who was granted the lock after w's writer has
// claimed the storage. Before its claim that holder has written nothing that w could
// spoil, and no guard has seen its token.
func (h *History) claimedSince(w Write) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	own, ok := h.own(w)
	return ok && slices.ContainsFunc(h.Spans, func(s Span) bool { return s.Claimed != 0 && s.later(own) })
}

// own returns the span of a write's holder.
func (h *History) own(w Write) (s Span, ok bool) {
	i := slices.IndexFunc(h.Spans, func(s Span) bool { return s.wrote(w) })
	if i < 0 {
		return Span{}, false
	}
	return h.Spans[i], true
}

// wrote reports whether w is a write, or a claim, of this holder.
func (s Span) wrote(w Write) bool {
	return s.Worker == w.Worker && s.Name == w.Name && s.Token == w.Token
}

// later reports whether s is somebody whom own excludes and who was granted the lock after
// it: by the order of grants, because that of tokens is what the scenarios check.
func (s Span) later(own Span) bool {
	return s.Name == own.Name && (!s.Shared || !own.Shared) && s.From > own.From
}

// Overlap is the longest time for which two holders believed at once that exclude each
// other. Slots have names of their own.
func (h *History) Overlap() time.Duration {
	longest, _ := h.overlap()
	return longest
}

// overlap is Overlap, and the longest such time of two neither of whom was stopped midway.
func (h *History) overlap() (longest, awake time.Duration) {
	spans := h.sorted()
	for i, a := range spans {
		for _, b := range spans[i+1:] {
			if b.From >= h.end(a) {
				break
			}
			if a.Name != b.Name || a.Shared && b.Shared {
				continue
			}
			from, until := max(a.From, b.From), min(h.end(a), h.end(b))
			both := until.Sub(from) - h.stoppedFor(from, until, a.Worker, b.Worker)
			longest = max(longest, both)
			if !h.midway(a) && !h.midway(b) {
				awake = max(awake, both)
			}
		}
	}
	return longest, awake
}

// paused notes that a worker's process has been stopped, midway or not.
func (h *History) paused(worker string, midway bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Pauses = append(h.Pauses, Pause{Worker: worker, From: locker.Now(), Midway: midway})
}

func (h *History) woke(worker string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.Pauses {
		if p := &h.Pauses[i]; p.Worker == worker && p.Until == 0 {
			p.Until = locker.Now()
		}
	}
}

// midway reports whether a holder was stopped between a look and a write while it believed.
func (h *History) midway(s Span) bool {
	return slices.ContainsFunc(h.Pauses, func(p Pause) bool {
		return p.Midway && p.Worker == s.Worker && p.From < h.end(s) && (p.Until == 0 || p.Until > s.From)
	})
}

// stoppedFor returns for how long, between two instants, one of the workers was stopped.
// A stopped process believes nothing, and what it believes when it wakes counts from
// then, except midway. A lock whose deadline was known beforehand needs no such allowance.
func (h *History) stoppedFor(from, until locker.Instant, workers ...string) (sum time.Duration) {
	all := slices.Clone(h.Pauses)
	slices.SortFunc(all, func(a, b Pause) int { return cmp.Compare(a.From, b.From) })
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

func (h *History) end(s Span) locker.Instant {
	if s.Until == 0 {
		return h.Ended
	}
	return s.Until
}

// Disorder returns two grants of a name, the later of which does not have the greater
// token; ok is false if there are none.
func (h *History) Disorder() (first, second Span, ok bool) { return h.disorder(true) }

// disorder is Disorder where holders exclude each other, or may not.
func (h *History) disorder(exclusion bool) (first, second Span, ok bool) {
	if h.Tokenless {
		return first, second, false
	}
	spans := h.leases()
	for i, a := range spans {
		for _, b := range spans[i+1:] {
			if a.Name == b.Name && (a.Token == b.Token && !a.leftBefore(b) || b.Token < a.Token && after(b, a, exclusion)) {
				return a, b, true
			}
		}
	}
	return first, second, false
}

// sorted returns the spans that count, in the order in which they began.
func (h *History) sorted() []Span {
	return slices.SortedFunc(slices.Values(h.counting()), func(a, b Span) int { return cmp.Compare(a.From, b.From) })
}

// leases returns the spans that count, in the order in which they began, without those that a
// reader's process added to a lease that it had: they have its number.
func (h *History) leases() (spans []Span) {
	for _, s := range h.sorted() {
		joined := func(had Span) bool {
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
func (s Span) leftBefore(other Span) bool {
	return s.Shared && other.Shared && s.Until != 0 && s.Until < other.From
}

// after reports whether b was certainly granted after a. The answers to two requests
// that were under way at once may come in either order. But if one came after the other
// lock had ended, and they exclude each other, it was granted later: a lock that is valid
// when its answer comes has been held in the store since its grant. That is so while exclusion
// holds: a store that forgot the lock meanwhile may have granted others before the answer came.
func after(b, a Span, exclusion bool) bool {
	return b.Asked > a.From || exclusion && a.Until != 0 && b.From > a.Until && !b.over() && (!a.Shared || !b.Shared)
}

// over reports whether the lock was over when its answer came: nobody ever believed in it.
func (s Span) over() bool { return s.Until != 0 && s.Until < s.From }

// Stale counts the stale writes that storage without a guard took, and those that got
// past the guard after the next holder's claim.
func (h *History) Stale() (unguarded, guarded int) {
	for _, w := range h.Writes {
		if w.Stale {
			unguarded++
			if !w.Refused && !w.Early {
				guarded++
			}
		}
	}
	return unguarded, guarded
}

// hindered reports whether each stale write took longer than two clocks may differ from its
// holder's look at its lock to the storage. Where no fault was meant to do that, the machine did.
func (h *History) hindered() bool {
	return !slices.ContainsFunc(h.Writes, func(w Write) bool { return w.Stale && (w.Looked == 0 || w.At.Sub(w.Looked) <= slack) })
}

// unrenewed reports whether each stale write is of a lock that nobody was to renew.
func (h *History) unrenewed() bool {
	return !slices.ContainsFunc(h.Writes, func(w Write) bool {
		own, _ := h.own(w)
		return w.Stale && !own.NoRenew
	})
}

// misled counts the writes whose holders began to look at their lock when somebody else had been granted
// it: the look was wrong, and nothing that happened between it and the write explains that.
func (h *History) misled() (n int) {
	for _, w := range h.Writes {
		own, ok := h.own(w)
		if ok && w.Stale && slices.ContainsFunc(h.Spans, func(s Span) bool { return s.later(own) && s.From < w.Looked.Add(-slack) }) {
			n++
		}
	}
	return n
}

// early counts the stale writes that no guard could refuse.
func (h *History) early() (n int) {
	for _, w := range h.Writes {
		if w.Early && !w.Refused {
			n++
		}
	}
	return n
}
