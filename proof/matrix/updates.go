package matrix

import (
	"fmt"
	"slices"
	"sync"

	"github.com/lockstile/locker"
)

// Sets is one set in two storages: in one without a guard, and in one whose guard checks
// the token of every write.
type Sets struct {
	Unguarded []int `json:"unguarded"`
	Guarded   []int `json:"guarded"`
}

// with returns the sets with one more element, for whoever writes them back. It leaves s as
// it is.
func (s Sets) with(element int) Sets {
	return Sets{append(slices.Clip(s.Unguarded), element), append(slices.Clip(s.Guarded), element)}
}

// Updates is what became of elements that holders added to a set: each read the set, and
// wrote it back with one more element.
type Updates struct {
	Confirmed Sets `json:"confirmed"` // elements whose write the storage has accepted
	Final     Sets `json:"final"`     // the set when all had ended, as the last holder reads it
	Calm      int  `json:"calm"`      // elements up to this one were added before anybody was paused
}

// lost returns the elements that were confirmed and are not there in the end.
func (u *Updates) lost() (s Sets) {
	if u != nil {
		s = Sets{missing(u.Confirmed.Unguarded, u.Final.Unguarded), missing(u.Confirmed.Guarded, u.Final.Guarded)}
	}
	return s
}

// lostInCalm reports whether an element was lost that was added before anybody was paused.
// Whoever wrote later had read the set after that.
func (u *Updates) lostInCalm() bool {
	return slices.ContainsFunc(u.lost().Unguarded, func(element int) bool { return element <= u.Calm })
}

// missing returns the elements that were confirmed and are not there in the end.
func missing(confirmed, final []int) []int {
	return slices.DeleteFunc(slices.Clone(confirmed), func(element int) bool { return slices.Contains(final, element) })
}

// updates says in words how many updates were lost; "" if the scenario has none.
func (h *History) updates() string {
	if h == nil || h.Updates == nil {
		return ""
	}
	u, lost := h.Updates, h.Updates.lost()
	text := fmt.Sprintf("updates lost without the guard: %d of %d; ", len(lost.Unguarded), len(u.Confirmed.Unguarded))
	if h.Tokenless {
		return text + "no token, so no guard"
	}
	return text + fmt.Sprintf("with it: %d of %d", len(lost.Guarded), len(u.Confirmed.Guarded))
}

// storage has the sets of a scenario. A write and its check are one step in it: nobody reads
// in between.
type storage struct {
	mu             sync.Mutex
	now, confirmed Sets
}

// read returns the sets as they are now.
func (h *History) read() Sets {
	h.sets.mu.Lock()
	defer h.sets.mu.Unlock()
	return h.sets.now
}

// put is a write to the storage that may replace the sets. The storage without a guard takes
// whatever it gets.
func (h *History) put(w Write, sets *Sets) {
	h.sets.mu.Lock()
	defer h.sets.mu.Unlock()
	refused := h.write(w)
	if sets == nil {
		return
	}
	confirmed := h.sets.confirmed.with(w.Value)
	h.sets.now.Unguarded, h.sets.confirmed.Unguarded = sets.Unguarded, confirmed.Unguarded
	if !refused && !h.Tokenless {
		h.sets.now.Guarded, h.sets.confirmed.Guarded = sets.Guarded, confirmed.Guarded
	}
}

// confirm notes an element that a transaction has added to both sets.
func (h *History) confirm(element int) {
	h.sets.mu.Lock()
	defer h.sets.mu.Unlock()
	h.sets.confirmed = h.sets.confirmed.with(element)
}

// found notes what the last holder reads, and compares it with what was confirmed.
func (h *History) found(final Sets, calm int) {
	h.sets.mu.Lock()
	defer h.sets.mu.Unlock()
	h.Updates = &Updates{Confirmed: h.sets.confirmed, Final: final, Calm: calm}
}

// nothingLost turns cells of a scenario into [NotPlayed] if no subject at all has lost an
// update without the guard though some may: the pauses had no effect, so the guard was not
// needed, and nothing was shown.
func (m *Matrix) nothingLost() {
	for _, sc := range m.Scenarios {
		var may []*Cell
		lost := false
		for i := range m.Cells {
			c := &m.Cells[i]
			if c.Scenario != sc.Name || c.Verdict == NotPlayed || c.History == nil || c.History.Updates == nil {
				continue
			}
			lost = lost || len(c.History.Updates.lost().Unguarded) > 0
			if c.Verdict != FalseClaim && m.mayLose(c.Subject, sc.Breaks) {
				may = append(may, c)
			}
		}
		for _, c := range may {
			if !lost {
				c.Verdict, c.Why = NotPlayed, "no configuration lost an update without the guard, although some may: the scenario shows nothing"
			}
		}
	}
}

// mayLose reports whether a subject declares that two may hold its lock when broken is broken.
func (m *Matrix) mayLose(subject string, broken locker.Assumptions) bool {
	return slices.ContainsFunc(m.Subjects, func(s Subject) bool {
		return s.Name == subject && s.Guarantees.Exclusion&(broken|locker.Unpromised) != 0
	})
}
