package matrix

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"
)

// Lab runs one subject's servers and workers. It has the methods of a test that code
// which starts servers needs, such as Cleanup and TempDir.
type Lab struct {
	// Start starts a child, which is killed when the lab is closed, unless it has ended before. That it ends with
	// this process, if that is killed, is what [Settings].Start can see to.
	Start func(cmd *exec.Cmd) error
	// TTL is the subject's. Some scenarios lock for six times as long, those of a failover
	// and of kinds for up to twelve times.
	TTL time.Duration

	mu       sync.Mutex
	cleanups []func()
}

// newLab returns a Lab that starts its children by start.
func newLab(start func(*exec.Cmd) error, ttl time.Duration) *Lab {
	l := &Lab{TTL: ttl}
	l.Start = func(cmd *exec.Cmd) error {
		err := start(cmd)
		if err == nil {
			l.Cleanup(func() { _ = cmd.Process.Kill() }) // it may have ended
		}
		return err
	}
	return l
}

// failure carries an error out of Fatalf or Skipf, or out of a step of a scenario.
type failure struct{ error }

// Helper does nothing: there is no test log.
func (l *Lab) Helper() {}

// Fatalf ends the function that [Lab.Try] runs. Try returns the error.
func (l *Lab) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

var errMissing = errors.New("not on this machine")

// Skipf is Fatalf for a server that is not installed. Scenarios that need it are skipped.
func (l *Lab) Skipf(format string, args ...any) {
	panic(failure{fmt.Errorf("%w: %w", errMissing, fmt.Errorf(format, args...))})
}

// Cleanup has f called when the lab is closed. The last f is called first.
func (l *Lab) Cleanup(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleanups = append(l.cleanups, f)
}

// TempDir makes a folder, which is removed when the lab is closed.
func (l *Lab) TempDir() string {
	dir, err := os.MkdirTemp("", "lockstile-matrix-")
	if err != nil {
		l.Fatalf("%w", err)
	}
	l.Cleanup(func() { _ = os.RemoveAll(dir) }) // it is in the temporary folder anyhow
	return dir
}

// Try runs f and returns the error of a Fatalf or Skipf in it.
func (l *Lab) Try(f func()) error { return try(f) }

// try runs f and returns the error of the failure in it.
func try(f func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			panic(p)
		}
	}()
	f()
	return nil
}

// Close calls what [Lab.Cleanup] was given. Run closes the labs that it makes.
func (l *Lab) Close() {
	l.mu.Lock()
	cleanups := l.cleanups
	l.cleanups = nil
	l.mu.Unlock()
	for i := len(cleanups) - 1; i >= 0; i-- {
		cleanups[i]()
	}
}
