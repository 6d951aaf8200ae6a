package testserver

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// shim is a library that is loaded into a server in front of the C library, and
// adds to its wall clock what a file says.
//
//go:embed shim/clock.c
var shim []byte

// Clock is the wall clock of servers that are started with its Env.
type Clock struct{ library, file string }

// ErrNoClock means that this machine has no C compiler, or no C library to build
// against.
var ErrNoClock = errors.New("a clock that can be stepped is built with cc, or gcc")

// NewClock returns a clock that can be stepped.
func NewClock(t TB) *Clock {
	t.Helper()
	clocks, err := Clocks(t.TempDir(), 1)
	switch {
	case errors.Is(err, ErrNoClock):
		missing(t, "a C compiler", err.Error())
	case err != nil:
		t.Fatalf("clock: %v", err)
	}
	return clocks[0]
}

// Clocks builds n clocks in a folder, each stepped by itself.
func Clocks(dir string, n int) ([]*Clock, error) {
	built, err := buildShim()
	if err != nil {
		return nil, err
	}
	library := filepath.Join(dir, "clockshim.so")
	if err := os.WriteFile(library, built, 0o644); err != nil { //nolint:gosec // servers that run as somebody else read it
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // as above
		return nil, err
	}
	clocks := make([]*Clock, n)
	for i := range clocks {
		clocks[i] = &Clock{library, filepath.Join(dir, fmt.Sprint("offset", i))}
		if err := clocks[i].Step(0); err != nil {
			return nil, err
		}
	}
	return clocks, nil
}

// buildShim returns the library. It calls the compiler once: a soak makes hundreds of clocks.
var buildShim = sync.OnceValues(func() ([]byte, error) {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		if compiler, err = exec.LookPath("gcc"); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoClock, err)
		}
	}
	dir, err := os.MkdirTemp("", "lockstile-clock-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is in the temporary folder anyhow
	source, library := filepath.Join(dir, "clockshim.c"), filepath.Join(dir, "clockshim.so")
	if err := os.WriteFile(source, shim, 0o600); err != nil {
		return nil, err
	}
	if out, err := exec.Command(compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %w: %s", ErrNoClock, err, bytes.TrimSpace(out))
	}
	return os.ReadFile(library)
})

// Step sets how far the clock is ahead of this machine's.
func (c *Clock) Step(d time.Duration) error {
	tmp := c.file + ".new"
	if err := os.WriteFile(tmp, fmt.Append(nil, d.Microseconds()), 0o644); err != nil { //nolint:gosec // servers that run as somebody else read it
		return err
	}
	return os.Rename(tmp, c.file)
}

// Env is what a server needs in its environment.
func (c *Clock) Env() []string {
	return []string{"LD_PRELOAD=" + c.library, "LOCKSTILE_CLOCK_OFFSET=" + c.file}
}
