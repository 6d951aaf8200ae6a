package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// nearlyFull is the share of maxmemory from which on a server may refuse
	// writes any moment.
	nearlyFull = 0.9

	// clockOff is a difference of clocks that nobody should have with NTP.
	clockOff = time.Second
)

// infoOf takes apart the answer to INFO.
func infoOf(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

func (n *redisNode) number(name string) int64 {
	v, err := strconv.ParseInt(n.info[name], 10, 64)
	if err != nil {
		return 0 // the server does not have it
	}
	return v
}

// server looks at what every server has to be, with whatever others.
func (n *redisNode) server() {
	if len(n.info) == 0 {
		return
	}
	n.up = time.Duration(n.number("uptime_in_seconds")) * time.Second
	n.version()
	n.memory()
	n.connections()
	if n.ahead.Abs() > clockOff+n.error {
		n.note(fmt.Sprintf("its clock is %v %s this machine's", n.ahead.Abs().Round(time.Millisecond), direction(n.ahead)),
			"leases do not depend on it; tokens start at the server's clock, so one that takes over with a slower clock, and without the data, can send them back",
			"keep the clocks of all servers by NTP")
	}
	n.checked("clock")
}

func direction(ahead time.Duration) string {
	if ahead > 0 {
		return "ahead of"
	}
	return "behind"
}

func (n *redisNode) version() {
	v := n.info["redis_version"]
	if before(v, 7, 0) {
		n.danger("its version is "+v, "the scripts need commands of Redis 7.0: locks are refused", "use Redis 7.0 or later, or Valkey")
	}
	n.checked("version %s", v)
}

// before compares a version such as 7.0.15. One that is not understood is not
// before anything.
func before(version string, least ...int) bool {
	for i, part := range strings.Split(version, ".") {
		if i == len(least) {
			break
		}
		have, err := strconv.Atoi(part)
		if err != nil || have != least[i] {
			return err == nil && have < least[i]
		}
	}
	return false
}

// memory: a lock and its counter are keys with an expiry, so volatile policies
// evict them as well.
func (n *redisNode) memory() {
	limit, policy := n.number("maxmemory"), n.info["maxmemory_policy"]
	switch {
	case limit == 0: // nothing is ever evicted
	case policy != "noeviction":
		n.danger(fmt.Sprintf("it evicts keys when memory is short (maxmemory %d MB, maxmemory-policy %s)", limit>>20, policy),
			"locks have an expiry, so every policy may evict one that is held, and a second holder gets it; the first hears of it at its next renewal",
			"maxmemory-policy noeviction, or a server for locks alone")
	case float64(n.number("used_memory")) > nearlyFull*float64(limit):
		n.note(fmt.Sprintf("%d of %d MB of its memory are used", n.number("used_memory")>>20, limit>>20),
			"a full server refuses grants, which is an error; locks that are held can still be renewed", "raise maxmemory, or a server for locks alone")
	}
	n.checked("eviction (maxmemory %d MB, %s)", limit>>20, policy)
}

func (n *redisNode) connections() {
	if seconds, ok := n.config["timeout"]; ok && seconds != "0" {
		n.note("it closes connections that are idle for "+seconds+" s (timeout)",
			"clients open them again, which costs a lock some milliseconds; subscriptions are spared", "timeout 0, and tcp-keepalive 300")
	}
	if n.config["tcp-keepalive"] == "0" {
		n.note("it does not ask silent connections for a sign of life (tcp-keepalive 0)",
			"a waiter whose machine died counts as listening until its turn has passed unused: half a second for each", "tcp-keepalive 300")
	}
	if len(n.config) > 0 {
		n.checked("timeout and tcp-keepalive")
	}
}

// persistence is what a server keeps when it crashes.
func (n *redisNode) persistence() string {
	switch {
	case n.info["aof_enabled"] == "1" && n.config["appendfsync"] == "":
		return "append-only file, how often it is synced is unknown"
	case n.info["aof_enabled"] == "1":
		return "append-only file, synced " + n.config["appendfsync"]
	case n.config["save"] != "":
		return "snapshots (save " + n.config["save"] + ")"
	case len(n.config) == 0:
		return "no append-only file"
	}
	return "none"
}

const tokensStay = "; tokens still increase, unless the clock goes back as well, so a guard refuses the first holder's writes"

// durability says what a crash does to locks that are held. With an append-only
// file the server has written, though not synced, what it answers.
func (n *redisNode) durability() {
	if len(n.info) == 0 {
		return
	}
	kept := n.persistence()
	switch {
	case n.info["aof_enabled"] != "1":
		n.danger("what it keeps on disk: "+kept,
			"a crash or restart forgets locks that are held, or brings old ones back, and a second holder gets them"+tokensStay,
			"appendonly yes and appendfsync always; or redlock://, which keeps restarted nodes from voting")
	case n.config["appendfsync"] != "always":
		n.note("what it keeps on disk: "+kept,
			"a crash of the server alone loses nothing; one of its machine forgets up to two seconds of grants"+tokensStay,
			"appendfsync always, at the price of a disk write a lock")
	}
	n.checked("persistence (%s)", kept)
}

// replicas: a failover promotes one, and a grant that it has not received is
// forgotten.
func (n *redisNode) replicas(confirm int) {
	if len(n.info) == 0 {
		return
	}
	have := int(n.number("connected_slaves"))
	switch {
	case n.isReplica():
	case have > confirm:
		n.danger(fmt.Sprintf("it has %d replicas, of which %d confirm a grant", have, confirm),
			"a failover to one that lags forgets locks that are held, and a second holder gets them"+tokensStay,
			fmt.Sprintf("replicas=%d in the URL (Options.Replicas): grants then wait for all that may be promoted", have))
	case have < confirm:
		n.danger(fmt.Sprintf("it has %d replicas, and %d must confirm a grant", have, confirm),
			"no lock is granted: every attempt fails after a second", "bring the replicas back, or ask for fewer: replicas= in the URL")
	}
	n.checked("role %s, %d replicas, of which %d must confirm", n.info["role"], have, confirm)
}

func (n *redisNode) isReplica() bool {
	if n.info["role"] != "slave" {
		return false
	}
	n.danger("it is a replica of "+n.info["master_host"]+":"+n.info["master_port"],
		"it takes no writes, so no locks; one that takes them (replica-read-only no) forgets them with the next synchronization",
		"connect to the master, or by redis-sentinel://")
	return true
}

// foreignCluster: a client of one server does not follow a Cluster's redirects.
func (n *redisNode) foreignCluster() {
	if n.info["cluster_enabled"] == "1" {
		n.danger("it is a node of a Redis Cluster, and asked as if it stood alone",
			"locks whose slot is elsewhere are refused", "redis-cluster:// with the same hosts")
	}
}

// cluster looks at what a node says of its Cluster.
func (n *redisNode) cluster(ctx context.Context) {
	text, err := n.rdb.ClusterInfo(ctx).Result()
	if err != nil {
		n.blind("CLUSTER INFO", err, "grant the user of the doctor +cluster|info")
		return
	}
	info := infoOf(text)
	if state := info["cluster_state"]; state != "ok" {
		n.danger("the state of the cluster is "+state, "locks are refused, at least those of some slots", "CLUSTER NODES says which masters are missing")
	}
	if n.number("connected_slaves") == 0 {
		n.note("this master has no replica", "while it is down, the locks of its slots are refused", "give it one, and say replicas=1 in the URL")
	}
	if n.config["cluster-allow-reads-when-down"] == "yes" {
		n.note("it answers reads while its cluster is down (cluster-allow-reads-when-down yes)",
			"locks are not granted, but \"locker inspect\" may show an old state", "cluster-allow-reads-when-down no")
	}
	n.checked("cluster (state %s)", info["cluster_state"])
}
