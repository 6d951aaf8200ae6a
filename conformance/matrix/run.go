package matrix

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"github.com/lockstile/locker"
)

// Settings are how [Run] goes about it.
type Settings struct {
	// Worker is the command that becomes a worker process for a store at
	// url: it calls [Work].
	Worker func(url string) *exec.Cmd
	// Start starts a child so that it ends with this process. The default
	// is cmd.Start.
	Start func(cmd *exec.Cmd) error
	// Parallel is how many cells are played at once. Most of their time is
	// waiting. The default is 4.
	Parallel int
	// Done is called after every cell, from one goroutine at a time.
	Done func(Cell)
}

// Matrix is what [Run] found.
type Matrix struct {
	Subjects  []Subject  `json:"-"`
	Scenarios []Scenario `json:"-"`
	Cells     []Cell     `json:"cells"`
	Modest    []Modesty  `json:"modest"`
}

// Cell returns the cell of a scenario and a subject.
func (m *Matrix) Cell(scenario, subject string) Cell {
	for _, c := range m.Cells {
		if c.Scenario == scenario && c.Subject == subject {
			return c
		}
	}
	return Cell{Scenario: scenario, Subject: subject, Verdict: Skipped}
}

// FalseClaims returns the cells in which a declaration was stronger than the
// truth.
func (m *Matrix) FalseClaims() (cells []Cell) {
	for _, c := range m.Cells {
		if c.Verdict == FalseClaim {
			cells = append(cells, c)
		}
	}
	return cells
}

// Run plays every scenario on every subject, each on servers of its own. An
// error says that a scenario could not be played, which is nobody's verdict.
func Run(ctx context.Context, set Settings, subjects []Subject, scenarios []Scenario) (*Matrix, error) {
	if set.Parallel == 0 {
		set.Parallel = 4
	}
	if set.Start == nil {
		set.Start = (*exec.Cmd).Start
	}
	m := &Matrix{Subjects: subjects, Scenarios: scenarios, Cells: make([]Cell, len(subjects)*len(scenarios))}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex // for Done and errs
		errs []error
		slot = make(chan struct{}, set.Parallel)
	)
	for i := range m.Cells {
		sub, sc := subjects[i%len(subjects)], scenarios[i/len(subjects)]
		wg.Go(func() {
			slot <- struct{}{}
			defer func() { <-slot }()
			cell, err := playCell(ctx, set, sub, sc)
			m.Cells[i] = cell
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("matrix: %s on %s: %w", sc.Name, sub.Name, err))
			} else if set.Done != nil {
				set.Done(cell)
			}
		})
	}
	wg.Wait()
	m.Modest = m.modesty()
	return m, errors.Join(errs...)
}

// playTime bounds one cell.
const playTime = 3 * time.Minute

func playCell(ctx context.Context, set Settings, sub Subject, sc Scenario) (Cell, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, playTime, fmt.Errorf("not over after %v", playTime))
	defer cancel()
	cell := Cell{Scenario: sc.Name, Subject: sub.Name, Verdict: Skipped}
	lab := &Lab{command: set.Worker, Start: set.Start}
	defer lab.close()
	var sys *System
	var err error
	if failed := lab.Try(func() { sys, err = sub.Start(lab) }); failed != nil || err != nil {
		return cell, errors.Join(failed, err)
	}
	if sc.Needs != nil {
		if cell.Why = sc.Needs(sys); cell.Why != "" {
			return cell, nil
		}
	}
	p := &Play{System: sys, History: &History{Began: locker.Now()}, TTL: sub.ttl(), ctx: ctx, lab: lab, guarantees: sub.Guarantees, name: lockName}
	defer p.end()
	var played error
	if failed := lab.Try(func() { played = p.step(func() { sc.Play(p) }) }); failed != nil || played != nil {
		return cell, errors.Join(failed, played)
	}
	p.History.Ended = locker.Now()
	p.end()
	return p.cell(cell, sub, sc), nil
}

func (p *Play) cell(cell Cell, sub Subject, sc Scenario) Cell {
	h := p.History
	cell.History, cell.Waited, cell.Overlap = h, p.Waited, max(0, h.Overlap())
	cell.Stale, cell.Passed = h.Stale()
	cell.Verdict, cell.Why = judge(sub.Guarantees, sc.Breaks, h)
	if cell.Verdict == Kept && p.Waited > unavailableAfter {
		cell.Verdict, cell.Why = Unavailable, fmt.Sprintf("for %v", p.Waited.Round(10*time.Millisecond))
	}
	return cell
}

// unavailableAfter is how long the next lock may take before that is called
// unavailable.
const unavailableAfter = 750 * time.Millisecond

func (s Subject) ttl() time.Duration {
	if s.TTL == 0 {
		return time.Second
	}
	return s.TTL
}

// Modesty is an assumption that a subject leans on and that no scenario which
// broke it could hurt.
type Modesty struct {
	Subject   string             `json:"subject"`
	Guarantee string             `json:"guarantee"` // "exclusion" or "tokens"
	Leans     locker.Assumptions `json:"leans"`
}

func (m *Matrix) modesty() (all []Modesty) {
	for _, s := range m.Subjects {
		exclusion, tokens, tried := s.Guarantees.Exclusion, s.Guarantees.Tokens, locker.Assumptions(0)
		for _, sc := range m.Scenarios {
			switch c := m.Cell(sc.Name, s.Name); c.Verdict {
			case Skipped:
				continue
			case Broken:
				tokens &^= sc.Breaks
				exclusion &^= sc.Breaks
			case BrokenFenced:
				exclusion &^= sc.Breaks
			}
			tried |= sc.Breaks
		}
		if left := exclusion & tried; left != 0 {
			all = append(all, Modesty{s.Name, "exclusion", left})
		}
		if left := tokens & tried; left != 0 {
			all = append(all, Modesty{s.Name, "tokens", left})
		}
	}
	return all
}
