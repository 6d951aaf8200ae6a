package history

import (
	"fmt"
	"slices"
	"sync"
)

// Sets is one set in two storages: in one without a guard, and in one whose guard checks
// the token of every write.
type Sets struct {
	Unguarded []int `json:"unguarded"`
	Guarded   []int `json:"guarded"`
}

// With returns the sets with one more element, for whoever writes them back. It leaves s as
// it is.
func (s Sets) With(element int) Sets {
	return Sets{append(slices.Clip(s.Unguarded), element), append(slices.Clip(s.Guarded), element)}
}

// Updates is what became of elements that holders added to a set: each read the set, and
// wrote it back with one more element.
type Updates struct {
	Confirmed Sets `json:"confirmed"` // elements whose write the storage has accepted
	Final     Sets `json:"final"`     // the set when all had ended, as the last holder reads it
	Calm      int  `json:"calm"`      // elements up to this one were added before anybody was paused
}

// Lost returns the elements that were confirmed and are not there in the end.
func (u *Updates) Lost() (s Sets) {
	if u != nil {
		s = Sets{lostOf(u.Confirmed.Unguarded, u.Final.Unguarded), lostOf(u.Confirmed.Guarded, u.Final.Guarded)}
	}
	return s
}

// LostInCalm reports whether an element was lost that was added before anybody was paused.
// Whoever wrote later had read the set after that.
func (u *Updates) LostInCalm() bool {
	return slices.ContainsFunc(u.Lost().Unguarded, func(element int) bool { return element <= u.Calm })
}

// lostOf returns the elements that were confirmed and are not there in the end.
func lostOf(confirmed, final []int) []int {
	return slices.DeleteFunc(slices.Clone(confirmed), func(element int) bool { return slices.Contains(final, element) })
}

// LostUpdates says in words how many updates were lost; "" if the scenario has none.
func (h *History) LostUpdates() string {
	if h == nil || h.Updates == nil {
		return ""
	}
	u, lost := h.Updates, h.Updates.Lost()
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

// Read returns the sets as they are now.
func (h *History) Read() Sets {
	h.sets.mu.Lock()
	defer h.sets.mu.Unlock()
	return h.sets.now
}

// Put is a write to the storage that may replace the sets. The storage without a guard takes
// whatever it gets.
func (h *History) Put(w Write, sets *Sets) {
	h.sets.mu.Lock()
	defer h.sets.mu.Unlock()
	refused := h.write(w)
	if sets == nil {
		return
	}
	confirmed := h.sets.confirmed.With(w.Value)
	h.sets.now.Unguarded, h.sets.confirmed.Unguarded = sets.Unguarded, confirmed.Unguarded
	if !refused && !h.Tokenless {
		h.sets.now.Guarded, h.sets.confirmed.Guarded = sets.Guarded, confirmed.Guarded
	}
}

// Confirm notes an element that a transaction has added to both sets.
func (h *History) Confirm(element int) {
	h.sets.mu.Lock()
	defer h.sets.mu.Unlock()
	h.sets.confirmed = h.sets.confirmed.With(element)
}

// NoteFinal notes what the last holder reads, beside what was confirmed.
func (h *History) NoteFinal(final Sets, calm int) {
	h.sets.mu.Lock()
	defer h.sets.mu.Unlock()
	h.Updates = &Updates{Confirmed: h.sets.confirmed, Final: final, Calm: calm}
}
