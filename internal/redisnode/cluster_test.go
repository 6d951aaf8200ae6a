package redisnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/mailbox"
	"github.com/lockstile/locker/internal/redishook"
	"github.com/lockstile/locker/internal/testserver"
)

// cluster is two masters with a replica each.
type cluster struct{ masters, replicas []*testserver.RedisServer }

func startCluster(t *testing.T, args ...string) cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("left to make proof: a Cluster under faults")
	}
	masters := testserver.RedisCluster(t, 2, args...)
	return cluster{masters, testserver.RedisClusterReplicas(t, masters, args...)}
}

// confirmedOrNot runs a test where no replica confirms, and where one does, each on a
// Cluster of its own.
func confirmedOrNot(t *testing.T, test func(t *testing.T, c cluster, confirm int)) {
	t.Helper()
	t.Parallel()
	for _, confirm := range []int{0, 1} {
		t.Run(fmt.Sprint("replicas that confirm: ", confirm), func(t *testing.T) {
			t.Parallel()
			test(t, startCluster(t), confirm)
		})
	}
}

// node returns one whose client does not look for new masters by itself.
func (c cluster) node(t *testing.T, replicas int, set ...func(*redis.ClusterOptions)) *Node {
	t.Helper()
	opts := &redis.ClusterOptions{Addrs: []string{c.masters[0].Addr(), c.masters[1].Addr()}, ClusterStateReloadInterval: time.Hour}
	for _, f := range set {
		f(opts)
	}
	rdb := redis.NewClusterClient(opts)
	n := New(rdb, replicas)
	t.Cleanup(func() {
		n.mail.Close()
		_ = rdb.Close()
	})
	return n
}

// attemptsOn returns attempts at names that are on a master, with a lease that no test
// outlives.
func attemptsOn(t *testing.T, srv *testserver.RedisServer, count int) (attempts []*Attempt) {
	t.Helper()
	for i := 0; len(attempts) < count; i++ {
		name := fmt.Sprint("lock", i)
		if reply, _ := srv.TryDo("EXISTS", name); reply == "0" {
			a := newAttempt(t, name)
			a.TTL = time.Hour
			attempts = append(attempts, a)
		}
	}
	return attempts
}

func allRenewed(t *testing.T, n *Node, when string, attempts []*Attempt) {
	t.Helper()
	for i, err := range n.Renew(background(t), attempts) {
		if err != nil {
			t.Errorf("%s: the renewal of %s: %v", when, attempts[i].Keys.Lock, err)
		}
	}
}

// renewedSoon is allRenewed for what may fail until the client has a new map.
func renewedSoon(t *testing.T, n *Node, attempts []*Attempt) {
	t.Helper()
	for ctx := background(t); ; time.Sleep(time.Millisecond) {
		err := errors.Join(n.Renew(ctx, attempts)...)
		if err == nil {
			return
		}
		if errors.Is(err, locker.ErrLost) || ctx.Err() != nil {
			t.Fatalf("the renewals: %v", err)
		}
	}
}

// grantedSoon is mustGrant for the same.
func grantedSoon(t *testing.T, n *Node, a *Attempt) {
	t.Helper()
	for ctx := background(t); ; time.Sleep(time.Millisecond) {
		s, err := n.Acquire(ctx, a, Ask{})
		if s.First != 0 {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("no lock: %v", err)
		}
	}
}

// failOver makes a master of the first replica, and a replica of the first master, and
// waits until every server knows whose the slots are.
func (c cluster) failOver() {
	c.replicas[0].Do("CLUSTER", "FAILOVER")
	c.replicas[0].Await("the failover", func() bool { return role(c.replicas[0]) == "master" && role(c.masters[0]) == "slave" })
	c.replicas[0].Await("its replica", func() bool { return c.replicas[0].Do("WAIT", "1", "100") == "1" })
	id := c.replicas[0].Do("CLUSTER", "MYID")
	for _, srv := range slices.Concat(c.masters, c.replicas) {
		srv.Await("word of it", func() bool {
			for line := range strings.Lines(srv.Do("CLUSTER", "NODES")) {
				const slots = 8 // the field in which a master's begin
				if f := strings.Fields(line); f[0] == id {
					return len(f) > slots && strings.Contains(f[2], "master")
				}
			}
			return false
		})
	}
}

func role(srv *testserver.RedisServer) string {
	_, rest, _ := strings.Cut(srv.Do("INFO", "replication"), "role:")
	is, _, _ := strings.Cut(rest, "\r")
	return is
}

// A replica takes over from its master, which lives on as its replica. The client's map is
// that of before. Locks are still held, and a free one is granted, right away.
func TestLocksSurviveTheFailoverOfAMasterOfACluster(t *testing.T) {
	confirmedOrNot(t, func(t *testing.T, c cluster, confirm int) {
		n := c.node(t, confirm)
		moving := attemptsOn(t, c.masters[0], 6)
		held, alone, free := append(moving[:3:3], attemptsOn(t, c.masters[1], 2)...), moving[3], moving[4:]
		for _, a := range append(held[:5:5], alone) {
			mustGrant(t, n, a)
		}
		c.failOver()
		allRenewed(t, n, "one by one", []*Attempt{alone})
		mustGrant(t, n, free[0])
		allRenewed(t, n, "together", held)
		for _, a := range append(held, alone, free[0]) {
			if err := n.Release(background(t), a, 0); err != nil {
				t.Errorf("the release of %s: %v", a.Keys.Lock, err)
			}
		}
	})
}

// A batch is the first that finds its master replaced.
func TestBatchOfRenewalsFollowsItsMastersSuccessor(t *testing.T) {
	confirmedOrNot(t, func(t *testing.T, c cluster, confirm int) {
		n := c.node(t, confirm)
		held := attemptsOn(t, c.masters[0], 3)
		for _, a := range held {
			mustGrant(t, n, a)
		}
		c.failOver()
		allRenewed(t, n, "together", held)
	})
}

// A client that may read from replicas says so on all of its connections. On them a former
// master does not send scripts elsewhere: it runs them until they write.
func TestMasterThatHasBecomeAReadableReplicaIsReplaced(t *testing.T) {
	confirmedOrNot(t, func(t *testing.T, c cluster, confirm int) {
		readable := func(o *redis.ClusterOptions) { o.ReadOnly = true }
		n, other := c.node(t, confirm, readable), c.node(t, confirm, readable)
		on := attemptsOn(t, c.masters[0], 5)
		held, free := on[:3], on[3]
		for _, a := range held {
			mustGrant(t, n, a)
		}
		mustGrant(t, other, on[4]) // it knows the masters
		c.failOver()
		renewedSoon(t, n, held)
		grantedSoon(t, other, free)
	})
}

// A server has left the Cluster and lives on. It sends nobody elsewhere: it says that the
// Cluster is down.
func TestMasterThatHasLeftTheClusterIsReplaced(t *testing.T) {
	confirmedOrNot(t, func(t *testing.T, c cluster, confirm int) {
		n, other := c.node(t, confirm), c.node(t, confirm)
		on := attemptsOn(t, c.masters[0], 5)
		held, free := on[:3], on[3]
		for _, a := range held {
			mustGrant(t, n, a)
		}
		mustGrant(t, other, on[4])
		c.failOver()
		gone := c.masters[0].Do("CLUSTER", "MYID")
		c.masters[0].Do("CLUSTER", "RESET")
		for _, srv := range []*testserver.RedisServer{c.replicas[0], c.masters[1], c.replicas[1]} {
			srv.Do("CLUSTER", "FORGET", gone)
		}
		c.replicas[1].Do("CLUSTER", "REPLICATE", c.replicas[0].Do("CLUSTER", "MYID"))
		c.replicas[0].Await("its new replica", func() bool { return c.replicas[0].Do("WAIT", "1", "100") == "1" })
		renewedSoon(t, n, held)
		grantedSoon(t, other, free)
	})
}

// The client replaces a connection that breaks, and subscribes again. Somebody who took another one
// after that would not hear what is sent in between.
func TestSubscriptionThatBreaksIsTakenUpOnce(t *testing.T) {
	srv := testserver.Redis(t)
	var dials atomic.Int32
	n := New(redis.NewClient(&redis.Options{Addr: srv.Addr(), Dialer: func(_ context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		return net.Dial(network, addr)
	}}), 0)
	t.Cleanup(func() {
		n.mail.Close()
		_ = n.rdb.Close()
	})
	box := mailbox.NewBox()
	if err := n.mail.Open(background(t), "value", box.Put); err != nil {
		t.Fatal(err)
	}
	before := dials.Load()
	srv.Do("CLIENT", "KILL", "TYPE", "pubsub")
	await(t, box, mailbox.Ask)
	if got := dials.Load() - before; got != 1 {
		t.Errorf("%d connections came after the one that broke", got)
	}
}

// The server that a process listens to dies, and the process has nothing to ask of it.
func TestSubscriptionFollowsTheSuccessorOfItsServer(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	n := c.node(t, 0)
	if err := n.mail.Open(background(t), "value", func(mailbox.Word) {}); err != nil {
		t.Fatal(err)
	}
	at := 0
	if c.masters[at].Do("PUBSUB", "CHANNELS", channel(n.id)) == "" {
		at = 1
	}
	c.masters[at].Kill()
	c.replicas[at].Do("CLUSTER", "FAILOVER", "TAKEOVER")
	c.replicas[at].Await("the subscription", func() bool { return c.replicas[at].Do("PUBSUB", "CHANNELS", channel(n.id)) != "" })
}

// Goal: after a failover many locks are renewed together again, where replicas confirm.
// Method: the successor counts how often it waited for them. The locks fill three batches.
func TestRenewalsAfterAFailoverAreNotSentOneByOne(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	n := c.node(t, 1)
	first := attemptsOn(t, c.masters[0], 1)[0]
	held := []*Attempt{first}
	pipe := n.rdb.Pipeline()
	for i := range 1200 {
		a := newAttempt(t, fmt.Sprintf("{%s}%d", first.Keys.Lock, i))
		a.kept.Store(int64(driver.Now()))
		pipe.Set(background(t), a.Keys.Lock, a.Value, time.Hour)
		held = append(held, a)
	}
	if _, err := pipe.Exec(background(t)); err != nil {
		t.Fatal(err)
	}
	mustGrant(t, n, first)
	c.failOver()
	c.replicas[0].Do("CONFIG", "RESETSTAT")
	allRenewed(t, n, "after the failover", held)
	var waits int
	_, rest, _ := strings.Cut(c.replicas[0].Do("INFO", "commandstats"), "cmdstat_wait:calls=")
	if _, err := fmt.Sscanf(rest, "%d", &waits); err != nil || waits > len(held)/2 {
		t.Errorf("%d locks were renewed by %d requests, %v", len(held), waits, err)
	}
}

// Goal: renewals are confirmed by the replicas of the master that has the locks. WAIT counts
// only what its own connection wrote, and names no key by which it would get there. Method:
// the other master counts how often it was asked. Chance alone would send it half of them.
func TestRenewalsAreConfirmedByTheReplicasOfTheirMaster(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	n := c.node(t, 1)
	held := attemptsOn(t, c.masters[0], 2)
	for _, a := range held {
		mustGrant(t, n, a)
	}
	c.masters[1].Do("CONFIG", "RESETSTAT")
	for range 30 {
		allRenewed(t, n, "together", held)
	}
	if stats := c.masters[1].Do("INFO", "commandstats"); strings.Contains(stats, "cmdstat_wait:") {
		t.Errorf("a master that has none of the locks was asked what its replicas have: %s", stats)
	}
}

// A master is killed, and its replica takes over. go-redis would look for the new master
// within a minute.
func TestMasterOfAClusterThatDiedIsReplaced(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	n := c.node(t, 0)
	on := attemptsOn(t, c.masters[0], 4)
	held, free := on[:3], on[3]
	confirmed := c.node(t, 1)
	for _, a := range held {
		mustGrant(t, confirmed, a)
	}
	allRenewed(t, n, "before", held) // it knows the masters
	c.masters[0].Kill()
	c.replicas[0].Do("CLUSTER", "FAILOVER", "TAKEOVER")
	c.replicas[0].Await("the takeover", func() bool { return role(c.replicas[0]) == "master" })
	grantedSoon(t, n, free)
	allRenewed(t, n, "after", held)
}

func portOf(t *testing.T, srv *testserver.RedisServer) string {
	t.Helper()
	_, port, err := net.SplitHostPort(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// Goal: locks are still held while their slot moves to another master, and when it has.
// Method: the slot has two locks with a counter each. First one lock is moved, and its
// counter stays; then all but the other lock are; then everything.
func TestLocksSurviveTheMoveOfTheirSlotToAnotherMaster(t *testing.T) {
	t.Parallel()
	ipv6 := []string{"--bind", "127.0.0.1", "::1", "--cluster-announce-ip", "::1"}
	for name, with := range map[string]struct {
		confirm int
		args    []string
	}{
		"nobody confirms":               {},
		"a replica confirms":            {confirm: 1},
		"a replica confirms, over IPv6": {1, ipv6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if l, err := net.Listen("tcp", "[::1]:0"); err == nil {
				_ = l.Close()
			} else if with.args != nil {
				t.Skip("this machine has no IPv6:", err)
			}
			c := startCluster(t, with.args...)
			n := c.node(t, with.confirm)
			from, to := c.masters[0], c.masters[1]
			first := attemptsOn(t, from, 1)[0]
			held := []*Attempt{first, newAttempt(t, "{"+first.Keys.Lock+"}b")}
			held[1].TTL = time.Hour
			for _, a := range held {
				mustGrant(t, n, a)
			}
			slot := from.Do("CLUSTER", "KEYSLOT", first.Keys.Lock)
			to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", from.Do("CLUSTER", "MYID"))
			from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", to.Do("CLUSTER", "MYID"))
			move := func(which func(key string) bool) {
				for key := range strings.FieldsSeq(from.Do("CLUSTER", "GETKEYSINSLOT", slot, "100")) {
					if which(key) {
						from.Do("MIGRATE", "127.0.0.1", portOf(t, to), key, "0", "5000")
					}
				}
			}
			renewed := func(when string) {
				t.Helper()
				allRenewed(t, n, when+", one by one", held[:1])
				allRenewed(t, n, when+", one by one", held[1:])
				allRenewed(t, n, when+", together", held)
				for _, a := range held {
					if n.toBeKept(a) {
						t.Errorf("%s: the counter of %s could not be kept", when, a.Keys.Lock)
					}
					a.kept.Store(int64(driver.Now().Add(-n.Keep))) // for the next time
				}
			}
			renewed("before")
			move(func(key string) bool { return key == first.Keys.Lock })
			renewed("one lock has been moved")
			move(func(key string) bool { return key != held[1].Keys.Lock })
			renewed("all but the other have been moved")
			move(func(string) bool { return true })
			renewed("all have been moved")
			for _, srv := range []*testserver.RedisServer{to, from} {
				srv.Do("CLUSTER", "SETSLOT", slot, "NODE", to.Do("CLUSTER", "MYID"))
			}
			renewed("the slot has been moved")
			for _, a := range held {
				if err := n.Release(background(t), a, 0); err != nil {
					t.Errorf("the release of %s: %v", a.Keys.Lock, err)
				}
			}
		})
	}
}

// clusterOfOne returns a client that takes one server for a Cluster.
func clusterOfOne(t *testing.T, srv *testserver.RedisServer) *redis.ClusterClient {
	t.Helper()
	all := func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: srv.Addr()}}}}, nil
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: all, ReadTimeout: 10 * time.Second})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// The map of the client never becomes right.
func TestRedirectsEnd(t *testing.T) {
	masters := testserver.RedisCluster(t, 2)
	n := New(clusterOfOne(t, masters[0]), 1)
	if _, err := n.Acquire(background(t), attemptsOn(t, masters[1], 1)[0], Ask{}); !elsewhere(err) {
		t.Error(err)
	}
}

// A hook rewrites the keys of each request. Where replicas confirm, requests go past it.
func TestHookOfAClusterRewritesTheKeysOfEachRequestOrOfNone(t *testing.T) {
	srv := testserver.Redis(t)
	rdb := clusterOfOne(t, srv)
	rdb.AddHook(&redishook.Tenant{Prefix: "tenant:"})
	a, b := newAttempt(t, "{a}"), newAttempt(t, "{a}b")
	if _, err := New(rdb, 1).Acquire(background(t), a, Ask{}); err == nil || !strings.Contains(err.Error(), "set Options.Prefix in place of the hook") {
		t.Errorf("where replicas confirm: %v", err)
	}
	if keys := srv.Do("KEYS", "*"); keys != "" {
		t.Errorf("a request that was refused has left %q", keys)
	}
	n := New(rdb, 0)
	mustGrant(t, n, a)
	mustGrant(t, n, b)
	allRenewed(t, n, "together", []*Attempt{a, b}) // the server does not know the script: it goes with each alone
	allRenewed(t, n, "in one batch", []*Attempt{a, b})
}

// panics is a hook that does.
type panics struct{ redis.Hook }

func (panics) DialHook(next redis.DialHook) redis.DialHook { return next }
func (panics) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (panics) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { panic("the hook") }
}

// Masters are asked in goroutines of their own, where nobody else could recover.
func TestRenewalInWhichAHookPanicsHasFailed(t *testing.T) {
	rdb := clusterOfOne(t, testserver.Redis(t))
	rdb.AddHook(panics{})
	if err := New(rdb, 0).Renew(context.Background(), []*Attempt{newAttempt(t, "a")})[0]; err == nil || errors.Is(err, locker.ErrLost) {
		t.Error(err)
	}
}

// panicsAtScan is a hook that panics when names are looked for.
type panicsAtScan struct{ panics }

func (panicsAtScan) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "scan" {
			panic("the hook")
		}
		return next(ctx, cmd)
	}
}

// The client has its masters looked at in goroutines of its own.
func TestListInWhichAHookPanicsHasFailed(t *testing.T) {
	rdb := clusterOfOne(t, testserver.Redis(t))
	rdb.OnNewNode(func(master *redis.Client) { master.AddHook(panicsAtScan{}) })
	if _, err := New(rdb, 0).List(background(t), ""); err == nil || !strings.Contains(err.Error(), "panicked: the hook") {
		t.Error(err)
	}
}

// What a server cannot do just then does not end a wait.
func TestServerThatWillServeSoonRefusesNothing(t *testing.T) {
	srv := testserver.Redis(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), MaxRetries: -1})
	defer rdb.Close()
	for _, reply := range []string{
		"TRYAGAIN Multiple keys request during rehashing of slot", "READONLY You can't write against a read only replica.",
		"MOVED 3999 127.0.0.1:6381", "ASK 3999 127.0.0.1:6381", "CLUSTERDOWN The cluster is down", "LOADING Redis is loading the dataset in memory",
		"MASTERDOWN Link with MASTER is down", "UNBLOCKED force unblock from blocking operation",
	} {
		err := rdb.Eval(background(t), "return redis.error_reply(ARGV[1])", nil, reply).Err()
		if err == nil || Refused(classify(err)) || !errors.Is(classify(err), locker.ErrUnavailable) {
			t.Errorf("%q: refused %v: %v", reply, Refused(classify(err)), classify(err))
		}
	}
	if young := classify(refusal("YOUNG no vote for another 7 s, until then")); Refused(young) || Young(young) != 7*time.Second {
		t.Errorf("it has no vote for another %v: %v", Young(young), young)
	}
	if !Refused(classify(refusal("NOPERM this user has no permissions"))) {
		t.Error("a user without permission is not refused")
	}
}
