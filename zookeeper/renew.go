package zookeeper

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
)

// mostChecks bounds the locks that one transaction renews. Servers refuse
// requests of a megabyte; a path is less than two kilobytes, mostly a tenth.
const mostChecks = 500

// renew is the Keeper's. A lock hangs on the session, which the zk client keeps
// alive by itself; what has to be known is that its node was there after now.
func (l *Locker) renew(ctx context.Context, leases []*attempt) []error {
	errs := make([]error, len(leases))
	var check []int // indexes into leases
	for i, a := range leases {
		switch {
		case l.ended(a.place):
			errs[i] = &locker.LostError{Name: a.req.Name, Reason: locker.SessionEnded}
		default:
			check = append(check, i)
		}
	}
	for len(check) > 0 {
		n := min(len(check), mostChecks)
		l.renewSome(ctx, leases, check[:n], errs)
		check = check[n:]
	}
	return errs
}

// renewSome looks whether the nodes are there, all in one transaction. One that
// is refused makes the transaction fail, so it is tried again without that one.
func (l *Locker) renewSome(ctx context.Context, leases []*attempt, check []int, errs []error) {
	for len(check) > 0 {
		ops := make([]any, len(check))
		for i, at := range check {
			ops[i] = &zk.CheckVersionRequest{Path: leases[at].place.path, Version: -1}
		}
		_, failed, err := l.zk.Multi(ctx, ops...)
		switch {
		case err == nil:
			return
		case failed < 0:
			for _, at := range check {
				errs[at] = unavailable(err)
			}
			return
		case errors.Is(err, zk.ErrNoNode):
			errs[check[failed]] = &locker.LostError{Name: leases[check[failed]].req.Name, Reason: locker.TakenOver}
		default: // of this node alone, such as an ACL that somebody has set
			errs[check[failed]] = unavailable(err)
		}
		check = append(check[:failed:failed], check[failed+1:]...)
	}
}
