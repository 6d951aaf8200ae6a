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

// Span is one holder's belief: from when it was granted the lock until it gave
// it back, was told of its loss, or its validity ended.
type Span struct {
	Worker string         `json:"worker"`
	Name   string         `json:"name"`
	Token  fencing.Token  `json:"token"`
	Asked  locker.Instant `json:"asked"` // when the request was made
	From   locker.Instant `json:"from"`
	Until  locker.Instant `json:"until"`  // 0: to the end of the scenario
	End    string         `json:"end"`    // how it ended
	Robbed bool           `json:"robbed"` // the store gave it away before its validity ended
	Void   bool           `json:"void"`   // its transaction was never committed: see Writer

	// Claimed is when the guard had been shown its token, whatever it said; 0:
	// never.
	Claimed locker.Instant `json:"claimed,omitempty"`

	freed bool // its unlock was confirmed
}

// Write is one write that reached the storage.
type Write struct {
	Worker  string         `json:"worker"`
	Name    string         `json:"name"`
	Token   fencing.Token  `json:"token"`
	Value   int            `json:"value"`
	At      locker.Instant `json:"at"`
	Stale   bool           `json:"stale"`   // somebody else had been granted the lock since
	Refused bool           `json:"refused"` // by the guard; storage without one takes everything
	Early   bool           `json:"early"`   // stale, but before whoever was granted the lock since had claimed the storage: no guard could know
}

// Mark is something that was done to the world.
type Mark struct {
	At   locker.Instant `json:"at"`
	Text string         `json:"text"`
}

// History is what happened in one scenario on one subject.
type History struct {
	Began  locker.Instant `json:"began"`
	Ended  locker.Instant `json:"ended"`
	Spans  []Span         `json:"spans"`
	Writes []Write        `json:"writes"`
	Marks  []Mark         `json:"marks"`
	// Tokenless says that the lock has no tokens: the storage cannot have a
	// guard, and Token is the number of the worker's grant.
	Tokenless bool `json:"tokenless,omitempty"`
	// Untrue is what a caller was told about its attempt that is not true.
	Untrue string `json:"untrue,omitempty"`

	faults int // done to the world, so far
	away   []absence
	mu     sync.Mutex
	guard  fencing.Memory
	ops    []writeOp
}

func (h *History) mark(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Marks = append(h.Marks, Mark{locker.Now(), fmt.Sprintf(format, args...)})
}

// fault is a mark of what the scenario is about.
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

// ended ends a belief, if it has not ended earlier.
func (h *History) ended(worker string, token fencing.Token, at locker.Instant, how string) {
	h.amend(worker, token, func(s *Span) {
		if s.Until == 0 || at < s.Until {
			s.Until, s.End = at, how
		}
	})
}

func (h *History) freed(worker string, token fencing.Token) {
	h.amend(worker, token, func(s *Span) { s.freed = true })
}

func (h *History) rob(worker string, token fencing.Token) {
	h.amend(worker, token, func(s *Span) { s.Robbed = true })
}

// amend is for whatever a worker held with a token.
func (h *History) amend(worker string, token fencing.Token, f func(*Span)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.Spans {
		if s := &h.Spans[i]; s.Worker == worker && s.Token == token {
			f(s)
		}
	}
}

// Robbed returns a holder from whom the store took the lock while it was valid.
func (h *History) Robbed() (Span, bool) {
	i := slices.IndexFunc(h.Spans, func(s Span) bool { return s.Robbed })
	if i < 0 {
		return Span{}, false
	}
	return h.Spans[i], true
}

// write is the storage that the lock protects, twice: with a guard, and
// without, where everything is taken.
func (h *History) write(w Write) {
	called := locker.Now()
	claimed := h.claimedSince(w) // before the guard is asked, which then knows of every claim seen here
	refused := !h.Tokenless && h.guard.Check(noContext, w.Name, w.Token) != nil
	h.mu.Lock()
	defer h.mu.Unlock()
	w.Refused = refused
	w.Stale = slices.ContainsFunc(h.Spans, func(s Span) bool {
		return s.Name == w.Name && s.From < w.At && h.later(s, w)
	})
	w.Early = w.Stale && !claimed && !h.Tokenless
	h.Writes = append(h.Writes, w)
	if !h.Tokenless {
		h.ops = append(h.ops, writeOp{w, called, locker.Now()})
	}
}

// claim is what Do does with a guard, right after a grant.
func (h *History) claim(worker, name string, token fencing.Token) {
	if h.Tokenless {
		return // there is nothing to claim it with
	}
	called := locker.Now() // before the guard is asked: others may be refused because of it at once
	refused := h.guard.Check(noContext, name, token) != nil
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.Spans {
		if s := &h.Spans[i]; s.Worker == worker && s.Name == name && s.Token == token {
			s.Claimed = locker.Now()
		}
	}
	h.ops = append(h.ops, writeOp{Write{Worker: worker, Name: name, Token: token, Refused: refused}, called, locker.Now()})
}

// claimedSince reports whether anybody who was granted the lock after the grant
// under which w is written has claimed the storage. Until then it has done
// nothing that w could spoil, and no guard can know of it.
func (h *History) claimedSince(w Write) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.Spans, func(s Span) bool {
		return s.Claimed != 0 && s.Name == w.Name && h.later(s, w)
	})
}

// later reports whether s was granted after the grant under which w was
// written: by the order of grants, not by that of tokens, which is on trial.
func (h *History) later(s Span, w Write) bool {
	for _, own := range h.Spans {
		if own.Worker == w.Worker && own.Token == w.Token && own.Name == w.Name {
			return s.From > own.From
		}
	}
	return false
}

// Overlap is the longest time for which two holders believed at once, by name.
func (h *History) Overlap() time.Duration {
	var longest time.Duration
	spans := h.counts()
	for i, a := range spans {
		for _, b := range spans[i+1:] {
			if a.Name != b.Name {
				continue
			}
			from, until := max(a.From, b.From), min(h.end(a), h.end(b))
			longest = max(longest, until.Sub(from)-h.absent(from, until, a.Worker, b.Worker))
		}
	}
	return longest
}

// absence is the time for which a process is stopped from outside.
type absence struct {
	worker      string
	from, until locker.Instant // until is 0 while it lasts
}

func (h *History) leave(worker string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.away = append(h.away, absence{worker: worker, from: locker.Now()})
}

func (h *History) back(worker string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.away {
		if a := &h.away[i]; a.worker == worker && a.until == 0 {
			a.until = locker.Now()
		}
	}
}

// absent is how long one of two workers was stopped in a time: a process that is
// stopped believes nothing, and what it believes when it wakes counts from then.
// Locks whose deadline is known beforehand need no such allowance.
func (h *History) absent(from, until locker.Instant, workers ...string) (sum time.Duration) {
	away := slices.Clone(h.away)
	slices.SortFunc(away, func(a, b absence) int { return cmp.Compare(a.from, b.from) })
	for _, a := range away {
		if a.until == 0 {
			a.until = until
		}
		if begin, end := max(a.from, from), min(a.until, until); slices.Contains(workers, a.worker) && begin < end {
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

// Disorder returns two grants of a name of which the later has no greater
// token; ok is false if there are none.
func (h *History) Disorder() (first, second Span, ok bool) {
	if h.Tokenless {
		return first, second, false
	}
	spans := h.counts()
	slices.SortFunc(spans, func(a, b Span) int { return int(a.From - b.From) })
	for i, a := range spans {
		for _, b := range spans[i+1:] {
			if a.Name == b.Name && (a.Token == b.Token || b.Token < a.Token && after(b, a)) {
				return a, b, true
			}
		}
	}
	return first, second, false
}

// after reports whether b was certainly granted after a. Grants that were under
// way at once may be told in either order, unless one of them began only when the
// other had ended: a lock that is valid when it is told of is held in the store
// from its grant until then.
func after(b, a Span) bool {
	return b.Asked > a.From || a.Until != 0 && b.From > a.Until
}

// Stale counts the stale writes that storage without a guard took, and those
// that got past the guard although it could have known.
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

// early counts the stale writes that no guard could have known.
func (h *History) early() (n int) {
	for _, w := range h.Writes {
		if w.Early && !w.Refused {
			n++
		}
	}
	return n
}
