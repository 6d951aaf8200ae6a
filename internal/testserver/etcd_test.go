package testserver_test

import (
	"testing"

	"github.com/lockstile/locker/internal/testserver"
)

func TestEtcdClusterElectsAnotherLeaderWhenItsLeaderIsKilled(t *testing.T) {
	t.Parallel()
	c := testserver.Etcd(t, 3)
	first := c.Leader()
	first.Kill()
	if second := c.Leader(); second == first {
		t.Error("a killed server leads")
	}
	first.Start()
	if got := first.Metric("etcd_server_has_leader"); got != 1 {
		t.Errorf("started again, it knows of %v leaders", got)
	}
}

func TestEtcdServerCountsItsCalls(t *testing.T) {
	s := testserver.Etcd(t, 1).Members[0]
	if got := s.Metric("etcd_server_is_leader"); got != 1 {
		t.Errorf("the only member leads %v clusters", got)
	}
	if got := s.Metric("no_such_metric"); got != 0 {
		t.Errorf("a metric that does not exist is %v", got)
	}
}
