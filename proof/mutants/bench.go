//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// bench is where mutants are tried.
type bench struct {
	root        string
	work        string // temporary; also what tests leave behind is in it
	lanesAtOnce int
	timeout     time.Duration
}

func newBench(s settings) (*bench, error) {
	root, err := filepath.Abs(s.root)
	if err != nil {
		return nil, err
	}
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return nil, err
	}
	b := &bench{root: root, work: work, lanesAtOnce: s.lanes, timeout: s.timeout}
	for _, dir := range []string{b.work, b.temp()} { // servers of other users get through
		_ = os.Mkdir(dir, 0o755)
		if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // as said
			b.close()
			return nil, err
		}
	}
	return b, nil
}

func (b *bench) temp() string { return filepath.Join(b.work, "t") }

func (b *bench) close() { _ = os.RemoveAll(b.work) }

// What may become of a mutant. All but the first are failures.
const (
	killedBy   = "killed"
	survived   = "SURVIVED"
	timedOut   = "TIMED OUT"
	notBuilt   = "DOES NOT BUILD"
	notApplied = "DOES NOT APPLY"
	noTest     = "NO TEST"
	failsWhole = "FAILS UNBROKEN"
	noAnswer   = "COULD NOT RUN"
)

// verdict is what became of a mutant, and why.
type verdict struct{ what, why, output string }

// whole runs the tests that mutants name on the unbroken code, those of a package together,
// and returns a verdict for each mutant whose tests fail there, or are not there.
func (b *bench) whole(ctx context.Context, ms []*mutant) map[*mutant]verdict {
	patterns := make(map[string][]string) // of all tests that are named of a package
	for _, m := range ms {
		for _, n := range m.noticed {
			if !slices.Contains(patterns[n.dir], n.pattern()) {
				patterns[n.dir] = append(patterns[n.dir], n.pattern())
			}
		}
	}
	dirs := slices.Sorted(maps.Keys(patterns))
	verdicts := make(map[*mutant]verdict)
	var mu sync.Mutex
	b.lanes(len(dirs), func(i int) {
		dir, began := dirs[i], time.Now()
		ran := b.test(ctx, dir, strings.Join(patterns[dir], "|"), "", b.timeout*10)
		fmt.Printf("%-16s %6.1fs  ./%s\n", "unbroken", time.Since(began).Seconds(), dir)
		mu.Lock()
		defer mu.Unlock()
		for _, m := range ms {
			for _, n := range m.noticed {
				if v := ran.whole(n); n.dir == dir && v.what != "" {
					verdicts[m] = v
				}
			}
		}
	})
	return verdicts
}

// whole is the verdict of tests on the unbroken code: none if they pass.
func (r *ran) whole(n notice) verdict {
	if r.broken() {
		return verdict{failsWhole, fmt.Sprintf("%v cannot be run on the unbroken code", n), r.said()}
	}
	passed := false
	for name, how := range r.tests {
		switch match := n.matches(name); {
		case match && how == "pass":
			passed = true
		case match && how == "skip":
			return verdict{noTest, fmt.Sprintf("%v skips %s", n, name), ""}
		case match:
			return verdict{failsWhole, fmt.Sprintf("%v: %s fails on the unbroken code, too", n, name), r.said()}
		}
	}
	if passed {
		return verdict{}
	}
	return verdict{noTest, fmt.Sprintf("%v matches no test", n), ""}
}

// verdict tries one mutant.
func (b *bench) verdict(ctx context.Context, m *mutant) verdict {
	overlay, goDirs, err := b.apply(m)
	if err != nil {
		return verdict{notApplied, err.Error(), ""}
	}
	for _, dir := range goDirs { // tests of other packages may build it by themselves, and fail for that
		if slices.ContainsFunc(m.noticed, func(n notice) bool { return n.dir == dir }) {
			continue
		}
		if said, err := b.build(ctx, dir, overlay); err != nil {
			return verdict{notBuilt, "./" + dir, said}
		}
	}
	var by []string
	for _, n := range m.noticed {
		ran := b.test(ctx, n.dir, n.pattern(), overlay, b.timeout)
		switch failed := ran.failed(); {
		case ran.notBuilt:
			return verdict{notBuilt, "./" + n.dir, ran.said()}
		case ran.timedOut:
			return verdict{timedOut, fmt.Sprintf("%v has not ended after %v", n, b.timeout), ran.said()}
		case len(ran.tests) == 0 && ran.err != nil:
			return verdict{noAnswer, n.String(), ran.said()}
		case len(ran.tests) == 0:
			return verdict{noTest, fmt.Sprintf("%v matches no test", n), ""}
		case ran.err == nil:
			return verdict{survived, fmt.Sprintf("%v has not noticed it", n), ""}
		case !n.notices(ran):
			return verdict{survived, fmt.Sprintf("%v has not noticed it, and %s failed", n, failed), ran.said()}
		default:
			by = append(by, fmt.Sprintf("./%s %s", n.dir, failed))
		}
	}
	return verdict{killedBy, "by " + strings.Join(by, ", "), ""}
}

// apply breaks copies of the files that m is about, and returns the file that go's -overlay takes, and the folders of
// the Go files among them.
func (b *bench) apply(m *mutant) (overlay string, goDirs []string, err error) {
	files, err := m.broken(b.root)
	if err != nil {
		return "", nil, err
	}
	copies, err := os.MkdirTemp(b.work, "copies-")
	if err != nil {
		return "", nil, err
	}
	replace := make(map[string]string)
	for file, text := range files {
		if strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") {
			goDirs = append(goDirs, filepath.Dir(file))
		}
		replace[filepath.Join(b.root, file)] = filepath.Join(copies, file)
		if err := write(filepath.Join(copies, file), []byte(text)); err != nil {
			return "", nil, err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", nil, err
	}
	slices.Sort(goDirs)
	overlay = copies + ".json"
	return overlay, slices.Compact(goDirs), write(overlay, list)
}

func write(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// build builds a package, and returns what the compiler says.
func (b *bench) build(ctx context.Context, dir, overlay string) (string, error) {
	cmd := b.command(ctx, dir, overlay, "build", "-o", os.DevNull, ".")
	said, err := cmd.CombinedOutput()
	return string(said), err
}

// command is one of go's, which sees the overlay. With ctx all its children end, too.
func (b *bench) command(ctx context.Context, dir, overlay string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(b.root, dir)
	cmd.Env = append(cmd.Environ(), "LOCKER_TEST_REQUIRE=1", "LOCKER_TEST_NO_REPLAY=1", "TMPDIR="+b.temp())
	if overlay != "" {
		cmd.Env = append(cmd.Env, strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	asGroup(cmd)
	return cmd
}
