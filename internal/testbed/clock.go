package testbed

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/lockstile/locker/conformance/matrix"
)

// shim is a library that is loaded into a server in front of the C library, and
// adds to its wall clock what a file says.
//
//go:embed shim/clock.c
var shim []byte

// clock is the wall clock of some servers.
type clock struct {
	step    func(time.Duration) error // nil where a clock cannot be stepped
	library string
	file    string
}

// newClock returns a clock that can be stepped, if this machine can make one.
func newClock(lab *matrix.Lab) *clock { return newClocks(lab, 1)[0] }

// newClocks returns n clocks. They can be stepped where there is a C compiler,
// and where libraries can be loaded in front of others.
func newClocks(lab *matrix.Lab, n int) []*clock {
	clocks := make([]*clock, n)
	library := buildShim(lab)
	for i := range clocks {
		clocks[i] = &clock{}
		if library != "" {
			clocks[i] = &clock{library: library, file: filepath.Join(filepath.Dir(library), fmt.Sprint("offset", i))}
			clocks[i].step = clocks[i].write
			must(lab, "clock", clocks[i].write(0))
		}
	}
	return clocks
}

// buildShim returns where the library is, or nothing if it cannot be built.
func buildShim(lab *matrix.Lab) string {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		if compiler, err = exec.LookPath("gcc"); err != nil {
			return ""
		}
	}
	dir := lab.TempDir()
	source, library := filepath.Join(dir, "clockshim.c"), filepath.Join(dir, "clockshim.so")
	must(lab, "clock", os.WriteFile(source, shim, 0o600))
	must(lab, "clock", os.Chmod(dir, 0o755)) //nolint:gosec // servers that run as somebody else read it
	if exec.Command(compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl").Run() != nil {
		return "" // no C library to build against
	}
	return library
}

// write sets how far the clock is ahead of this machine's.
func (c *clock) write(d time.Duration) error {
	tmp := c.file + ".new"
	if err := os.WriteFile(tmp, fmt.Append(nil, d.Microseconds()), 0o644); err != nil { //nolint:gosec // servers that run as somebody else read it
		return err
	}
	return os.Rename(tmp, c.file)
}

// heeded is step, made sure of: a server that is linked so that nothing can be
// loaded in front of its C library would come through every step. now is what
// the server takes for the time. It is nil where a clock cannot be stepped.
func (c *clock) heeded(now func() (time.Time, error)) func(time.Duration) error {
	if c.step == nil {
		return nil
	}
	return func(d time.Duration) error {
		if err := c.step(d); err != nil {
			return err
		}
		there, err := now()
		if err != nil {
			return fmt.Errorf("asking for the server's time: %w", err)
		}
		if off := time.Until(there); (off - d).Abs() > closeEnough {
			return fmt.Errorf("the server's clock is off by %v and not by %v: it does not go by the library in front of it", off.Round(time.Second), d)
		}
		return nil
	}
}

// closeEnough is more than any answer takes and less than any step.
const closeEnough = 15 * time.Minute

// env is what a server's environment has to have.
func (c *clock) env() []string {
	if c.step == nil {
		return nil
	}
	return []string{"LD_PRELOAD=" + c.library, "LOCKSTILE_CLOCK_OFFSET=" + c.file}
}
