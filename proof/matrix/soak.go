package matrix

import (
	"context"
	"slices"
	"time"

	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/proof/matrix/internal/history"
	"github.com/lockstile/locker/proof/matrix/internal/judge"
)

// Soaking is how to break at random.
type Soaking struct {
	Seed uint64        // of the first round; each round has the next one
	For  time.Duration // and until the round is over
	// Crowd is how many processes want one exclusive lock, if it is not 0. Every two seconds
	// there is a fault: to a process, mostly to the holder, to its network, or to the servers. None
	// of them excuses a break. The servers stay the same throughout, and what they hold at the end
	// must not be more than at the beginning. A round takes half a minute.
	Crowd int
}

// Soaked is what a soak of one subject came to: its rounds together.
type Soaked struct {
	Subject   string        `json:"subject"`
	Processes int           `json:"processes"` // at a time
	Seed      uint64        `json:"seed"`      // of the first round
	Took      time.Duration `json:"took"`
	Rounds    int           `json:"rounds"`
	Locks     int           `json:"locks"`   // that were granted
	Faults    int           `json:"faults"`  // that were injected
	Lost      int           `json:"lost"`    // locks that were lost before they were unlocked
	Unknown   int           `json:"unknown"` // attempts that may have left a lock behind
	Overlap   int           `json:"overlap"` // rounds in which two believed at once, as declared
	Stale     int           `json:"stale"`   // stale writes
	Passed    int           `json:"passed"`  // those of them that passed the guard after the next holder's claim
	Away      time.Duration `json:"away"`    // in which nobody was granted any lock for more than a second
	Longest   time.Duration `json:"longest"` // wait for a lock that was granted
	// Before and After are what the store held when one worker had locked and unlocked; nil
	// unless there was a crowd.
	Before *Stored `json:"before,omitempty"`
	After  *Stored `json:"after,omitempty"`
	// Kept are the rounds whose history is kept: those that broke a promise or could not be
	// played, and the last.
	Kept []Cell `json:"cells"`
}

// Soak plays rounds on every subject until the time is over. In a round everything is drawn from
// its seed: four workers lock several names in every way that the subject declares, and up
// to four kinds of faults of the scenarios come at once, by chance. Everything is judged
// as in [Run], so a round whose faults excuse a break may show one. Done is called after every round. If ctx ends, the
// round that is under way ends as well, and does not count.
func Soak(ctx context.Context, set Settings, subjects []Subject, how Soaking) []Soaked {
	set = set.filled()
	all := make([]Soaked, len(subjects))
	set.each(len(subjects), func(i int) {
		s := &soak{servers: &servers{set: set, subject: subjects[i]}, how: how}
		defer s.servers.close()
		s.Subject, s.Processes, s.Seed = subjects[i].Name, workers, how.Seed
		if how.Crowd > 0 {
			s.Processes = how.Crowd
			s.crowd(ctx)
		} else {
			s.rounds(ctx, round)
		}
		all[i] = s.Soaked
	})
	return all
}

// soak is a soak of one subject while it goes on.
type soak struct {
	Soaked
	servers *servers
	how     Soaking
	last    fencing.Token // that was given in a round before, on the same servers
}

// rounds plays until the time is over, or there is no such server.
func (s *soak) rounds(ctx context.Context, round func(seed uint64) Scenario) {
	began := time.Now()
	for ctx.Err() == nil && (s.Rounds == 0 || s.Took < s.how.For) {
		cell := s.play(ctx, round(s.how.Seed+uint64(s.Rounds)))
		if cutOff(ctx, cell) {
			return
		}
		s.add(cell)
		s.Took = time.Since(began)
		if cell.Verdict == Skipped {
			return
		}
	}
}

func (s *soak) play(ctx context.Context, sc Scenario) Cell {
	cell := s.servers.once(ctx, sc, lockName)
	if s.how.Crowd > 0 {
		s.inOrder(&cell)
	}
	s.servers.set.tell(ctx, cell)
	return cell
}

// maxKept bounds how many histories are kept of rounds that failed.
const maxKept = 5

// add adds a round.
func (s *Soaked) add(c Cell) {
	s.Rounds++
	if len(s.Kept) > 0 && !s.Kept[len(s.Kept)-1].failed() || len(s.Kept) > maxKept {
		s.Kept = s.Kept[:len(s.Kept)-1]
	}
	s.Kept = append(s.Kept, c)
	h := c.History
	if h == nil {
		return
	}
	s.Locks += len(h.Spans)
	s.Faults += h.Faults
	s.Unknown += h.Unknown
	s.Stale += c.Stale
	s.Passed += c.Passed
	s.Away += away(h)
	if c.Overlap > judge.Slack {
		s.Overlap++
	}
	for _, span := range h.Spans {
		if span.Lost {
			s.Lost++
		}
		s.Longest = max(s.Longest, span.From.Sub(span.Asked))
	}
}

func (c Cell) failed() bool { return c.Verdict == FalseClaim || c.Verdict == NotPlayed }

// away is for how long nobody was granted any lock while the round had faults, where that is
// more than a second.
func away(h *history.History) (sum time.Duration) {
	times := []driver.Instant{h.Began, h.Calm}
	for _, s := range h.Spans {
		if s.From < h.Calm {
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

// SoakMatrix makes a matrix of the rounds that were kept, for a report.
func SoakMatrix(subjects []Subject, all []Soaked) *Matrix {
	m := &Matrix{Subjects: subjects}
	for _, s := range all {
		for _, c := range s.Kept {
			m.Cells = append(m.Cells, c)
			if !slices.ContainsFunc(m.Scenarios, func(sc Scenario) bool { return sc.Name == c.Scenario }) {
				m.Scenarios = append(m.Scenarios, c.scenario)
			}
		}
	}
	return m
}
