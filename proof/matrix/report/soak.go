package report

import (
	"fmt"
	"io"
	"time"

	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/matrix/internal/judge"
)

// SoakHead is the head of the table that [SoakRow] makes a row of.
const SoakHead = `| backend | processes | seeds | for | locks | faults | lost | unknown | longest wait | nobody could lock | two at once | stale writes | past the guard | store before | after | false claims |
|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
`

// SoakRow is what the soak came to as a row of a Markdown table.
func SoakRow(s matrix.Soaked) string {
	claims := 0
	for _, c := range s.Kept {
		if c.Verdict == matrix.FalseClaim {
			claims++
		}
	}
	return fmt.Sprintf("%s%d | %v | %d | %d | %d | %d | %v | %v | %s | %d | %d | %s | %s | %d |\n",
		SoakPrefix(s), s.Seed+uint64(s.Rounds)-1, s.Took.Round(time.Second), s.Locks, s.Faults, s.Lost, s.Unknown, //nolint:gosec // not negative
		s.Longest.Round(time.Millisecond), s.Away.Round(time.Second), judge.Count(s.Overlap, "round"), s.Stale, s.Passed,
		stored(s.Before), stored(s.After), claims)
}

// Soak writes what soaks came to for a terminal. m is the [matrix.SoakMatrix] of them.
func Soak(w io.Writer, m *matrix.Matrix, all []matrix.Soaked) {
	SoakTable(w, all)
	findings(w, m, "", "")
}

// SoakTable writes a row for each soak that has played a round.
func SoakTable(w io.Writer, all []matrix.Soaked) {
	fmt.Fprint(w, SoakHead)
	for _, s := range all {
		if s.Rounds > 0 {
			fmt.Fprint(w, SoakRow(s))
		}
	}
}

// Rounds says how many rounds were played to their end.
func Rounds(all []matrix.Soaked) string {
	rounds := 0
	for _, s := range all {
		rounds += s.Rounds
	}
	return judge.Count(rounds, "round")
}

// SoakPrefix is what the row begins with, and no other row.
func SoakPrefix(s matrix.Soaked) string {
	return fmt.Sprintf("| %s | %d | %d–", s.Subject, s.Processes, s.Seed)
}

// stored is what a store holds, in words.
func stored(s *matrix.Stored) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%d, %d kB", s.Entries, (s.Bytes+1023)/1024)
}
