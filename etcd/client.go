package etcd

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker/driver"
)

// usable returns an error if what the client asks and what it hears do not belong
// together: locks are put with its KV, seen to go by its Watcher and listed by its Lease.
func usable(client *clientv3.Client) error {
	if client.ActiveConnection() == nil {
		return errors.New("etcd: the client has no connection: make it with clientv3.New")
	}
	kv := around("KV", client.KV)
	for _, part := range []struct {
		name string
		is   any
	}{{"KV", client.KV}, {"Lease", client.Lease}, {"Watcher", client.Watcher}} {
		switch around(part.name, part.is) {
		case unknown:
			return fmt.Errorf("etcd: the client's %s is a %T, or has one that is not its own: use interceptors in its Config", part.name, part.is)
		case kv:
		default:
			return fmt.Errorf("etcd: the client's KV is a %T and its %s a %T: put the same namespace around its KV, Lease and Watcher", client.KV, part.name, part.is)
		}
	}
	return nil
}

const unknown = -1

// around counts the namespaces around a part of a client, or returns unknown if that is
// not the client's own.
func around(name string, part any) (n int) {
	for v := reflect.ValueOf(part); v.Kind() == reflect.Pointer && !v.IsNil(); n++ {
		switch v = v.Elem(); v.Type().PkgPath() {
		case ownPackage:
			return n
		case ownPackage + "/namespace":
			if v = v.FieldByName(name); v.Kind() == reflect.Interface { // that it embeds
				v = v.Elem()
			}
		default:
			return unknown
		}
	}
	return unknown
}

const ownPackage = "go.etcd.io/etcd/client/v3"

const (
	// askTime bounds every question to the servers.
	askTime = 5 * time.Second

	// firstTry is how long the first server is given to answer a question
	// that can be asked again.
	firstTry = time.Second
)

var errSilent = fmt.Errorf("the servers have not answered for %v", askTime)

// bounded is a context for one question to the servers.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, askTime, errSilent)
}

// insist asks again, with more patience each time, what may be asked twice. The
// client sends each question to the next server in turn, and one that hangs
// would otherwise keep us waiting though the others answer. Asking at a steady
// pace does not do: other questions go round at their own, and we would meet the
// same server for ever.
func insist(ctx context.Context, first time.Duration, ask func(context.Context) error) error {
	ctx, cancel := bounded(ctx)
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

// refusals are what asking again does not change, until somebody has changed the rights
// of our user, or the servers.
var refusals = []error{
	rpctypes.ErrPermissionDenied, rpctypes.ErrUserEmpty, rpctypes.ErrAuthFailed, rpctypes.ErrInvalidAuthToken,
	rpctypes.ErrNoSpace, rpctypes.ErrRequestTooLarge,
}

// voids are the servers' other words for having done nothing.
var voids = []error{rpctypes.ErrTooManyRequests, rpctypes.ErrAuthOldRevision, rpctypes.ErrLeaseNotFound}

// void reports whether err says that a request has done nothing, as opposed to
// silence: there is nothing to clean up then, and a clean-up would be refused as well.
func void(err error) bool { return among(refusals, err) || among(voids, err) }

func among(known []error, err error) bool {
	return slices.ContainsFunc(known, func(k error) bool { return errors.Is(err, k) })
}

// explain keeps the cause of an error of the servers, for which a client that was told
// to stop has words of its own, and marks what there is no use in asking again for.
func (s *store) explain(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case among(refusals, err), s.client.Ctx().Err() != nil: // closed by its owner
		return driver.Refused(err)
	}
	return err
}
