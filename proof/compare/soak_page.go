package main

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/matrix/report"
)

// soakHeading begins the last part of the page of guarantees, which soaks add rows to.
const soakHeading = "\n## At random\n"

const soakLegend = `
The scenarios break one thing at a time. A soak (` + "`make soak`" + `) breaks at random. In a round four
processes lock several names in every way that the backend declares, with leases from 100 ms to 10 s and contexts that end
at any moment, and write through guards. On a backend whose locks can leave their process, a holder sometimes detaches its lock. Then the same
process or another one resumes it; or two try at once, and one at most may; or nobody does, and the lock ends with its TTL. Meanwhile up to four kinds of faults of the scenarios come at once, each of them
every second or so, on servers that only this round uses. Then everything is mended, every call that
waits must be granted, and every name must be free. Where somebody gives up a lock that nobody else wants, and is told that
it holds nothing, another process must get it, unless a server may have forgotten what it was to refuse.
A round is judged as the scenarios are: what its faults break, and the
declaration assumes, is excused. In every second round no fault is excused. A connection whose locks end with it is closed only
in a round that excuses *server up*. Porcupine checks each lock against a mutex with tokens that
readers may share, and the guard against a register with two marks.

` + "`make soak FOR=1s SEED=N BACKENDS=NAME`" + ` plays round N again, and leaves a row of more rounds alone. The seed decides what is drawn, not how
processes interleave. A round is always played to its end, mostly 10 to 20 seconds, so a soak of 1s is one round.

Rows of 64 processes are a crowd (` + "`CROWD=64`" + `): all want one exclusive lock, each holder writes once through the
guard, and every two seconds a fault comes, most often to the process that was granted the lock last: it is stopped, killed
or cut off, its answers are held back, or servers stop or are killed and come back with what they had. The servers
stay the same. Every half minute all is unlocked and judged, and other processes come. No fault excuses a second holder or a
token that is not greater. At the end the store must not hold more keys,
rows and so on than after one lock and unlock at the beginning. Its memory, or size on disk, is shown but not judged. A crowd's round lasts for as long as the soak, up to half a minute: play it again with ` + "`make soak FOR=30s CROWD=64 SEED=N`" + `.

- *lost*: locks that their holders were told to have lost. *Unknown*: attempts that may have left a lock behind, until its lease ended.
- *Nobody could lock*: the times of more than a second in which no lock was granted, while there were faults.
- *Two at once*: rounds in which two processes believed at once that they held the lock, as declared. *Past the guard*:
  stale writes that it took after the next holder's claim.
- *Store before*, *after*: keys, rows, nodes, files, sessions and places in queues, and the memory, or the size of the
  tables or of etcd's compacted database, as the servers say.

The figures are no measure of speed: backends are broken side by side, on one machine.

` + report.SoakHead

// soakPart returns the part of a page that soaks have made, or "".
func soakPart(path string) (string, error) {
	page, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if i := strings.Index(string(page), soakHeading); i >= 0 {
		return string(page[i:]), nil
	}
	return "", nil
}

// addRows adds a row for each soak to the page, in the place of one of the same seeds that was
// not longer. It does nothing if there is no path.
func addRows(path string, all []matrix.Soaked) error {
	if path == "" || path == standardOutput {
		return nil // the text has the rows
	}
	page, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(path, []byte(withRows(string(page), all)), 0o666) //nolint:gosec // as os.Create
}

func withRows(page string, all []matrix.Soaked) string {
	before, part, ok := strings.Cut(page, soakHeading)
	if !ok {
		part = soakLegend
	}
	lines := strings.SplitAfter(part, "\n")
	for _, s := range all {
		lines = replaced(lines, report.SoakPrefix(s), report.SoakRow(s))
	}
	return before + soakHeading + strings.Join(lines, "")
}

// replaced puts a line in the place of the one with that prefix, or at the end.
func replaced(lines []string, prefix, line string) []string {
	for i := range lines {
		if strings.HasPrefix(lines[i], prefix) {
			lines[i] = line
			return lines
		}
	}
	return append(lines, line)
}
