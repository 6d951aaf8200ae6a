package matrix

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/lockstile/locker"
)

// Soaked is what a soak of one subject came to: its rounds together.
type Soaked struct {
	Subject string        `json:"subject"`
	Seed    uint64        `json:"seed"` // of the first round; each round has the next one
	Took    time.Duration `json:"took"`
	Rounds  int           `json:"rounds"`
	Locks   int           `json:"locks"`   // that were granted
	Faults  int           `json:"faults"`  // that were injected
	Lost    int           `json:"lost"`    // locks that were lost before they were unlocked
	Unknown int           `json:"unknown"` // attempts that may have left a lock behind
	Overlap int           `json:"overlap"` // rounds in which two believed at once, as declared
	Stale   int           `json:"stale"`   // stale writes
	Passed  int           `json:"passed"`  // those of them that passed the guard after the next holder's claim
	Away    time.Duration `json:"away"`    // in which nobody was granted any lock for more than a second
	// Kept are the rounds whose history is kept: those that broke a promise or could not be
	// played, and the last.
	Kept []Cell `json:"cells"`
}

// Soak plays rounds on every subject, one after another, until d is over. In a round
// everything is drawn from its seed: four workers lock several names in every way that the
// subject declares, and up to four kinds of faults of the scenarios come at once, by
// chance. Everything is judged as in [Run], so a round whose faults excuse a break may show
// one. Done is called after every round.
func Soak(ctx context.Context, set Settings, subjects []Subject, seed uint64, d time.Duration) []Soaked {
	set = set.filled()
	all := make([]Soaked, len(subjects))
	set.each(len(subjects), func(i int) { all[i] = soak(ctx, set, subjects[i], seed, d) })
	return all
}

func soak(ctx context.Context, set Settings, sub Subject, seed uint64, d time.Duration) Soaked {
	s := Soaked{Subject: sub.Name, Seed: seed}
	servers := &servers{set: set, subject: sub}
	defer servers.close()
	begin := time.Now()
	for s.Took < d && ctx.Err() == nil || s.Rounds == 0 {
		cell := servers.once(ctx, round(seed+uint64(s.Rounds)), lockName)
		s.Took = time.Since(begin)
		s.add(cell)
		set.Done(cell)
		if cell.Verdict == Skipped {
			break // there is no such server
		}
	}
	return s
}

// maxKept bounds how many histories are kept of rounds that failed.
const maxKept = 5

func (s *Soaked) add(c Cell) {
	if len(s.Kept) > 0 && !s.Kept[len(s.Kept)-1].failed() || len(s.Kept) > maxKept {
		s.Kept = s.Kept[:len(s.Kept)-1]
	}
	s.Kept = append(s.Kept, c)
	s.Rounds++
	h := c.History
	if h == nil {
		return
	}
	s.Locks += len(h.Spans)
	s.Faults += h.faults
	s.Unknown += h.unknown
	s.Stale += c.Stale
	s.Passed += c.Passed
	s.Away += h.away()
	if c.Overlap > slack {
		s.Overlap++
	}
	for _, span := range h.Spans {
		if span.Lost {
			s.Lost++
		}
	}
}

func (c Cell) failed() bool { return c.Verdict == FalseClaim || c.Verdict == NotPlayed }

// away is for how long nobody was granted any lock while the round had faults, where that is
// more than a second.
func (h *History) away() (sum time.Duration) {
	times := []locker.Instant{h.Began, h.calm}
	for _, s := range h.Spans {
		if s.From < h.calm {
			times = append(times, s.From)
		}
	}
	slices.Sort(times)
	for i, at := range times[1:] {
		if gap := at.Sub(times[i]); gap > time.Second {
			sum += gap
		}
	}
	return sum
}

// SoakMatrix makes a matrix of the rounds that were kept, for [Matrix.WriteHTML],
// [Matrix.FalseClaims] and [Matrix.NotPlayed].
func SoakMatrix(subjects []Subject, all []Soaked) *Matrix {
	m := &Matrix{Subjects: subjects}
	for _, s := range all {
		for _, c := range s.Kept {
			m.Cells = append(m.Cells, c)
			if !slices.ContainsFunc(m.Scenarios, func(sc Scenario) bool { return sc.Name == c.Scenario }) {
				m.Scenarios = append(m.Scenarios, Scenario{Name: c.Scenario, Story: roundStory, Breaks: c.breaks})
			}
		}
	}
	return m
}

// SoakHead is the head of the table that [Soaked.Row] makes a row of.
const SoakHead = `| backend | seeds | for | locks | faults | lost | unknown | nobody could lock | two at once | stale writes | past the guard | false claims |
|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
`

// Row is what the soak came to as a row of a Markdown table.
func (s Soaked) Row() string {
	claims := 0
	for _, c := range s.Kept {
		if c.Verdict == FalseClaim {
			claims++
		}
	}
	return fmt.Sprintf("%s%d | %v | %d | %d | %d | %d | %v | %s | %d | %d | %d |\n",
		s.Prefix(), s.Seed+uint64(s.Rounds)-1, s.Took.Round(time.Second), s.Locks, s.Faults, s.Lost, s.Unknown, //nolint:gosec // not negative
		s.Away.Round(time.Second), count(s.Overlap, "round"), s.Stale, s.Passed, claims)
}

// WriteSoak writes what soaks came to for a terminal. m is the [SoakMatrix] of them.
func WriteSoak(w io.Writer, m *Matrix, all []Soaked) {
	fmt.Fprint(w, SoakHead)
	for _, s := range all {
		fmt.Fprint(w, s.Row())
	}
	m.writeFindings(w, "", "")
}

// Prefix is what the row begins with, and no other row.
func (s Soaked) Prefix() string { return fmt.Sprintf("| %s | %d–", s.Subject, s.Seed) }
