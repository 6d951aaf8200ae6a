package driver

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/lockstile/locker/internal/async"
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

// Within calls f, as Caught does, in a goroutine of its own, and returns when f does or, at the end of ctx,
// its cause: then f goes on, and may still have its effect. It is for clients whose calls do not
// end with their contexts. The capacity of busy bounds how many go on at once, and further calls wait; nil is no bound.
func Within[T any](ctx context.Context, busy chan struct{}, f func() (T, error)) (v T, err error) {
	if busy != nil {
		select {
		case busy <- struct{}{}:
		case <-ctx.Done():
			return v, context.Cause(ctx)
		}
	}
	return async.Start(func() (v T, err error) {
		if busy != nil {
			defer func() { <-busy }()
		}
		err = Caught(func() (err error) { v, err = f(); return err })
		return v, err
	}).Wait(ctx)
}

// PanicError says that the client, or a hook of its, has panicked.
type PanicError struct {
	Value any
	Stack []byte // of the goroutine
}

func (e *PanicError) Error() string { return fmt.Sprintf("the client has panicked: %v", e.Value) }
