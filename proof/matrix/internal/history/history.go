// Package history records what happened in a scenario: who was granted a lock, who wrote, what was broken. It
// says nothing about whether that is as it should be: package judge does.
package history

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/lockstile/locker/driver"
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
	Asked     driver.Instant `json:"asked"`             // when the request was made
	From      driver.Instant `json:"from"`
	Until     driver.Instant `json:"until"`     // 0: to the end of the scenario
	End       string         `json:"end"`       // how it ended
	TakenAway bool           `json:"takenAway"` // the store gave the lock away before its validity ended
	Lost      bool           `json:"lost"`      // the holder was told so
	Void      bool           `json:"void"`      // its transaction was never committed: see matrix.Writer

	// Claimed is when the guard had seen its token, accepted or not; 0: never.
	Claimed driver.Instant `json:"claimed,omitempty"`

	Unlocked bool `json:"-"` // the answer to its unlock said so
	ID       int  `json:"-"` // of the order that got the lock; of all that a worker got, none has the same
}

// Write is one write, or one read, that reached the storage.
type Write struct {
	Worker  string         `json:"worker"`
	Name    string         `json:"name"`
	Token   fencing.Token  `json:"token,string"`
	Shared  bool           `json:"shared,omitempty"` // it is a read, of somebody who shares the lock
	Value   int            `json:"value"`
	Adds    bool           `json:"adds,omitempty"`   // it writes a set back with the element Value
	Looked  driver.Instant `json:"looked,omitempty"` // when its holder began to look at its lock; 0: not known
	At      driver.Instant `json:"at"`
	Stale   bool           `json:"stale"`   // somebody else had been granted the lock since
	Refused bool           `json:"refused"` // by the guard; storage without one takes everything
	Early   bool           `json:"early"`   // stale, but the next holder had not claimed the storage yet: no guard could refuse it
}

// Mark is a fault, or something else that is worth a line in the history.
type Mark struct {
	At   driver.Instant `json:"at"`
	Text string         `json:"text"`
	// Times is how often it came, and Last when it came last. Both are 0 in a mark of [History.Mark].
	Times int            `json:"times,omitempty"`
	Last  driver.Instant `json:"last,omitempty"`
}

// Pause is the time for which a worker's process is stopped.
type Pause struct {
	Worker string         `json:"worker"`
	From   driver.Instant `json:"from"`
	Until  driver.Instant `json:"until"` // 0 while it lasts
	// Midway says that the process had looked at its lock and was about to write. It
	// counts as a believer all the while.
	Midway bool `json:"midway,omitempty"`
}

// History is what happened in one scenario on one subject.
type History struct {
	Began  driver.Instant `json:"began"`
	Ended  driver.Instant `json:"ended"`
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

	Ops     []Op           `json:"-"` // what the guard was asked
	Faults  int            `json:"-"` // so far
	Unknown int            `json:"-"` // attempts of unknown outcome
	Calm    driver.Instant `json:"-"` // when the last fault of a round was over; 0 if it did not come to that

	mu    sync.Mutex
	guard fencing.Memory
	sets  storage
}

// Op is a write or a claim that the guard was asked about, with the times of the call and of its
// return.
type Op struct {
	Write            Write
	Called, Returned driver.Instant
}

// Mark notes something that is worth a line.
func (h *History) Mark(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Marks = append(h.Marks, Mark{At: driver.Now(), Text: fmt.Sprintf(format, args...)})
}

// Repeat is a mark for what may come again and again, such as a refusal of a store that is down. The same text is
// one mark with a count, until there is a mark of another sort.
func (h *History) Repeat(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, text := driver.Now(), fmt.Sprintf(format, args...)
	for i := len(h.Marks) - 1; i >= 0 && h.Marks[i].Times > 0; i-- {
		if m := &h.Marks[i]; m.Text == text {
			m.Times, m.Last = m.Times+1, at
			return
		}
	}
	h.Marks = append(h.Marks, Mark{At: at, Text: text, Times: 1, Last: at})
}

// Fault is a mark for what the scenario is about.
func (h *History) Fault(format string, args ...any) {
	h.Mark(format, args...)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Faults++
}

// UnknownOutcome counts an attempt of which nobody knows whether it was granted.
func (h *History) UnknownOutcome() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Unknown++
}

// Granted begins a span.
func (h *History) Granted(s Span) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Spans = append(h.Spans, s)
}

// Ceased ends a span, unless it ended earlier.
func (h *History) Ceased(worker string, id int, at driver.Instant, how string) {
	h.amend(worker, id, func(s *Span) {
		if s.Until == 0 || at < s.Until {
			s.Until, s.End = at, how
		}
	})
}

// Lost ends a span whose holder was told of the loss.
func (h *History) Lost(worker string, id int, at driver.Instant, how string) {
	h.Ceased(worker, id, at, how)
	h.amend(worker, id, func(s *Span) { s.Lost = true })
}

// Killed ends all spans of a worker: a process that is dead believes nothing, also if it is told
// to unlock after that.
func (h *History) Killed(worker string, at driver.Instant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.Spans {
		if s := &h.Spans[i]; s.Worker == worker && (s.Until == 0 || s.Until > at) {
			s.Until, s.End = at, "its process was killed"
		}
	}
}

// Unlocked notes that the answer to an unlock said that it had worked.
func (h *History) Unlocked(worker string, id int) {
	h.amend(worker, id, func(s *Span) { s.Unlocked = true })
}

// TakenAway notes that the store gave a lock away before its validity had ended.
func (h *History) TakenAway(worker string, id int) {
	h.amend(worker, id, func(s *Span) { s.TakenAway = true })
}

// NoteUntrue notes a false statement that a caller was given, or a loss without a reason.
func (h *History) NoteUntrue(format string, args ...any) {
	h.Mark(format, args...)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Untrue = fmt.Sprintf(format, args...)
}

// amend calls f for the span of a worker that an order began.
func (h *History) amend(worker string, id int, f func(*Span)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.Spans {
		if s := &h.Spans[i]; s.Worker == worker && s.ID == id {
			f(s)
		}
	}
}

// write is a write to the storage that the lock protects. It is checked by a guard, and
// taken by a storage that has none.
func (h *History) write(w Write) (refused bool) {
	called := driver.Now()
	claimed := h.claimedSince(w) // before the guard is asked: it has seen every claim that is found here
	refused = !h.Tokenless && h.check(w) != nil
	h.mu.Lock()
	defer h.mu.Unlock()
	w.Refused = refused
	own, ok := h.HolderOf(w)
	w.Stale = ok && slices.ContainsFunc(h.Spans, func(s Span) bool { return s.From < w.At && s.Later(own) })
	w.Early = w.Stale && !claimed && !h.Tokenless
	h.Writes = append(h.Writes, w)
	if !h.Tokenless {
		h.Ops = append(h.Ops, Op{w, called, driver.Now()})
	}
	return refused
}

// Claim is what Do does with a guard, right after a grant.
func (h *History) Claim(w Write) {
	if h.Tokenless {
		return // there is nothing to claim it with
	}
	called := driver.Now() // before the guard is asked: others may be refused because of it at once
	w.Refused = h.check(w) != nil
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.Spans {
		if s := &h.Spans[i]; s.Wrote(w) {
			s.Claimed = driver.Now()
		}
	}
	h.Ops = append(h.Ops, Op{w, called, driver.Now()})
}

// check asks the guard.
func (h *History) check(w Write) error {
	if w.Shared {
		return h.guard.CheckShared(context.Background(), w.Name, fencing.SharedToken(w.Token))
	}
	return h.guard.Check(context.Background(), w.Name, w.Token)
}

// claimedSince reports whether somebody who was granted the lock after w's writer has
// claimed the storage. Before its claim that holder has written nothing that w could
// spoil, and no guard has seen its token.
func (h *History) claimedSince(w Write) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	own, ok := h.HolderOf(w)
	return ok && slices.ContainsFunc(h.Spans, func(s Span) bool { return s.Claimed != 0 && s.Later(own) })
}

// HolderOf returns the span of a write's holder.
func (h *History) HolderOf(w Write) (s Span, ok bool) {
	i := slices.IndexFunc(h.Spans, func(s Span) bool { return s.Wrote(w) })
	if i < 0 {
		return Span{}, false
	}
	return h.Spans[i], true
}

// Wrote reports whether w is a write, or a claim, of this holder.
func (s Span) Wrote(w Write) bool {
	return s.Worker == w.Worker && s.Name == w.Name && s.Token == w.Token
}

// TooEarly reports whether a stale write was taken that no guard could refuse.
func (w Write) TooEarly() bool { return w.Early && !w.Refused }

// Later reports whether s is somebody whom own excludes and who was granted the lock after
// it: by the order of grants, because that of tokens is what the scenarios check.
func (s Span) Later(own Span) bool {
	return s.Name == own.Name && (!s.Shared || !own.Shared) && s.From > own.From
}

// Paused notes that a worker's process has been stopped, midway or not.
func (h *History) Paused(worker string, midway bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Pauses = append(h.Pauses, Pause{Worker: worker, From: driver.Now(), Midway: midway})
}

// Woke notes that a stopped process runs again.
func (h *History) Woke(worker string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.Pauses {
		if p := &h.Pauses[i]; p.Worker == worker && p.Until == 0 {
			p.Until = driver.Now()
		}
	}
}

// EndOf is when a span ended, at the latest with the scenario.
func (h *History) EndOf(s Span) driver.Instant {
	if s.Until == 0 {
		return h.Ended
	}
	return s.Until
}

// Counting returns the spans without the holders that committed nothing.
func (h *History) Counting() []Span {
	return slices.DeleteFunc(slices.Clone(h.Spans), func(s Span) bool { return s.Void })
}
