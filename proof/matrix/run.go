package matrix

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/proof/matrix/internal/judge"
)

// Settings are how [Run] plays.
type Settings struct {
	// Start starts a child, if possible so that it ends with this process, however that ends. The default
	// is cmd.Start, which does not see to it.
	Start func(cmd *exec.Cmd) error
	// Parallel is how many cells are played at once. Most of their time is
	// waiting. The default is 4.
	Parallel int
	// Done is called after every cell that was not cut off by the end of the context, from one goroutine at a time.
	Done func(Cell)
}

func (set Settings) filled() Settings {
	if set.Parallel == 0 {
		set.Parallel = 4
	}
	if set.Start == nil {
		set.Start = (*exec.Cmd).Start
	}
	done := set.Done
	var mu sync.Mutex
	set.Done = func(c Cell) {
		mu.Lock()
		defer mu.Unlock()
		if done != nil {
			done(c)
		}
	}
	return set
}

// tell calls Done, unless the cell was cut off.
func (set Settings) tell(ctx context.Context, c Cell) {
	if !cutOff(ctx, c) {
		set.Done(c)
	}
}

// cutOff reports whether a cell was not played to its end because somebody has interrupted the run: it says nothing.
func cutOff(ctx context.Context, c Cell) bool { return ctx.Err() != nil && c.Verdict == NotPlayed }

// each calls f with every number below n, as many at once as are to be played.
func (set Settings) each(n int, f func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(set.Parallel, n) {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// Matrix is what [Run] found.
type Matrix struct {
	Subjects  []Subject  `json:"-"`
	Scenarios []Scenario `json:"-"`
	Cells     []Cell     `json:"cells"`
	Modest    []Unproven `json:"modest"`  // broken by every scenario that can, and it did no harm
	Untried   []Unproven `json:"untried"` // no scenario could break it here
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
func (m *Matrix) FalseClaims() []Cell { return m.with(FalseClaim) }

// NotPlayed returns the cells of scenarios that could not be played. They say nothing
// about their subjects.
func (m *Matrix) NotPlayed() []Cell { return m.with(NotPlayed) }

// Skipped returns the cells of faults that cannot be injected there, and of servers
// that are missing. If that is all cells, nothing was measured.
func (m *Matrix) Skipped() []Cell { return m.with(Skipped) }

func (m *Matrix) with(v Verdict) (cells []Cell) {
	for _, c := range m.Cells {
		if c.Verdict == v {
			cells = append(cells, c)
		}
	}
	return cells
}

// Run plays every scenario on every subject. Scenarios that do no harm to servers share
// those of their subject, each with a lock of its own; the others have servers of their
// own. The workers are this program, started again: see [BecomeWorker].
func Run(ctx context.Context, set Settings, subjects []Subject, scenarios []Scenario) *Matrix {
	set = set.filled()
	m := &Matrix{Subjects: subjects, Scenarios: scenarios, Cells: make([]Cell, len(subjects)*len(scenarios))}
	all := make([]*servers, len(subjects))
	for i, sub := range subjects {
		all[i] = &servers{set: set, subject: sub}
		defer all[i].close()
	}
	set.each(len(m.Cells), func(i int) {
		m.Cells[i] = all[i%len(all)].play(ctx, scenarios[i/len(all)], fmt.Sprint(lockName, "-", i))
		set.tell(ctx, m.Cells[i])
	})
	m.nothingLost()
	m.Modest, m.Untried = m.unproven(Scenarios())
	return m
}

// machineAfter is more than a busy machine has been seen to add to a wait, and less than
// any lease.
const machineAfter = 900 * time.Millisecond

// playTime bounds one cell.
const playTime = 3 * time.Minute

// play plays one scenario with a lock of that name. A short wait may be the machine's,
// and is measured again, with another lock: a wait for the store comes every time. Any
// other verdict of the new run replaces the old one.
func (s *servers) play(ctx context.Context, sc Scenario, name string) Cell {
	cell := s.once(ctx, sc, name)
	for i := 0; i < 2 && cell.Verdict == Unavailable && cell.Waited < machineAfter; i++ {
		again := s.once(ctx, sc, fmt.Sprint(name, "-again-", i))
		if again.Verdict != Unavailable || again.Waited < cell.Waited {
			cell = again
		}
	}
	return cell
}

func (s *servers) once(ctx context.Context, sc Scenario, name string) Cell {
	cell := Cell{Scenario: sc.Name, Subject: s.subject.Name, Verdict: NotPlayed, scenario: sc}
	run := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, playTime, fmt.Errorf("not over after %v", playTime))
	defer cancel()
	if ctx.Err() != nil {
		cell.Why = context.Cause(ctx).Error()
		return cell
	}
	if sc.missing(s.subject.Guarantees) {
		cell.Verdict, cell.Why = Skipped, judge.NoSuchKind
		return cell
	}
	if sc.play == nil {
		cell.Why = "only scenarios of matrix.Scenarios can be played"
		return cell
	}
	sys, lab, err := s.shared()
	if err == nil && sc.lacks != nil {
		if cell.Why = sc.lacks(sys); cell.Why != "" {
			cell.Verdict = Skipped
			return cell
		}
	}
	if err == nil && sc.ruins {
		sys, lab, err = s.start()
		defer lab.Close()
	}
	if err != nil {
		if cell.Why = err.Error(); errors.Is(err, errMissing) {
			cell.Verdict = Skipped
		}
		return cell
	}
	p := s.newPlay(ctx, sys, lab, sc, name)
	p.reached = func() error { return s.reach(run) }
	defer p.end()
	err = try(p.play)
	p.History.Ended = driver.Now()
	if run.Err() != nil { // a signal from the terminal ends servers and workers, too: that is no finding
		err = context.Cause(run)
	}
	var still *standstill
	if err != nil && !errors.As(err, &still) {
		cell.Why, cell.History = err.Error(), p.History
		return cell
	}
	p.end()
	if err := p.readRegister(); err != nil {
		cell.Why, cell.History = err.Error(), p.History
		return cell
	}
	return p.cell(cell, s.subject, still)
}

func (s Subject) ttl() time.Duration {
	if s.TTL == 0 {
		return time.Second
	}
	return s.TTL
}

// Tokenless reports whether the lock has no tokens: it declares them as not promised.
func (s Subject) Tokenless() bool { return s.Guarantees.Tokens.Has(locker.Unpromised) }
