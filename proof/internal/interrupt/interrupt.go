// Package interrupt ends a command before its time, in a way that leaves nothing of its servers,
// workers and folders behind.
package interrupt

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Context returns a context that ends when somebody interrupts the program or ends it, or closes its
// terminal, and also when a writer that follow returns can no longer write: then nobody reads what
// the program finds.
//
// A second signal changes nothing: to leave at once would leave folders behind. Without this function
// a write to a pipe that nobody reads would do that, because it ends a Go program on the spot.
func Context() (ctx context.Context, follow func(io.Writer) io.Writer) {
	// Nobody receives from this channel: that there is one makes the write return an error.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	ctx, end := context.WithCancelCause(context.Background())
	go func() {
		s := <-signals
		end(fmt.Errorf("interrupted (%v)", s))
		_, _ = fmt.Fprintln(os.Stderr, "interrupted: ending servers and workers, which may take some seconds")
	}()
	return ctx, func(w io.Writer) io.Writer { return &followed{w, end} }
}

// followed is a writer that notices when nobody reads it.
type followed struct {
	io.Writer
	end context.CancelCauseFunc
}

func (f *followed) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	if err != nil {
		f.end(fmt.Errorf("interrupted, for nobody reads what it says: %w", err))
	}
	return n, err
}
