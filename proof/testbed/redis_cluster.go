package testbed

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/singlenode"
)

func redisClusterSubject() matrix.Subject {
	return matrix.Subject{
		Name: "singlenode+cluster", About: "a Redis Cluster of two masters with a replica each, with Replicas: 1",
		Guarantees: singlenodeGuarantees(1), Start: startCluster,
	}
}

// cluster is a Redis Cluster. The replica of each master has its place in the list.
type cluster struct{ masters, replicas []*testserver.RedisServer }

func startCluster(lab *matrix.Lab) (*matrix.System, error) {
	c := cluster{masters: testserver.RedisCluster(lab, 2)}
	c.replicas = testserver.RedisClusterReplicas(lab, c.masters)
	all := slices.Concat(c.masters, c.replicas)
	return &matrix.System{
		Client:   c.clients(lab, all),
		Pause:    try(lab, each(all, (*testserver.RedisServer).Pause)),
		Resume:   try(lab, each(all, (*testserver.RedisServer).Resume)),
		HandOver: try(lab, c.handOver),
		Stored:   storedOnRedis(c.masters...),
		Move:     func(name string) []matrix.Step { return c.move(lab, name) },
		Stranger: func(name string) (func() error, error) {
			from, _, _, err := c.place(name)
			if err != nil {
				return nil, err
			}
			return redisStranger(from)(name)
		},
	}, nil
}

// clients returns a matrix.System's Client. Nodes tell each client where the others are,
// so its URL says which proxy stands for which node.
func (c cluster) clients(lab *matrix.Lab, nodes []*testserver.RedisServer) func() (string, conformance.Network, error) {
	return func() (string, conformance.Network, error) {
		var addrs, pairs []string
		for _, srv := range nodes {
			addrs = append(addrs, srv.Addr())
		}
		ps, err := lab.Proxy(addrs...)
		if err != nil {
			return "", nil, err
		}
		for i, p := range ps {
			pairs = append(pairs, addrs[i]+"="+p.Addr())
		}
		return "cluster:" + strings.Join(pairs, ","), ps, nil
	}
}

func openCluster(pairs string) (locker.Locker, error) {
	return singlenode.New(ClusterClient(pairs), singlenode.Options{Replicas: 1})
}

// ClusterClient makes the client of a worker, with the settings of package open, for what
// comes after "cluster:" in a URL.
func ClusterClient(pairs string) *redis.ClusterClient {
	proxies := make(map[string]string) // by the address of the node
	opts := &redis.ClusterOptions{
		ContextTimeoutEnabled: true, DialTimeout: clusterReply, ReadTimeout: clusterReply, WriteTimeout: clusterReply, DialerRetries: 1,
	}
	for pair := range strings.SplitSeq(pairs, ",") {
		node, proxy, _ := strings.Cut(pair, "=")
		proxies[node] = proxy
		opts.Addrs = append(opts.Addrs, node)
	}
	opts.Dialer = func(ctx context.Context, network, node string) (net.Conn, error) {
		proxy, ok := proxies[node]
		if !ok {
			return nil, fmt.Errorf("testbed: no proxy stands for %s", node)
		}
		d := net.Dialer{Timeout: clusterReply}
		return d.DialContext(ctx, network, proxy)
	}
	return redis.NewClusterClient(opts)
}

const clusterReply = 2 * time.Second

// handOver has one replica after another take its master's place, and waits until the
// former master follows it.
func (c cluster) handOver() {
	for i, replica := range c.replicas {
		replica.Do("CLUSTER", "FAILOVER")
		replica.Await("the replica takes over", func() bool { return says(replica, "role:master") })
		former := c.masters[i]
		former.Await("the former master follows", func() bool { return says(former, "master_link_status:up") })
	}
}

func says(srv *testserver.RedisServer, what string) bool {
	return strings.Contains(srv.Do("INFO", "replication"), what)
}

// place returns the master of a name, the other one, and the name's slot.
func (c cluster) place(name string) (from, to *testserver.RedisServer, slot string, err error) {
	from, to = c.masters[0], c.masters[1]
	if slot, err = from.TryDo("CLUSTER", "KEYSLOT", name); err != nil {
		return nil, nil, "", err
	}
	if _, err := from.TryDo("EXISTS", name); err != nil { // MOVED
		from, to = to, from
	}
	return from, to, slot, nil
}

// move moves the slot of a name as redis-cli does.
func (c cluster) move(lab *matrix.Lab, name string) []matrix.Step {
	from, to, slot, err := c.place(name)
	must(lab, "the slot", err)
	source, target := from.Do("CLUSTER", "MYID"), to.Do("CLUSTER", "MYID")
	host, port, _ := net.SplitHostPort(to.Addr())
	return []matrix.Step{
		{What: "its slot begins to move", Do: try(lab, func() {
			to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", source)
			from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", target)
		})},
		{What: "its keys move", Do: try(lab, func() {
			for keys := from.Do("CLUSTER", "GETKEYSINSLOT", slot, "100"); keys != ""; keys = from.Do("CLUSTER", "GETKEYSINSLOT", slot, "100") {
				from.Do(append([]string{"MIGRATE", host, port, "", "0", "5000", "KEYS"}, strings.Split(keys, "\n")...)...)
			}
		})},
		{What: "its slot has moved", Do: try(lab, func() {
			to.Do("CLUSTER", "SETSLOT", slot, "NODE", target)
			from.Do("CLUSTER", "SETSLOT", slot, "NODE", target)
		})},
	}
}
