package main

import (
	"context"
	"strings"
	"time"
)

// benchReport is what "bench" prints.
type benchReport struct {
	Backend   string    `json:"backend"` // the scheme of its URL, which has no password in it
	TTL       float64   `json:"ttl_seconds"`
	CutShort  bool      `json:"cut_short"`
	Checked   int       `json:"locks_checked"` // those that do not count as well
	Workloads []figures `json:"workloads"`
}

// figures are those of a workload. What cannot be told for want of locks is 0, and
// left out of JSON.
type figures struct {
	Name       string  `json:"name"`
	Goroutines int     `json:"goroutines"`
	Clients    int     `json:"clients"`
	Hold       float64 `json:"hold_seconds"`
	Measured   float64 `json:"measured_seconds"`
	Locks      int     `json:"locks"`
	Rate       float64 `json:"locks_per_second"`

	LockMedian   float64 `json:"lock_median_seconds,omitempty"`
	LockP99      float64 `json:"lock_p99_seconds,omitempty"`
	UnlockMedian float64 `json:"unlock_median_seconds,omitempty"`
	UnlockP99    float64 `json:"unlock_p99_seconds,omitempty"`

	HandOverMedian float64 `json:"hand_over_median_seconds,omitempty"`
	HandOverP99    float64 `json:"hand_over_p99_seconds,omitempty"`
	Jain           float64 `json:"jain,omitempty"`
	ChangedHands   *int    `json:"changed_hands,omitempty"`
}

func newBenchReport(in invocation) *benchReport {
	scheme, _, _ := strings.Cut(in.url(), ":")
	return &benchReport{Backend: scheme, TTL: in.ttl.Seconds(), Workloads: []figures{}}
}

// measure plays the workloads, until the end of ctx.
func (b *benchReport) measure(ctx context.Context, run *benchRun) error {
	for _, w := range []workload{
		{goroutines: 1, clients: 1},
		{goroutines: run.goroutines, clients: len(run.clients)},
		{goroutines: run.goroutines, clients: len(run.clients), oneName: true, hold: run.hold},
	} {
		if ctx.Err() != nil {
			break
		}
		m := newMeter(w.goroutines)
		took, err := (&race{benchRun: run, load: w, meter: m}).run(ctx)
		if err != nil {
			return err
		}
		if ctx.Err() != nil && m.locks() == 0 {
			break // it was still warming up
		}
		b.Workloads = append(b.Workloads, newFigures(w, m, took))
	}
	for i := range run.witnesses {
		b.Checked += run.witnesses[i].seen
	}
	return nil
}

func newFigures(w workload, m *meter, took time.Duration) figures {
	f := figures{
		Name:       "own names",
		Goroutines: w.goroutines,
		Clients:    w.clients,
		Hold:       w.hold.Seconds(),
		Measured:   took.Seconds(),
		Locks:      m.locks(),
	}
	f.Rate = float64(f.Locks) / max(f.Measured, 1e-9)
	if !w.oneName {
		f.LockMedian, f.LockP99 = m.lock.seconds()
		f.UnlockMedian, f.UnlockP99 = m.unlock.seconds()
		return f
	}
	f.Name = "one name"
	f.HandOverMedian, f.HandOverP99 = m.handOver.seconds()
	f.Jain = jain(m.served)
	f.ChangedHands = &m.changes
	return f
}

// seconds are the median and the 99th percentile.
func (h *histogram) seconds() (median, p99 float64) {
	return h.percentile(50).Seconds(), h.percentile(99).Seconds()
}
