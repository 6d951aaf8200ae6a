package doctor

import (
	"context"
	"errors"
	"fmt"
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
		voters := 0
		for _, m := range list.Members {
			if !m.IsLearner {
				voters++
			}
			a.member(ctx, b.Client, m)
		}
		a.quorum(voters, len(b.Client.Endpoints()))
	}
	a.access(ctx, b.Client)
	return nil
}

// denied reports whether the servers answered, and said no to this user.
func denied(err error) bool {
	return errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrUserEmpty) || errors.Is(err, rpctypes.ErrAuthOldRevision)
}

// member asks one at the addresses that it announces.
func (a at) member(ctx context.Context, client *clientv3.Client, m *etcdserverpb.Member) {
	where := strings.TrimSpace(m.Name + " " + strings.Join(m.ClientURLs, ", "))
	s, err := (*clientv3.StatusResponse)(nil), errors.New("it announces no address")
	for _, url := range m.ClientURLs {
		if s, err = status(ctx, client, url); err == nil {
			break
		}
	}
	if err != nil {
		a.found("quorum-silent", where, err)
		return
	}
	a.memberState(where, s)
}

func (a at) memberState(where string, s *clientv3.StatusResponse) {
	if s.Leader == 0 {
		a.found("etcd-leaderless", where)
	}
	if before(s.Version, 3, 5, 13) {
		a.found("etcd-version", where, s.Version)
	}
	a.checked("member %s, version %s", where, s.Version)
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
