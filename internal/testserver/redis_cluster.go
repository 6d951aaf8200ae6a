package testserver

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// RedisCluster starts a cluster of so many masters without replicas. They have args besides
// their own.
func RedisCluster(t TB, masters int, args ...string) []*RedisServer {
	t.Helper()
	servers := make([]*RedisServer, masters)
	const slots = 16384
	for i := range servers {
		s := Redis(t, slices.Concat(clusterNode, args)...)
		first, last := i*slots/masters, (i+1)*slots/masters-1
		s.Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
		s.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		servers[i] = s
	}
	meet(t, servers)
	return servers
}

// clusterNode has a replica follow at once, and nobody be taken for dead because the
// machine is slow.
var clusterNode = []string{"--cluster-enabled", "yes", "--cluster-node-timeout", "60000", "--repl-diskless-sync-delay", "0"}

// RedisClusterReplicas starts a replica of each master of a cluster, in the order of the
// masters, and waits until it follows.
func RedisClusterReplicas(t TB, masters []*RedisServer, args ...string) []*RedisServer {
	t.Helper()
	replicas := make([]*RedisServer, len(masters))
	for i := range replicas {
		replicas[i] = Redis(t, slices.Concat(clusterNode, args)...)
	}
	meet(t, slices.Concat(masters, replicas))
	for i, s := range replicas {
		s.Do("CLUSTER", "REPLICATE", masters[i].Do("CLUSTER", "MYID"))
		s.Await("the link to its master", func() bool {
			return strings.Contains(s.Do("INFO", "replication"), "master_link_status:up")
		})
	}
	for _, s := range slices.Concat(masters, replicas) { // else a client is sent to fewer
		s.Await("replicas that everybody knows", func() bool {
			return strings.Count(s.Do("CLUSTER", "NODES"), "slave") == len(replicas)
		})
	}
	return replicas
}

// meet makes one cluster of servers, and waits until all know all.
func meet(t TB, servers []*RedisServer) {
	t.Helper()
	for _, s := range servers[1:] {
		s.Do("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(servers[0].port))
	}
	for _, s := range servers {
		if err := s.process.await(func() error { return s.clusterReady(len(servers)) }); err != nil {
			t.Fatalf("cluster of %d: %v", len(servers), err)
		}
	}
}

func (s *RedisServer) clusterReady(nodes int) error {
	info, err := s.TryDo("CLUSTER", "INFO")
	if err != nil {
		return err
	}
	if !strings.Contains(info, "cluster_state:ok") {
		return fmt.Errorf("the cluster has not formed: %s", info)
	}
	links, err := s.TryDo("CLUSTER", "NODES") // without its link a node would miss what is published
	if err == nil && (strings.Count(links, " connected") != nodes || strings.Contains(links, "disconnected") || strings.Contains(links, "handshake")) {
		err = fmt.Errorf("the nodes are not connected: %s", links)
	}
	return err
}
