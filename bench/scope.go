package main

import (
	"fmt"
	"os"
)

// scope is the [testserver.TB] of one store: it ends the servers at the end.
type scope struct {
	cleanups []func()
}

// failure carries an error out of a server's start.
type failure struct{ error }

// Helper does nothing: there is no test log.
func (s *scope) Helper() {}

// Fatalf ends the measuring of this store.
func (s *scope) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// Skipf is a missing server, which is a failure here.
func (s *scope) Skipf(format string, args ...any) { s.Fatalf(format, args...) }

// Cleanup is called at the end, the last one first.
func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// TempDir is removed at the end.
func (s *scope) TempDir() string {
	dir, err := os.MkdirTemp("", "lockstile-bench-")
	if err != nil {
		s.Fatalf("%w", err)
	}
	s.Cleanup(func() { _ = os.RemoveAll(dir) }) // it is in the temporary folder anyhow
	return dir
}

// end cleans up and turns a failure into an error.
func (s *scope) end(err *error) {
	if p := recover(); p != nil {
		f, ok := p.(failure)
		if !ok {
			defer panic(p)
		}
		*err = f.error
	}
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
}
