package redisnode

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/lab/testserver"
)

// cluster is two masters with a replica each.
type cluster struct{ masters, replicas []*testserver.RedisServer }

func startCluster(t *testing.T) cluster {
	t.Helper()
	masters := testserver.RedisCluster(t, 2)
	return cluster{masters, testserver.RedisClusterReplicas(t, masters)}
}

func (c cluster) node(t *testing.T, replicas int) *Node {
	t.Helper()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{c.masters[0].Addr(), c.masters[1].Addr()}})
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

func role(srv *testserver.RedisServer) string {
	_, rest, _ := strings.Cut(srv.Do("INFO", "replication"), "role:")
	is, _, _ := strings.Cut(rest, "\r")
	return is
}

// A replica takes over from its master, which lives on as its replica. The client's map is
// that of before. Locks are still held, and a free one is granted, right away.
func TestLocksSurviveTheFailoverOfAMasterOfACluster(t *testing.T) {
	for _, confirm := range []int{0, 1} {
		t.Run(fmt.Sprint("replicas that confirm: ", confirm), func(t *testing.T) {
			c := startCluster(t)
			n := c.node(t, confirm)
			moving := attemptsOn(t, c.masters[0], 6)
			held, alone, free := append(moving[:3:3], attemptsOn(t, c.masters[1], 2)...), moving[3], moving[4:]
			for _, a := range append(held[:5:5], alone) {
				mustGrant(t, n, a)
			}
			c.replicas[0].Do("CLUSTER", "FAILOVER")
			c.replicas[0].Await("the failover", func() bool { return role(c.replicas[0]) == "master" && role(c.masters[0]) == "slave" })
			c.replicas[0].Await("its replica", func() bool { return c.replicas[0].Do("WAIT", "1", "100") == "1" })
			allRenewed(t, n, "one by one", []*Attempt{alone})
			mustGrant(t, n, free[0])
			allRenewed(t, n, "together", held)
			for _, a := range append(held, alone, free[0]) {
				if err := n.Release(background(t), a); err != nil {
					t.Errorf("the release of %s: %v", a.Keys.Lock, err)
				}
			}
		})
	}
}

// A batch is the first that finds its master replaced.
func TestBatchOfRenewalsFollowsItsMastersSuccessor(t *testing.T) {
	for _, confirm := range []int{0, 1} {
		t.Run(fmt.Sprint("replicas that confirm: ", confirm), func(t *testing.T) {
			c := startCluster(t)
			n := c.node(t, confirm)
			held := attemptsOn(t, c.masters[0], 3)
			for _, a := range held {
				mustGrant(t, n, a)
			}
			c.replicas[0].Do("CLUSTER", "FAILOVER")
			c.replicas[0].Await("the failover", func() bool { return role(c.replicas[0]) == "master" && role(c.masters[0]) == "slave" })
			c.replicas[0].Await("its replica", func() bool { return c.replicas[0].Do("WAIT", "1", "100") == "1" })
			allRenewed(t, n, "together", held)
		})
	}
}

// A master is killed, and its replica takes over. go-redis would look for the new master
// within a minute.
func TestMasterOfAClusterThatDiedIsReplaced(t *testing.T) {
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
	began := time.Now()
	var err error
	for s := (Standing{}); s.First == 0 && time.Since(began) < 30*time.Second; time.Sleep(time.Millisecond) {
		s, err = n.Acquire(background(t), free, Ask{})
	}
	if err != nil {
		t.Fatalf("no lock after %v: %v", time.Since(began), err)
	}
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
	for _, confirm := range []int{0, 1} {
		t.Run(fmt.Sprint("replicas that confirm: ", confirm), func(t *testing.T) {
			c := startCluster(t)
			n := c.node(t, confirm)
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
					a.kept.Store(int64(locker.Now().Add(-n.Keep))) // for the next time
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
				if err := n.Release(background(t), a); err != nil {
					t.Errorf("the release of %s: %v", a.Keys.Lock, err)
				}
			}
		})
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
	if !Refused(classify(refusal("NOPERM this user has no permissions"))) {
		t.Error("a user without permission is not refused")
	}
}
