//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// bench is where patches are tried.
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

// What may become of a patch. All but the first are failures.
const (
	killedBy   = "killed"
	survived   = "SURVIVED"
	timedOut   = "TIMED OUT"
	notBuilt   = "DOES NOT BUILD"
	notApplied = "DOES NOT APPLY"
	noTest     = "NO TEST"
	failsWhole = "FAILS UNPATCHED"
	noAnswer   = "COULD NOT RUN"
)

// verdict is what became of a patch, and why.
type verdict struct{ what, why, output string }

// whole runs the tests that patches name on the unbroken code, those of a package together,
// and returns a verdict for each patch whose tests fail there, or are not there.
func (b *bench) whole(ctx context.Context, patches []*patch) map[*patch]verdict {
	var groups []notice // of all that is named of a package
	for _, p := range patches {
		for _, n := range p.noticed {
			i := slices.IndexFunc(groups, func(g notice) bool { return g.dir == n.dir && g.race == n.race })
			switch {
			case i < 0:
				groups = append(groups, n)
			case groups[i].run == "" || n.run == "":
				groups[i].run = ""
			case !slices.Contains(strings.Split(groups[i].run, "|"), n.run):
				groups[i].run += "|" + n.run
			}
		}
	}
	verdicts := make(map[*patch]verdict)
	var mu sync.Mutex
	b.lanes(len(groups), func(i int) {
		g := groups[i]
		began := time.Now()
		ran := b.test(ctx, g, "", b.timeout*10)
		fmt.Printf("%-16s %6.1fs  ./%s\n", "unpatched", time.Since(began).Seconds(), g.dir)
		mu.Lock()
		defer mu.Unlock()
		for _, p := range patches {
			for _, n := range p.noticed {
				if v := ran.whole(n); n.dir == g.dir && n.race == g.race && v.what != "" {
					verdicts[p] = v
				}
			}
		}
	})
	return verdicts
}

// whole is the verdict of tests on the unbroken code: none if they pass.
func (r *ran) whole(n notice) verdict {
	if r.broken() {
		return verdict{failsWhole, fmt.Sprintf("%v cannot be run without the patch", n), r.said()}
	}
	passed := false
	for name, how := range r.tests {
		switch match := n.matches(name); {
		case match && how == "pass":
			passed = true
		case match && how == "skip":
			return verdict{noTest, fmt.Sprintf("%v skips %s", n, name), ""}
		case match:
			return verdict{failsWhole, fmt.Sprintf("%v: %s fails without the patch, too", n, name), r.said()}
		}
	}
	if passed {
		return verdict{}
	}
	return verdict{noTest, fmt.Sprintf("%v matches no test", n), ""}
}

// verdict tries one patch.
func (b *bench) verdict(ctx context.Context, p *patch) verdict {
	overlay, err := b.apply(p)
	if err != nil {
		return verdict{notApplied, "git says why", err.Error()}
	}
	for _, dir := range p.goDirs() { // tests of other packages may build it by themselves, and fail for that
		if slices.ContainsFunc(p.noticed, func(n notice) bool { return n.dir == dir }) {
			continue
		}
		if said, err := b.build(ctx, dir, overlay); err != nil {
			return verdict{notBuilt, "./" + dir, said}
		}
	}
	var by []string
	for _, n := range p.noticed {
		ran := b.test(ctx, n, overlay, b.timeout)
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
		default:
			by = append(by, fmt.Sprintf("./%s %s", n.dir, failed))
		}
	}
	return verdict{killedBy, "by " + strings.Join(by, ", "), ""}
}

// goDirs returns the folders of the Go files that a patch touches.
func (p *patch) goDirs() []string {
	var dirs []string
	for _, file := range p.files {
		if strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") {
			dirs = append(dirs, filepath.Dir(file))
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// apply patches copies of the files that p touches, and returns the file that go's -overlay
// takes.
func (b *bench) apply(p *patch) (string, error) {
	copies, err := os.MkdirTemp(b.work, "copies-")
	if err != nil {
		return "", err
	}
	for _, file := range p.files {
		text, err := os.ReadFile(filepath.Join(b.root, file))
		if err != nil && !os.IsNotExist(err) { // a patch may add a file
			return "", err
		}
		if err == nil {
			err = write(filepath.Join(copies, file), text)
		}
		if err != nil && !os.IsNotExist(err) {
			return "", err
		}
	}
	git := exec.Command("git", "apply", "-")
	git.Dir, git.Stdin = copies, strings.NewReader(string(p.text))
	git.Env = append(git.Environ(), "GIT_DIR="+filepath.Join(b.work, "no-repository"), "GIT_CEILING_DIRECTORIES="+b.work)
	if _, err := output(git); err != nil {
		return "", err
	}
	replace := make(map[string]string)
	for _, file := range p.files {
		patched := filepath.Join(copies, file)
		if _, err := os.Stat(patched); err != nil {
			patched = "" // it is removed
		}
		replace[filepath.Join(b.root, file)] = patched
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := copies + ".json"
	return overlay, write(overlay, list)
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
