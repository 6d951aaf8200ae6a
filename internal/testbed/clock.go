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

// newClock returns a clock that can be stepped where there is a C compiler, and
// where libraries can be loaded in front of others.
func newClock(lab *matrix.Lab) *clock {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		if compiler, err = exec.LookPath("gcc"); err != nil {
			return &clock{}
		}
	}
	dir := lab.TempDir()
	source := filepath.Join(dir, "clockshim.c")
	c := &clock{library: filepath.Join(dir, "clockshim.so"), file: filepath.Join(dir, "offset")}
	must(lab, "clock", os.WriteFile(source, shim, 0o600))
	must(lab, "clock", os.WriteFile(c.file, []byte("0"), 0o644)) //nolint:gosec // servers that run as somebody else read it
	must(lab, "clock", os.Chmod(dir, 0o755))                     //nolint:gosec // the same
	if exec.Command(compiler, "-shared", "-fPIC", "-O1", "-o", c.library, source, "-ldl").Run() != nil {
		return &clock{} // no C library to build against
	}
	c.step = func(d time.Duration) error {
		tmp := c.file + ".new"
		if err := os.WriteFile(tmp, fmt.Append(nil, d.Microseconds()), 0o644); err != nil { //nolint:gosec // as above
			return err
		}
		return os.Rename(tmp, c.file)
	}
	return c
}

// env is what a server's environment has to have.
func (c *clock) env() []string {
	if c.step == nil {
		return nil
	}
	return []string{"LD_PRELOAD=" + c.library, "LOCKSTILE_CLOCK_OFFSET=" + c.file}
}
