package etcd

import (
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// denials are what asking again does not change: somebody must change the rights
// of our user first.
var denials = []error{
	rpctypes.ErrPermissionDenied, rpctypes.ErrUserEmpty, rpctypes.ErrAuthFailed, rpctypes.ErrInvalidAuthToken,
}

// refusals are the servers' other words for having done nothing.
var refusals = []error{
	rpctypes.ErrNoSpace, rpctypes.ErrTooManyRequests, rpctypes.ErrRequestTooLarge, rpctypes.ErrAuthOldRevision,
}

// refused reports whether err says that a request has done nothing, as opposed to
// silence: there is nothing to clean up then, and a clean-up would be refused as
// well.
func refused(err error) bool { return among(denials, err) || among(refusals, err) }

// hopeless reports whether a waiter would ask in vain from now on.
func (a *attempt) hopeless(err error) bool {
	return among(denials, err) || a.session.owner.client.Ctx().Err() != nil // closed by its owner
}

func among(known []error, err error) bool {
	return slices.ContainsFunc(known, func(k error) bool { return errors.Is(err, k) })
}
