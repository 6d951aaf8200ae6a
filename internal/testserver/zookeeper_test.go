package testserver_test

import (
	"strings"
	"testing"

	"github.com/lockstile/locker/internal/testserver"
)

func TestZooKeeperServersFormAnEnsembleAndElectAnotherLeader(t *testing.T) {
	t.Parallel()
	servers := testserver.ZooKeeper(t, 3)
	first := testserver.ZooKeeperLeader(t, servers)
	first.Kill()
	second := testserver.ZooKeeperLeader(t, servers)
	if first == second {
		t.Fatal("the killed server still leads")
	}
	first.Start()
	text, err := first.TryDo("srvr")
	if err != nil || !strings.Contains(text, "Mode: follower") {
		t.Errorf("the server that came back says %q, error %v", text, err)
	}
}

func TestZooKeeperServerAloneServes(t *testing.T) {
	s := testserver.ZooKeeper(t, 1)[0]
	if n := s.Stat("zk_packets_received"); n < 0 {
		t.Errorf("packets received: %d", n)
	}
}
