package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// usualFloor is the shortest lease with the default election timeout.
	usualFloor = 2 * time.Second

	// lag is how many entries a member may be behind before it is noted.
	lag = 1000

	// memberTime is how long one member may take to answer.
	memberTime = 3 * time.Second
)

// Etcd looks at the cluster on which package etcd keeps locks.
func Etcd(ctx context.Context, r *Report, client *clientv3.Client) error {
	a := r.at("etcd")
	list, err := memberList(ctx, client)
	switch {
	case denied(err):
		a.blind("the members", err, "look as a user that may read")
	case err != nil:
		a.endpoints(ctx, client)
		return err
	default:
		a.members(client, list.Members)
		a.statuses(ctx, client, list.Members)
	}
	a.leaseFloor(ctx, client)
	a.alarms(ctx, client)
	a.auth(ctx, client)
	return nil
}

// memberList leaves time for other questions where no majority answers this one.
func memberList(ctx context.Context, client *clientv3.Client) (*clientv3.MemberListResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, memberTime)
	defer cancel()
	return client.MemberList(ctx)
}

// denied reports whether the servers answered, and said no to this user.
func denied(err error) bool {
	return errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrUserEmpty) || errors.Is(err, rpctypes.ErrAuthOldRevision)
}

func (a at) members(client *clientv3.Client, members []*etcdserverpb.Member) {
	voters := 0
	for _, m := range members {
		if m.IsLearner {
			a.note(fmt.Sprintf("member %s is a learner", m.Name), "it has no vote: it does not help when another is down", "etcdctl member promote")
			continue
		}
		voters++
	}
	switch {
	case voters == 1:
		a.note("the cluster has one member", "while it is down, no lock is granted or renewed; the loss of its disk loses the order of tokens",
			"three members, or five")
	case voters%2 == 0:
		a.note(fmt.Sprintf("the number of members that vote, %d, is even", voters),
			fmt.Sprintf("no more of them may fail than of %d", voters-1), "an odd number of members")
	}
	if endpoints := len(client.Endpoints()); endpoints < voters {
		a.note(fmt.Sprintf("the URL names %d of %d members", endpoints, voters),
			"locks cannot be reached when those are down, though the others could serve", "name all members in the URL")
	}
	a.checked("%d members that vote", voters)
}

// statuses asks each member at the addresses that it announces.
func (a at) statuses(ctx context.Context, client *clientv3.Client, members []*etcdserverpb.Member) {
	found := map[string]*clientv3.StatusResponse{}
	newest, down := uint64(0), 0
	for _, m := range members {
		s, err := status(ctx, client, m)
		if err != nil {
			down++
			a.note(fmt.Sprintf("member %s at %s does not answer: %v", m.Name, strings.Join(m.ClientURLs, ", "), err),
				"a majority of all members must be up for every lock", "bring it back, or remove it from the cluster")
			continue
		}
		found[m.Name] = s
		newest = max(newest, s.RaftIndex)
	}
	for _, m := range members {
		if s := found[m.Name]; s != nil {
			a.member(m.Name, s, newest)
		}
	}
	a.checked("health (%d of %d answer)", len(members)-down, len(members))
}

// endpoints asks the members that the client knows, where the cluster does not
// answer as a whole.
func (a at) endpoints(ctx context.Context, client *clientv3.Client) {
	for _, url := range client.Endpoints() {
		s, err := status(ctx, client, &etcdserverpb.Member{ClientURLs: []string{url}})
		switch {
		case err != nil:
			a.note(fmt.Sprintf("%s does not answer: %v", url, err), "a majority of all members must be up for every lock", "bring it back")
		case s.Leader == 0:
			a.danger(url+" is up and has no leader", "it finds no majority of the other members: no lock is granted or renewed", "bring back a majority of them")
		default:
			a.checked("%s answers, version %s", url, s.Version)
		}
	}
}

func status(ctx context.Context, client *clientv3.Client, m *etcdserverpb.Member) (*clientv3.StatusResponse, error) {
	err := errors.New("it announces no address")
	for _, url := range m.ClientURLs {
		ctx, cancel := context.WithTimeoutCause(ctx, memberTime, fmt.Errorf("no answer within %v", memberTime))
		var s *clientv3.StatusResponse
		s, err = client.Status(ctx, url)
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
		cancel()
		if err == nil {
			return s, nil
		}
	}
	return nil, err
}

func (a at) member(name string, s *clientv3.StatusResponse, newest uint64) {
	if s.Leader == 0 {
		a.danger(fmt.Sprintf("member %s knows no leader", name), "what asks it for a lock waits, or fails", "etcdctl endpoint status --cluster says who is missing")
	}
	if before(s.Version, 3, 5, 13) {
		a.danger(fmt.Sprintf("member %s has version %s", name, s.Version), "a leader that was replaced may revoke leases that are kept alive: a lock is lost before its holder can know", "etcd 3.5.13 or later")
	}
	if s.RaftAppliedIndex+lag < newest {
		a.note(fmt.Sprintf("member %s is %d entries behind", name, newest-s.RaftAppliedIndex),
			"waiters that are connected to it are told late", "look at its disk and its network")
	}
	a.checked("member %s: version %s, leader known, %d entries behind", name, s.Version, newest-min(newest, s.RaftAppliedIndex))
}

// leaseFloor asks for a lease of a second, for no request tells how long a lease
// must be.
func (a at) leaseFloor(ctx context.Context, client *clientv3.Client) {
	grant, err := client.Grant(ctx, 1)
	if err != nil {
		a.blind("the shortest lease", err, "")
		return
	}
	_, err = client.Revoke(ctx, grant.ID)
	if err != nil {
		a.note("a lease of the doctor's could not be given back: "+err.Error(), fmt.Sprintf("it ends by itself in %d s, and no key hangs on it", grant.TTL), "")
	}
	floor := time.Duration(grant.TTL) * time.Second
	if floor > usualFloor {
		a.note(fmt.Sprintf("the shortest lease is %v: one and a half election timeouts", floor),
			"locks with a smaller TTL are refused", "a smaller --election-timeout, where the network allows it, or a greater TTL")
	}
	a.checked("shortest lease (%v)", floor)
}

func (a at) alarms(ctx context.Context, client *clientv3.Client) {
	list, err := client.AlarmList(ctx)
	if err != nil {
		a.blind("alarms", err, "look as a user that may read")
		return
	}
	var kinds []etcdserverpb.AlarmType
	for _, alarm := range list.Alarms {
		if !slices.Contains(kinds, alarm.Alarm) {
			kinds = append(kinds, alarm.Alarm)
		}
	}
	for _, kind := range kinds {
		switch kind {
		case etcdserverpb.AlarmType_NOSPACE:
			a.danger("there is an alarm: NOSPACE", "the quota is used up: no lock is granted, and none can be waited for",
				"etcdctl compact, defrag and alarm disarm; a greater --quota-backend-bytes; --auto-compaction-retention")
		case etcdserverpb.AlarmType_CORRUPT:
			a.danger("there is an alarm: CORRUPT", "members disagree on what is stored: two may hold a lock", "replace the member that is wrong")
		case etcdserverpb.AlarmType_NONE:
		}
	}
	a.checked("alarms")
}

func (a at) auth(ctx context.Context, client *clientv3.Client) {
	s, err := client.AuthStatus(ctx)
	switch {
	case denied(err):
		a.checked("access (users must log in)") // this one did, and may not ask
	case err != nil:
		a.blind("access", err, "")
	default:
		a.checked("access")
	}
	if err == nil && !s.Enabled {
		a.note("anybody who reaches the servers may do anything (auth is off)", "they can delete the key of a held lock, which lets a second holder in",
			"etcdctl auth enable, or client certificates (--client-cert-auth)")
	}
}
