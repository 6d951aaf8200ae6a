package election_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/election"
	"github.com/lockstile/locker/etcd"
	"github.com/lockstile/locker/internal/testserver"
)

// patience is for what happens soon on a machine that has time.
const patience = time.Minute

// process is a candidate with a client, and so a session, of its own.
func process(t *testing.T, addr string) *election.Candidate {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	locks, err := etcd.New(client, etcd.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := election.New(locks, "leader", locker.WithTTL(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- c.Run(ctx, func(ctx context.Context, _ *locker.Lock) error { <-ctx.Done(); return nil })
	}()
	t.Cleanup(func() {
		stop()
		<-done
		_ = locks.Close()
		_ = client.Close()
	})
	return c
}

// Goal: not etcd's Campaign, which waits for ever when its session has died
// (etcd-io/etcd#19597). Method: the lease of the candidate that waits is revoked, then that of
// the leader, and so on.
func TestACandidateWhoseSessionDiedStandsAgain(t *testing.T) {
	t.Parallel()
	addr := testserver.Etcd(t, 1).Members[0].Addr()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	// leases are those of the leader and of the one who waits, when both are there.
	leases := func() (all []clientv3.LeaseID) {
		within(t, patience, "two stand", func() bool {
			got, err := client.Get(t.Context(), "leader/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
			if err != nil {
				t.Fatal(err)
			}
			all = nil
			for _, kv := range got.Kvs {
				all = append(all, clientv3.LeaseID(kv.Lease))
			}
			return len(all) == 2
		})
		return all
	}
	revoke := func(lease clientv3.LeaseID) {
		if _, err := client.Revoke(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
	}
	leader := process(t, addr)
	within(t, patience, "the first leads", leader.IsLeader)
	waits := process(t, addr)
	for range 3 {
		first := leader.Term().Token()
		dead := leases()[1]
		revoke(dead)
		within(t, patience, "it stands with another session", func() bool { return leases()[1] != dead })
		if !leader.IsLeader() || waits.IsLeader() {
			t.Fatalf("the leader leads: %v, the one who waits: %v", leader.IsLeader(), waits.IsLeader())
		}
		revoke(leases()[0])
		within(t, patience, "the one who waited leads", waits.IsLeader)
		if second := waits.Term().Token(); second <= first {
			t.Errorf("token %d after %d", second, first)
		}
		within(t, patience, "the first hears that its lease was revoked", func() bool { return !leader.IsLeader() })
		leader, waits = waits, leader
	}
}
