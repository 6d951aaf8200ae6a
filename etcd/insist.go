package etcd

import (
	"context"
	"fmt"
	"time"
)

const (
	// askTime bounds every question to the servers.
	askTime = 5 * time.Second

	// firstTry is how long the first server is given to answer a question
	// that can be asked again.
	firstTry = time.Second
)

var errSilent = fmt.Errorf("the servers have not answered for %v", askTime)

// insist asks again, with more patience each time, what may be asked twice. The
// client sends each question to the next server in turn, and one that hangs
// would otherwise keep us waiting though the others answer. Asking at a steady
// pace does not do: other questions go round at their own, and we would meet the
// same server for ever.
func insist(ctx context.Context, first time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, askTime, errSilent)
	defer cancel()
	for d := first; ; d *= 2 {
		try, cancel := context.WithTimeout(ctx, d)
		err := ask(try)
		silent := try.Err() != nil
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !silent:
			return err
		}
	}
}
