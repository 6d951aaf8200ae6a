package testbed

import (
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/zookeeper"
)

// zooKeeperTTL is the session timeout, too. It is two ticks, the least that servers grant:
// the longer a tick, the more can be lost with a server.
const (
	zooKeeperTTL  = 2 * time.Second
	zooKeeperTick = zooKeeperTTL / 2
)

func zooKeeperSubject() matrix.Subject {
	return matrix.Subject{
		Name: "zookeeper", About: "three servers", Guarantees: zooKeeperGuarantees(),
		TTL: zooKeeperTTL, Start: threeZooKeeper,
	}
}

func zooKeeperGuarantees() locker.Guarantees {
	g := new(zookeeper.Locker).Guarantees()
	g.ServerFailures = 1 // of three: the backend cannot ask its client how many there are
	return g
}

// threeZooKeeper has no clock to step: sessions follow the clock of elapsed time.
func threeZooKeeper(lab *matrix.Lab) (*matrix.System, error) {
	servers := testserver.ZooKeeperWith(lab, 3, fmt.Sprint("tickTime=", zooKeeperTick.Milliseconds()))
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	var killed []*testserver.ZooKeeperServer
	kill := func() {
		s := testserver.ZooKeeperLeader(lab, servers)
		s.Kill()
		killed = append(killed, s)
	}
	return &matrix.System{
		Client: clients(lab, "zk://", addrs...),
		CrashKeeping: try(lab, func() {
			leader := testserver.ZooKeeperLeader(lab, servers)
			leader.Kill()
			leader.Start()
		}),
		Pause:  try(lab, each(servers, (*testserver.ZooKeeperServer).Pause)),
		Resume: try(lab, each(servers, (*testserver.ZooKeeperServer).Resume)),
		Part: func(spare bool) (matrix.Part, error) {
			leader := testserver.ZooKeeperLeader(lab, servers)
			if !spare {
				return onePart(lab, "zk://", leader)
			}
			askBetweenTicks(leader)
			return onePart(lab, "zk://", another(servers, leader))
		},
		Stored:       func() (matrix.Stored, error) { return storedOnZooKeeper(lab, servers) },
		KillMinority: try(lab, kill),
		KillMajority: try(lab, kill, kill),
		Restore:      try(lab, func() { each(killed, (*testserver.ZooKeeperServer).Start)() }),
		Stranger:     func(name string) (func() error, error) { return zooKeeperStranger(lab, addrs, name) },
	}, nil
}

// zooKeeperStranger is the Lock of the client library, which lasts as long as its session.
func zooKeeperStranger(lab *matrix.Lab, addrs []string, name string) (release func() error, err error) {
	conn, _, err := zk.Connect(addrs, askTime, zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	lab.Cleanup(conn.Close)
	lock := zk.NewLock(conn, zookeeper.DefaultBase+"/"+name, zk.WorldACL(zk.PermAll))
	return lock.Unlock, lock.Lock()
}

// askBetweenTicks has the leader ask the others for their clients' signs of life at about
// the middle of its ticks. It returns so late in a tick that a client that connects now has
// given its first sign when the leader asks at the tick's end. Sessions end with a tick, so
// this is when most can be lost with a server. The leader asks when it goes on after a
// stop, and twice a tick from then on.
func askBetweenTicks(leader *testserver.ZooKeeperServer) {
	leader.Pause()
	sleepUntil(0.45)
	leader.Resume()
	sleepUntil(0.78)
}

// sleepUntil sleeps until that part of the next tick has passed. The server's clock is ours,
// less the time for which this machine was suspended.
func sleepUntil(part float64) {
	now := time.Duration(driver.Now())
	time.Sleep(now.Truncate(zooKeeperTick) + zooKeeperTick + time.Duration(part*float64(zooKeeperTick)) - now)
}
