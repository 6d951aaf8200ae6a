package driver

import (
	"fmt"
	"runtime/debug"
)

// Caught calls f, and returns a [PanicError] if it panics. It is for what a Store does in
// goroutines of its own. The client that it was given may have hooks (tracers,
// interceptors, sources of passwords). If one of them panics there, nobody can recover, and
// the program would end.
func Caught(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return f()
}

// PanicError says that the client, or a hook of its, has panicked.
type PanicError struct {
	Value any
	Stack []byte // of the goroutine
}

func (e *PanicError) Error() string { return fmt.Sprintf("the client has panicked: %v", e.Value) }
