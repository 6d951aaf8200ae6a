package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker/internal/dial"
)

// memberTime is how long one member may take to answer.
const memberTime = 3 * time.Second

// etcd looks at the cluster on which package etcd keeps locks.
func (r *Report) etcd(ctx context.Context, b *dial.Etcd) error {
	a := r.at("etcd")
	short, cancel := context.WithTimeout(ctx, memberTime) // leaves time for the members where no majority answers
	defer cancel()
	list, err := b.Client.MemberList(short)
	switch {
	case denied(err):
		a.found("unseen", "the members", err)
	case err != nil: // there is no majority: those that the URL names are asked one by one
		for _, url := range b.Client.Endpoints() {
			a.member(ctx, b.Client, &etcdserverpb.Member{ClientURLs: []string{url}})
		}
		return err
	default:
		voters, filled := 0, false
		for _, m := range list.Members {
			if !m.IsLearner {
				voters++
			}
			filled = a.member(ctx, b.Client, m) || filled
		}
		a.quorum(voters, len(b.Client.Endpoints()))
		if filled {
			a.history(ctx, b)
		}
	}
	a.access(ctx, b.Client)
	return nil
}

// etcdQuota is the servers' limit for the size of their data where they do not say it, before 3.6,
// which is what they have if nothing is set (--quota-backend-bytes).
const etcdQuota = 2 << 30

// history looks whether revisions are ever compacted.
func (a at) history(ctx context.Context, b *dial.Etcd) {
	switch r, err := b.Client.Get(ctx, b.Prefix+"lockstile", clientv3.WithRev(1), clientv3.WithCountOnly()); {
	case err == nil:
		a.found("etcd-uncompacted", r.Header.Revision)
	case !errors.Is(err, rpctypes.ErrCompacted):
		a.found("unseen", "the history of the keys", err)
	}
	a.checked("compaction")
}

// denied reports whether the servers answered, and said no to this user.
func denied(err error) bool {
	return errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrUserEmpty) || errors.Is(err, rpctypes.ErrAuthOldRevision)
}

// member asks one at the addresses that it announces, and reports whether it has a good deal of data.
func (a at) member(ctx context.Context, client *clientv3.Client, m *etcdserverpb.Member) (filled bool) {
	where := strings.TrimSpace(m.Name + " " + strings.Join(m.ClientURLs, ", "))
	s, err := (*clientv3.StatusResponse)(nil), errors.New("it announces no address")
	for _, url := range m.ClientURLs {
		if s, err = status(ctx, client, url); err == nil {
			break
		}
	}
	if err != nil {
		a.found("quorum-silent", where, err)
		return false
	}
	return a.memberState(where, s)
}

// memberState reports as member does. Each lock leaves some bytes in the store until its revisions are
// compacted. A server whose data has reached the limit takes no more writes until somebody has
// made room and disarmed the alarm.
func (a at) memberState(where string, s *clientv3.StatusResponse) (filled bool) {
	if s.Leader == 0 {
		a.found("etcd-leaderless", where)
	}
	if before(s.Version, 3, 5, 13) {
		a.found("etcd-version", where, s.Version)
	}
	quota := cmp.Or(s.DbSizeQuota, etcdQuota)
	switch {
	case slices.ContainsFunc(s.Errors, func(text string) bool { return strings.Contains(text, "NOSPACE") }):
		a.found("etcd-nospace", where)
	case s.DbSize > quota/10*8:
		a.found("etcd-quota", where, s.DbSize>>20, quota>>20)
	}
	a.checked("member %s, version %s, %d MB of data", where, s.Version, s.DbSize>>20)
	return s.DbSizeInUse > quota/20
}

func status(ctx context.Context, client *clientv3.Client, url string) (*clientv3.StatusResponse, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, memberTime, fmt.Errorf("no answer within %v", memberTime))
	defer cancel()
	s, err := client.Status(ctx, url)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return s, err
}

// access: a user that may not ask whether users must log in has logged in.
func (a at) access(ctx context.Context, client *clientv3.Client) {
	switch s, err := client.AuthStatus(ctx); {
	case err != nil && !denied(err):
		a.found("unseen", "access", err)
		return
	case err == nil && !s.Enabled:
		a.found("etcd-open")
	}
	a.checked("access")
}
