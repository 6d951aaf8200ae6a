package testbed

import (
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance/matrix"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/zookeeper"
)

// zooKeeperTTL is the session timeout as well.
const zooKeeperTTL = 2 * time.Second

func zooKeeperSubject() matrix.Subject {
	return matrix.Subject{
		Name: "zookeeper", About: "three servers", Guarantees: zooKeeperGuarantees(),
		TTL: zooKeeperTTL, Start: threeZooKeeper,
	}
}

func zooKeeperGuarantees() locker.Guarantees {
	g := new(zookeeper.Locker).Guarantees()
	g.Tolerates = 1 // of three; the client does not tell the backend how many there are
	return g
}

// threeZooKeeper has no clock to step: sessions follow the clock of elapsed time.
func threeZooKeeper(lab *matrix.Lab) (*matrix.System, error) {
	servers := testserver.ZooKeeper(lab, 3)
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
		Pause:        try(lab, each(servers, (*testserver.ZooKeeperServer).Pause)),
		Resume:       try(lab, each(servers, (*testserver.ZooKeeperServer).Resume)),
		KillMinority: try(lab, kill),
		KillMajority: try(lab, kill, kill),
		Restore:      try(lab, func() { each(killed, (*testserver.ZooKeeperServer).Start)() }),
	}, nil
}
