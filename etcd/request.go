package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockstile/locker/driver"
)

const (
	// askTime bounds every question to the servers.
	askTime = 5 * time.Second

	// firstTry is how long the first server is given to answer a question
	// that can be asked again.
	firstTry = time.Second

	// onlyTry, in the place of firstTry, is longer than all tries together: it is for a question
	// that must not be asked again.
	onlyTry = 2 * askTime
)

var errSilent = fmt.Errorf("the servers have not answered for %v", askTime)

// bounded is a context for one question to the servers.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, askTime, errSilent)
}

// insist asks what may be asked twice, again and again, and waits twice as long each
// time. The client sends each question to the next server in turn, and one that hangs
// would otherwise keep us waiting though the others answer. To wait for the same time
// each time would not do: other questions go round, too, and ours could meet the same
// server for ever.
func insist[T any](ctx context.Context, first time.Duration, ask func(context.Context) (T, error)) (answer T, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	for d := first; ; d *= 2 {
		try, cancel := context.WithTimeout(ctx, d)
		answer, err = ask(try)
		silent := try.Err() != nil
		cancel()
		switch {
		case err == nil:
			return answer, nil
		case ctx.Err() != nil:
			return answer, context.Cause(ctx)
		case !silent:
			return answer, err
		}
	}
}

const login = "check the user name and the password, with which the client was made: it never takes another one"

// refusals are answers that stay the same until somebody changes the rights of our user,
// or the servers, with what to do about them.
var refusals = []struct {
	err    error
	advice string
}{
	{rpctypes.ErrPermissionDenied, "the user may not read and write keys that begin with the Locker's prefix"},
	{rpctypes.ErrUserEmpty, "the servers want a user name and a password: give them to the client (USER:PASS@ in a URL)"},
	{rpctypes.ErrAuthFailed, login},
	{rpctypes.ErrInvalidAuthToken, login},
	{rpctypes.ErrNoSpace, "the servers' data has reached its limit: compact, defragment, and disarm the alarm (etcdctl)"},
	{rpctypes.ErrRequestTooLarge, ""},
}

// voids are the servers' other words for having done nothing.
var voids = []error{rpctypes.ErrTooManyRequests, rpctypes.ErrAuthOldRevision, rpctypes.ErrLeaseNotFound}

// void reports whether err says that a request has done nothing, as opposed to
// silence: there is nothing to clean up then, and a clean-up would be refused as well.
func void(err error) bool {
	_, refused := refusal(err)
	return refused || slices.ContainsFunc(voids, func(k error) bool { return errors.Is(err, k) })
}

func refusal(err error) (advice string, ok bool) {
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return r.advice, true
		}
	}
	return "", false
}

// explain returns the cause of ctx's end, for which the client has errors of its own, and
// marks errors that asking again does not change.
func (s *store) explain(ctx context.Context, err error) error {
	advice, refused := refusal(err)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case refused && advice != "":
		return driver.Refused(fmt.Errorf("%s: %w", advice, err))
	case refused, s.client.Ctx().Err() != nil: // closed by its owner
		return driver.Refused(err)
	}
	return err
}
