package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/matrix/report"
)

// soakAll breaks at random instead of playing scenarios.
func (c *command) soakAll(ctx context.Context, stderr io.Writer, subjects []matrix.Subject) (int, error) {
	if c.scenarios != "" || c.readme != "" {
		return exitUsage, errors.New("--soak plays no scenarios: leave out --scenarios and --readme")
	}
	if c.seed == 0 {
		c.seed = uint64(rand.Uint32())
	}
	if _, err := fmt.Fprintf(stderr, "seed %d\n", c.seed); err != nil {
		return exitUnavailable, err
	}
	all := matrix.Soak(ctx, matrix.Settings{Start: testserver.StartChild, Done: tellRound(stderr)}, subjects,
		matrix.Soaking{Seed: c.seed, For: c.soak, Crowd: int(c.crowd)})
	m := matrix.SoakMatrix(subjects, all)
	if ctx.Err() != nil {
		report.SoakTable(c.textOutput(), all)
		return c.interrupted(ctx, m, report.Rounds(all))
	}
	report.Soak(c.textOutput(), m, all)
	err := errors.Join(
		writeTo(c.html, page(m)),
		writeTo(c.json, asJSON(all)),
		addRows(c.markdown, all),
	)
	if err != nil {
		return exitUsage, err
	}
	return exitOf(m)
}

func tellRound(w io.Writer) func(matrix.Cell) {
	return func(c matrix.Cell) {
		locks := 0
		if c.History != nil {
			locks = len(c.History.Spans)
		}
		why := ""
		if c.Why != "" {
			why = ": " + c.Why
		}
		_, _ = fmt.Fprintf(w, "%s, %s: %s, locks: %d%s\n", c.Subject, c.Scenario, report.Word(c), locks, why) // without a reader there is nobody to tell
	}
}
