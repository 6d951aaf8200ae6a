package doctor_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstile/locker/internal/testserver"
)

func etcdURL(members ...*testserver.EtcdServer) string {
	var addrs []string
	for _, m := range members {
		addrs = append(addrs, m.Addr())
	}
	return "etcd://" + strings.Join(addrs, ",")
}

func etcdClient(t *testing.T, cluster *testserver.EtcdCluster) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: cluster.Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// withRoot has a cluster ask everybody for a password. That of root is sesame.
func withRoot(t *testing.T, client *clientv3.Client) {
	t.Helper()
	ctx := patience(t)
	_, role := client.RoleAdd(ctx, "root")
	_, user := client.UserAdd(ctx, "root", "sesame")
	_, grant := client.UserGrantRole(ctx, "root", "root")
	_, auth := client.AuthEnable(ctx)
	if err := errors.Join(role, user, grant, auth); err != nil {
		t.Fatal(err)
	}
}

func TestSaneEtcdIsFineOnceItHasAuth(t *testing.T) {
	t.Parallel()
	cluster := testserver.Etcd(t, 3)
	url := etcdURL(cluster.Members...)
	r := examine(t, url)
	if finds(t, r, "etcd-open"); len(r.Findings) != 1 {
		t.Errorf("more than that is wrong:\n%s", list(r))
	}
	withRoot(t, etcdClient(t, cluster))
	finds(t, examineInVain(t, url), "unseen", "the members could not be looked at")
	fine(t, examine(t, strings.Replace(url, "//", "//root:sesame@", 1)), "servers that vote (3)", cluster.Members[2].Addr(), "access")
}

// A learner has no vote. This one has not even begun.
func TestLearnerIsNoVoter(t *testing.T) {
	t.Parallel()
	cluster := testserver.Etcd(t, 3)
	client := etcdClient(t, cluster)
	for ctx := patience(t); ; time.Sleep(20 * time.Millisecond) {
		_, err := client.MemberAddAsLearner(ctx, []string{"http://127.0.0.1:1"})
		if err == nil {
			break
		}
		if !errors.Is(err, rpctypes.ErrUnhealthy) { // as a cluster is that has just started
			t.Fatal(err)
		}
	}
	r := examine(t, etcdURL(cluster.Members...))
	finds(t, r, "quorum-silent", "announces no address")
	findsNot(t, r, "quorum-even")
	findsNot(t, r, "quorum-unnamed")
}

// Such a user has logged in, so it need not ask whether everybody has to.
func TestUserOfEtcdWhoMayNotAskForAccessIsFine(t *testing.T) {
	t.Parallel()
	cluster := testserver.Etcd(t, 1)
	client, ctx := etcdClient(t, cluster), patience(t)
	_, role := client.RoleAdd(ctx, "locks")
	_, rights := client.RoleGrantPermission(ctx, "locks", "/", "0", clientv3.PermissionType(clientv3.PermReadWrite))
	_, user := client.UserAdd(ctx, "app", "sesame")
	_, grant := client.UserGrantRole(ctx, "app", "locks")
	if err := errors.Join(role, rights, user, grant); err != nil {
		t.Fatal(err)
	}
	withRoot(t, client)
	r := examine(t, strings.Replace(etcdURL(cluster.Members...), "//", "//app:sesame@", 1))
	if finds(t, r, "quorum-of-one"); len(r.Findings) != 1 {
		t.Errorf("more than that is found:\n%s", list(r))
	}
}

func TestMembersThatAreDownOrUnnamedAreNoted(t *testing.T) {
	t.Parallel()
	c := testserver.Etcd(t, 3)
	c.Members[2].Kill()
	r := examine(t, etcdURL(c.Members[:2]...))
	finds(t, r, "quorum-silent", c.Members[2].Addr())
	finds(t, r, "quorum-unnamed", "2 of 3 servers")
	c.Members[1].Kill()
	r = examineInVain(t, etcdURL(c.Members...))
	finds(t, r, "etcd-leaderless", c.Members[0].Addr())
	finds(t, r, "quorum-silent", c.Members[2].Addr())
}

func TestLonelyEtcdIsNoted(t *testing.T) {
	t.Parallel()
	finds(t, examine(t, etcdURL(testserver.Etcd(t, 1).Members...)), "quorum-of-one")
}

// Locks alone fill a store whose revisions are never compacted. Method: a small limit, and values that
// reach it in a few writes.
func TestStoreThatFillsIsADanger(t *testing.T) {
	t.Parallel()
	cluster := testserver.Etcd(t, 1, "--quota-backend-bytes=67108864")
	client, url := etcdClient(t, cluster), etcdURL(cluster.Members...)
	findsNot(t, examine(t, url), "etcd-uncompacted")
	eventually := func(code string) { // a server says a little later how much it has written
		t.Helper()
		for ctx := patience(t); ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			if has(examine(t, url), code, nil) {
				return
			}
		}
		t.Fatalf("no %s", code)
	}
	write := func(megabytes int) (last int64) {
		t.Helper()
		for range megabytes {
			r, err := client.Put(patience(t), "a", strings.Repeat("x", 1<<20))
			if err != nil {
				t.Fatal(err)
			}
			last = r.Header.Revision
		}
		return last
	}
	last := write(5)
	eventually("etcd-uncompacted")
	findsNot(t, examine(t, url), "etcd-quota")
	if _, err := client.Compact(patience(t), last); err != nil {
		t.Fatal(err)
	}
	findsNot(t, examine(t, url), "etcd-uncompacted")
	write(44)
	for !has(examine(t, url), "etcd-quota", nil) { // there is room for some more before the limit
		write(1)
		time.Sleep(300 * time.Millisecond)
	}
	for {
		if _, err := client.Put(patience(t), "b"+time.Now().String(), strings.Repeat("x", 1<<20)); errors.Is(err, rpctypes.ErrNoSpace) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	finds(t, examine(t, url), "etcd-nospace")
}
