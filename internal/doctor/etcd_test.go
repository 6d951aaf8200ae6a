package doctor_test

import (
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstile/locker/internal/doctor"
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
	client, err := clientv3.New(clientv3.Config{Endpoints: cluster.Endpoints(), DialTimeout: time.Minute, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestSaneEtcdIsFineAndStaysAsItIs(t *testing.T) {
	t.Parallel()
	cluster := testserver.Etcd(t, 3)
	client := etcdClient(t, cluster)
	ctx := patience(t)
	findsOnly := examine(t, etcdURL(cluster.Members...))
	finds(t, findsOnly, doctor.Note, "auth is off")
	if len(findsOnly.Findings) != 1 {
		t.Errorf("more than that is wrong:\n%s", list(findsOnly))
	}
	if _, err := client.RoleAdd(ctx, "root"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.UserAdd(ctx, "root", "sesame"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.UserGrantRole(ctx, "root", "root"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AuthEnable(ctx); err != nil {
		t.Fatal(err)
	}
	url := strings.Replace(etcdURL(cluster.Members...), "//", "//root:sesame@", 1)
	fine(t, examine(t, url), "3 members", "health (3 of 3", "shortest lease (2s)", "alarms", "access")
	logged, err := clientv3.New(clientv3.Config{Endpoints: cluster.Endpoints(), Username: "root", Password: "sesame", Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer logged.Close()
	if leases, err := logged.Leases(ctx); err != nil || len(leases.Leases) > 0 {
		t.Errorf("it has left leases: %v, %v", leases, err)
	}
}

func TestMembersThatAreDownOrUnnamedAreNoted(t *testing.T) {
	t.Parallel()
	cluster := testserver.Etcd(t, 3)
	cluster.Members[2].Kill()
	r := examine(t, etcdURL(cluster.Members[:2]...))
	finds(t, r, doctor.Note, "does not answer", cluster.Members[2].Addr())
	finds(t, r, doctor.Note, "names 2 of 3 members")
	lookedAt(t, r, "health (2 of 3 answer)")
}

func TestLonelyEtcdWithSlowElectionsAndAnAlarm(t *testing.T) {
	t.Parallel()
	cluster := testserver.Etcd(t, 1, "--heartbeat-interval", "500", "--election-timeout", "5000", "--quota-backend-bytes", "200000")
	url := etcdURL(cluster.Members...)
	r := examine(t, url)
	finds(t, r, doctor.Note, "one member")
	finds(t, r, doctor.Note, "shortest lease is 8s")
	findsNot(t, r, "NOSPACE")
	client := etcdClient(t, cluster)
	for range 100 {
		if _, err := client.Put(patience(t), "big", strings.Repeat("x", 100000)); err != nil {
			break // no space
		}
	}
	alarms, err := client.AlarmList(patience(t))
	if err != nil || len(alarms.Alarms) == 0 || alarms.Alarms[0].Alarm != etcdserverpb.AlarmType_NOSPACE {
		t.Fatalf("no alarm: %v, %v", alarms, err)
	}
	finds(t, examine(t, url), doctor.Danger, "NOSPACE")
}

func TestEtcdWithoutAMajorityIsLookedAtMemberByMember(t *testing.T) {
	t.Parallel()
	c := testserver.Etcd(t, 3)
	url := "etcd://" + c.Members[0].Addr() + "," + c.Members[1].Addr() + "," + c.Members[2].Addr()
	c.Members[1].Kill()
	c.Members[2].Kill()
	r := examineInVain(t, url)
	finds(t, r, doctor.Danger, c.Members[0].Addr(), "no leader")
	finds(t, r, doctor.Note, c.Members[2].Addr(), "does not answer")
}
